"""Memory that the launches of a stream share, as they follow one another.

Flags, by which the blocks of a launch wait for one another: int32 that are 0 before a launch and after it. And scratch,
in which blocks leave for one another what a launch is done with when it ends. A launch that is captured has memory of
its own, since a graph may run beside the stream that it was captured on.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from pykittens.kernels.core import empty
from pykittens.runtime import driver
from pykittens.runtime.arrays import describe
from pykittens.runtime.launch import current_stream

OF_GRAPHS = 2**18  # flags of a GPU for launches that are captured

_flags: dict[tuple[int, int], Any] = {}  # by GPU and stream
_scratch: dict[tuple[int, int], Any] = {}
_of_graphs: dict[int, Any] = {}


def stream_of(array: Any) -> int:
    """The current stream of the GPU an array is on."""
    found = describe(array)
    assert found is not None
    return 0 if isinstance(found.device, str) else current_stream(found.device[1])


def is_shared(like: Any, stream: int) -> bool:
    """Whether memory for a launch on a stream is that of the launches before it."""
    return not _is_on_host(like) and not driver.stream_is_capturing(stream, like.get_device())


def flags(like: Any, count: int, stream: int) -> Any:
    """`count` flags on the GPU of an array, for a launch on its current stream that leaves them 0.

    Captured launches share OF_GRAPHS of a GPU; past these a graph sets its own to 0.
    """
    if _is_on_host(like):
        return zeros(like, count)
    ordinal = like.get_device()
    if driver.stream_is_capturing(stream, ordinal):
        left = _of_graphs.get(ordinal)
        taken = -(-count // 4) * 4  # the next begin at a multiple of 16 bytes, as others do
        if left is None or len(left) < taken:
            return zeros(like, count)
        _of_graphs[ordinal] = left[taken:]
        return left[:count]
    if ordinal not in _of_graphs:
        _of_graphs[ordinal] = zeros(like, OF_GRAPHS)
        driver.wait_for_stream(ordinal, stream)  # graphs run on any stream
    return _kept(_flags, (ordinal, stream), count, lambda: zeros(like, max(count, 4096)))


def scratch(like: Any, shape: tuple[int, ...], stream: int) -> Any:
    """An f32 array on the GPU of an array, for a launch on its current stream; it holds anything."""
    if not is_shared(like, stream):
        return empty(like, shape, "f32")
    place, count = (like.get_device(), stream), prod(shape)
    return _kept(_scratch, place, count, lambda: empty(like, (count,), "f32")).reshape(shape)


def _kept(
    by_place: dict[tuple[int, int], Any],
    place: tuple[int, int],
    count: int,
    make: Callable[[], Any],
) -> Any:
    """So much of what is kept for a stream, which is made anew where it is too short."""
    kept = by_place.get(place)
    if kept is None or len(kept) < count:
        kept = by_place[place] = make()
    return kept[:count]


def zeros(like: Any, count: int) -> Any:
    """`count` int32 that are 0, on the device of an array."""
    made = empty(like, (count,), "int32")
    made[:] = 0
    return made


def _is_on_host(like: Any) -> bool:
    return isinstance(like, np.ndarray) or like.get_device() < 0
