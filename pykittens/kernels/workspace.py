"""Scratch memory of launches, shared by those of a stream because they follow one another.

A kernel whose blocks wait for one another needs flags: int32 that are 0 before a launch and after it. What blocks pass
to one another is of no use after the launch. A launch that is captured has memory of its own, since a graph may run
beside the stream that it was captured on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from pykittens.kernels.arrays import empty
from pykittens.runtime import driver
from pykittens.runtime.launch import current_stream

OF_GRAPHS = 2**18  # flags of a GPU for launches that are captured


@dataclass(frozen=True)
class Scratch:
    """Memory of a launch: f32 that hold anything, or as `flags` int32 that are 0 and are left 0."""

    shape: tuple[int, ...]
    flags: bool = False


_kept: dict[tuple[int, int, bool], Any] = {}  # by GPU, stream, and whether it is flags
_of_graphs: dict[int, Any] = {}  # flags that no captured launch has yet, by GPU


def memory(scratch: Mapping[str, Scratch], like: Any, alone: bool = False) -> dict[str, Any]:
    """Arrays by name for a launch on the current stream of an array's GPU.

    alone: arrays that no other launch has, so that a wrong launch leaves no flag set for others.
    """
    found = {}
    for flags in (True, False):
        parts = {name: s.shape for name, s in scratch.items() if s.flags == flags}
        counts = [-(-prod(shape) // 4) * 4 for shape in parts.values()]  # each starts at 16 bytes
        whole = _memory(like, sum(counts), flags, alone) if parts else None
        for (name, shape), count in zip(parts.items(), counts, strict=True):
            assert whole is not None
            found[name], whole = whole[: prod(shape)].reshape(shape), whole[count:]
    return found


def _memory(like: Any, count: int, flags: bool, alone: bool) -> Any:
    """So many elements, of the memory that is kept for the current stream if possible."""
    ordinal = -1 if isinstance(like, np.ndarray) else like.get_device()
    if alone or ordinal < 0:
        return _made(like, count, flags)
    stream = current_stream(ordinal)
    if driver.stream_is_capturing(stream, ordinal):
        return _captured(like, count, flags, ordinal)
    if flags and ordinal not in _of_graphs:
        _of_graphs[ordinal] = _made(like, OF_GRAPHS, flags)
        driver.wait_for_stream(ordinal, stream)  # graphs run on any stream
    kept = _kept.get((ordinal, stream, flags))
    if kept is None or len(kept) < count:
        kept = _made(like, max(count, 4096 if flags else 0), flags)
        _kept[ordinal, stream, flags] = kept
    return kept


def _captured(like: Any, count: int, flags: bool, ordinal: int) -> Any:
    """Memory of a graph. Flags are of those that were set to 0 before; if these are used up, the graph does it."""
    left = _of_graphs.get(ordinal)
    if not flags or left is None or len(left) < count:
        return _made(like, count, flags)
    _of_graphs[ordinal] = left[count:]
    return left


def _made(like: Any, count: int, flags: bool) -> Any:
    made = empty(like, (count,), "int32" if flags else "f32")
    if flags:
        made[...] = 0
    return made
