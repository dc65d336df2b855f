"""Scratch memory of launches. The launches of a stream share it, because they follow one another.

A kernel whose blocks exchange data needs flags: int32 that are 0 before a launch and after it. The data is not needed
after the launch. A captured launch has separate memory, since a graph may run at the same time
as the stream that it was captured on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from pykittens.runtime import driver
from pykittens.runtime.arrays import empty, numpy_dtype, viewed
from pykittens.runtime.launch import current_stream

OF_GRAPHS = 2**18  # flags of a GPU for captured launches
LINE = 128  # bytes


@dataclass(frozen=True)
class Scratch:
    """Memory of a launch: uninitialized, or as `flags` int32 that are 0 before the launch and after it.

    in_lines: whether its rows start at lines of 128 bytes.
    """

    shape: tuple[int, ...]
    flags: bool = False
    dtype: str = "f32"
    in_lines: bool = False

    @property
    def _memory(self) -> tuple[int, ...]:
        """Its shape with the memory between its rows."""
        unit = LINE // numpy_dtype(self.dtype).itemsize if self.in_lines else 1
        *lead, cols = self.shape
        return (*lead, -(-cols // unit) * unit)

    @property
    def words(self) -> int:
        """Elements of 4 bytes that hold it, in whole lines."""
        return -(-prod(self._memory) * numpy_dtype(self.dtype).itemsize // LINE) * LINE // 4

    def within(self, rest: Any) -> Any:
        """The first of these elements as an array of its shape and dtype."""
        if self.dtype != "f32":
            rest = viewed(rest, self.dtype)
        return rest[: prod(self._memory)].reshape(self._memory)[..., : self.shape[-1]]


_kept: dict[tuple[int, int, bool], Any] = {}  # by GPU, stream, and whether it is flags
_of_graphs: dict[int, Any] = {}  # flags that no captured launch has taken, by GPU


def memory(scratch: Mapping[str, Scratch], like: Any, alone: bool = False) -> dict[str, Any]:
    """Arrays by name for a launch on the current stream of an array's GPU.

    alone: arrays that no other launch uses, so that a faulty launch sets no flag of another.
    """
    found = {}
    for flags in (True, False):
        asked = {name: s for name, s in scratch.items() if s.flags == flags}
        rest = _memory(like, sum(s.words for s in asked.values()), flags, alone) if asked else None
        for name, s in asked.items():
            assert rest is not None
            found[name], rest = s.within(rest[: s.words]), rest[s.words :]
    return found


def _memory(like: Any, count: int, flags: bool, alone: bool) -> Any:
    """`count` elements, from the memory that is kept for the current stream if possible."""
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
    """Memory of a graph. Flags are taken from those that are 0 already; after the last, the graph sets its own to 0."""
    free = _of_graphs.get(ordinal)
    if not flags or free is None or len(free) < count:
        return _made(like, count, flags)
    _of_graphs[ordinal] = free[count:]
    return free


def _made(like: Any, count: int, flags: bool) -> Any:
    made = empty(like, (count,), "int32" if flags else "f32")
    if flags:
        made[...] = 0
    return made
