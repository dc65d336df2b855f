"""Flags by which the blocks of a launch wait for one another: int32 that are 0 before a launch and after it."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.kernels.core import empty
from pykittens.runtime import driver
from pykittens.runtime.arrays import describe
from pykittens.runtime.launch import current_stream

OF_GRAPHS = 2**18  # flags of a GPU for launches that are captured

_of_streams: dict[tuple[int, int], Any] = {}
_of_graphs: dict[int, Any] = {}


def stream_of(array: Any) -> int:
    """The current stream of the GPU an array is on."""
    found = describe(array)
    assert found is not None
    return 0 if isinstance(found.device, str) else current_stream(found.device[1])


def flags(like: Any, count: int, stream: int) -> Any:
    """`count` flags on the GPU of an array, for a launch on a stream that leaves them 0.

    Launches of a stream share them, as they follow one another. A launch that is captured has some of its own, since
    a graph may run beside the stream that it was captured on; past OF_GRAPHS of them the graph sets them to 0.
    """
    if isinstance(like, np.ndarray) or like.get_device() < 0:
        return _zeros(like, count)
    ordinal = like.get_device()
    if driver.stream_is_capturing(stream, ordinal):
        left = _of_graphs.get(ordinal)
        if left is None or len(left) < count:
            return _zeros(like, count)
        _of_graphs[ordinal] = left[count:]
        return left[:count]
    if ordinal not in _of_graphs:
        _of_graphs[ordinal] = _zeros(like, OF_GRAPHS)
        driver.wait_for_stream(ordinal, stream)  # graphs run on any stream
    kept = _of_streams.get((ordinal, stream))
    if kept is None or len(kept) < count:
        kept = _of_streams[ordinal, stream] = _zeros(like, max(count, 4096))
    return kept[:count]


def _zeros(like: Any, count: int) -> Any:
    made = empty(like, (count,), "int32")
    made[:] = 0
    return made
