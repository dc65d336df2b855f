"""The sums of the features of keys, by which the sums of weights are found: vectors in the memory of a block."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pykittens as pk
from pykittens.kernels.linear.chunk import ROWS, of_part
from pykittens.kernels.linear.scan import column_after_segments


@dataclass(frozen=True)
class Totals:
    """f32 sums of all features up to a chunk, and in the other half those after it, which the next chunk takes.

    parts: how many times ROWS features a half has, of which `rows` are in memory.
    """

    memory: Any
    parts: int
    rows: int = ROWS

    def part(self, half: Any, length: int, i: Any) -> Any:
        """Elements i * length and on of a half."""
        return self.memory.parts(length)[half * (self.parts * ROWS // length) + i]

    def of_group(self, group: Any) -> Totals:
        """Those of one of several groups."""
        return replace(self, memory=self.memory.parts(2 * self.parts * ROWS)[group])


def totals_of(parts: int, rows: int = ROWS, groups: int = 1) -> Totals:
    """The memory of a block, of some groups."""
    return Totals(pk.shared(pk.sv(pk.f32, groups * 2 * parts * ROWS)), parts, rows)


@dataclass(frozen=True)
class Sums:
    """The sums of a chunk: the half that is valid, and factors of its keys along rows, or None."""

    totals: Totals
    half: Any
    factors: Any = None


def total_of(sums: Sums, length: int, i: Any) -> Any:
    """Some sums of the features of keys, along columns."""
    return pk.load(sums.totals.part(sums.half, length, i), spread=pk.per_column)


@pk.function
def add_keys(sums: Sums, x: Any, i: Any) -> None:
    """Add the rows of some features of a chunk's keys, part i of as many, to the sums of the next chunk."""
    x = x if sums.factors is None else x * sums.factors
    found = total_of(sums, x.cols, i) + pk.col_sum(x)
    pk.store(sums.totals.part(1 - sums.half, x.cols, i), found)


@pk.function
def start_totals(
    totals: Totals, src: Any, column: int, added: Any = None, place: Any = None, last: Any = None
) -> None:
    """Let the first half have a column of a state, or 0, and what segments add to it: see `column_after_segments`.

    last: the state of which the last segment stores the column, or None.
    """
    pk.sync()
    for p in range(totals.parts):
        x = pk.zeros(pk.f32, ROWS)
        if src is not None:
            part, i = of_part(src, p, totals.rows)
            x = pk.load(part[:, column][i], cols=ROWS)
        if added is not None:
            x = column_after_segments(x, added, place, column, p, last)
        pk.store(totals.part(0, ROWS, p), x)
    pk.sync()


@pk.function
def keep_totals(totals: Totals, half: Any, dst: Any, column: int) -> None:
    """Store the sums as a column of a state."""
    pk.sync()
    for p in range(totals.parts):
        part, i = of_part(dst, p, totals.rows)
        pk.store(part[:, column][i], pk.load(totals.part(half, ROWS, p)))
