"""Copies of a call's arguments, so that a check leaves the user's arrays unchanged."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykittens.runtime.arguments import Arguments, span
from pykittens.runtime.arrays import Array, numpy_dtype

# A copy has the same alignment within blocks of 256 bytes: the copy engine's 16 bytes, sectors and cache lines.
UNIT = 256

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class _Region:
    """The memory of one argument, or of several that overlap."""

    start: int
    content: Bytes

    @property
    def stop(self) -> int:
        return self.start + len(self.content)

    def copy(self) -> Bytes:
        """The same bytes at another address with the same remainder modulo UNIT."""
        memory = np.empty(len(self.content) + UNIT, np.uint8)
        shift = (self.start - memory.ctypes.data) % UNIT
        copied = memory[shift : shift + len(self.content)]
        copied[:] = self.content
        return copied


class Copies:
    """The contents of the arguments, to be copied repeatedly, with their strides.

    Arguments that share memory in the call also share it in a copy.
    """

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        self._regions = _regions([a for a in arguments.tensors.values() if 0 not in a.shape])

    def make(self) -> tuple[Any, ...]:
        """A copy of the arguments in the order of the signature, with NumPy arrays."""
        memory = [(region, region.copy()) for region in self._regions]
        given, tensors = self._arguments, self._arguments.tensors
        return tuple(
            _in_copy(tensors[name], memory) if name in tensors else given.scalars[name]
            for name in given.order
        )


def _regions(arrays: list[Array]) -> list[_Region]:
    """The memory of the arrays; overlapping ranges are one region."""
    ranges: list[tuple[int, int]] = []
    for start, stop in sorted((a.address, a.address + span(a)) for a in arrays):
        if ranges and start < ranges[-1][1]:
            ranges[-1] = ranges[-1][0], max(stop, ranges[-1][1])
        else:
            ranges.append((start, stop))
    return [
        _Region(start, np.frombuffer(ctypes.string_at(start, stop - start), np.uint8))
        for start, stop in ranges
    ]


def _in_copy(array: Array, memory: list[tuple[_Region, Bytes]]) -> np.ndarray[Any, Any]:
    dtype = numpy_dtype(array.dtype)
    if 0 in array.shape:
        return np.empty(array.shape, dtype)
    region, copied = next((r, c) for r, c in memory if r.start <= array.address < r.stop)
    copy: np.ndarray[Any, Any] = np.ndarray(
        array.shape,
        dtype,
        buffer=copied,
        offset=array.address - region.start,
        strides=tuple(s * dtype.itemsize for s in array.strides),
    )
    copy.flags.writeable = array.writable
    return copy
