"""Where a sequence is: one of a batch, or one of several that lie one after another in a batch of 1.

Chunks of positions begin anew with each sequence, and windows end with it: rows past its last are read as 0 and are not
written. Memory of chunks, or of other units of positions, has slots: sequence i, which starts at position s, has those
from s // size + i on. They are enough, because a sequence takes at most one unit more than it has whole ones between
multiples of `size`; so no slot depends on the lengths of the sequences before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.kernels.linear.chunk import CHUNK

AT_ONCE = 1024  # sequences that are looked through at a time


@dataclass(frozen=True)
class Sequence:
    """A sequence of a call: its number, its positions and chunks, and if it is packed, its first position.

    What is of a sequence, such as its state, is found by `number`; what is of positions or chunks, by the methods.
    """

    number: Any
    n: Any
    chunks: Any
    start: Any = None

    @property
    def batch(self) -> Any:
        """The index of its batch."""
        return self.number if self.start is None else 0

    def heads(self, x: Any, *first: Any) -> Any:
        """The positions of this sequence, (heads, n, ...), of a tensor (..., batch, heads, n, ...)."""
        if self.start is None:
            return x.at(*first, self.number)
        return x.at(*first, 0).window(1, self.start, self.start + self.n)

    def columns(self, x: Any, h: Any) -> Any:
        """The positions of this sequence, (rows, n), of a tensor (batch, heads, rows, n)."""
        own = x.at(self.batch, h)
        return own if self.start is None else own.window(1, self.start, self.start + self.n)

    def matrix(self, x: Any, h: Any, heads: Any) -> Any:
        """The positions of a head, (n, columns), of a tensor whose heads may be shared by several of all heads."""
        own = self.heads(x)
        return own.at(h // (heads // own.shape[0]))

    def slots(self, x: Any, size: int, more: int = 1) -> Any:
        """The units of this sequence, (heads, units), in memory (batch, heads, slots)."""
        if self.start is None:
            return x.at(self.number)
        return x.at(0).window(1, self.slot(0, size, more), x.shape[2])

    def slot(self, i: Any, size: int = CHUNK, more: int = 1) -> Any:
        """Where in the memory of a head its unit i is, if units have `size` positions: see `slots_of`."""
        return i if self.start is None else self.start // size + self.number * more + i


def sequences_in(ends: Any, batch: Any) -> Any:
    """How many sequences there are."""
    return batch if ends is None else ends.shape[0] - 1


def slots_of(n: Any, ends: Any, size: int = CHUNK, more: int = 1) -> Any:
    """The slots of units of `size` positions, in a kernel or before it.

    more: slots of a sequence beside its whole units, of which the first are for anything, and one is for its last unit.
    """
    if ends is None:
        return pk.cdiv(n, size) + (more - 1) if more > 1 else pk.cdiv(n, size)
    return n // size + (ends.shape[0] - 1) * more


@pk.function
def sequence_of(ends: Any, number: Any, n: Any, chunks: Any) -> Sequence:
    """A sequence, with n positions in all and as many chunks unless several are packed."""
    if ends is None:
        return Sequence(number, n, chunks)
    start = pk.clamp(pk.load(ends[number]), 0, n)
    length = pk.clamp(pk.load(ends[number + 1]), start, n) - start
    return Sequence(number, length, pk.cdiv(length, CHUNK), start)


def is_there(ends: Any, sequence: Sequence, chunk: Any) -> Any:
    """Whether a slot has a chunk."""
    if ends is None:
        return True
    return pk.logical_and(chunk >= 0, chunk < sequence.chunks)


@pk.function
def unit_at(
    ends: Any, b: Any, slot: Any, n: Any, size: int = CHUNK, more: int = 1
) -> tuple[Sequence, Any]:
    """The sequence that has a slot, and which of its units that is; there may be none, past its end."""
    if ends is None:
        return Sequence(b, n, pk.cdiv(n, CHUNK)), slot
    found: Any = 0
    count = ends.shape[0] - 1
    for first in pk.range(1, count, AT_ONCE):
        starts = pk.load(ends.window(0, first, count)[0], cols=AT_ONCE)
        numbers = pk.iota(AT_ONCE) + first
        is_past = pk.clamp(starts, 0, n) // size + numbers * more <= slot
        found = found + pk.sum((is_past & (numbers < count)).to(pk.int32))
    sequence = sequence_of(ends, found, n, 0)
    return sequence, slot - sequence.slot(0, size, more)


def own_registers(ends: Any, config: Any) -> int | None:
    """The registers of a thread of a producer or storer, whose lanes copy the last rows of packed sequences.

    With the usual 104, warpgroups that compute spill. Of two blocks on a multiprocessor, with 56 products wait for one
    another; with 48 those that copy spill some bytes, outside of what others wait for.
    """
    if ends is None:
        return None
    return 48 if config.resident > 1 else 64
