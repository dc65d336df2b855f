"""The sums of the features of keys, by which the sums of weights are found: vectors in the memory of a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.kernels.linear.chunk import CHUNK, ROWS, rows_of


def feature_count(d: int) -> int:
    """The features of d elements: pairs, elements and 1."""
    return d * (d + 1) // 2 + d + 1


def parts_of(d: int) -> int:
    """How many times ROWS the features are."""
    return rows_of(feature_count(d)) // ROWS


@dataclass(frozen=True)
class Totals:
    """f32 sums of all features up to a chunk, and in the other half those after it, which the next chunk takes."""

    memory: Any
    d: int

    def part(self, half: Any, length: int, i: Any) -> Any:
        """Elements i * length and on of a half."""
        return self.memory.parts(length)[half * (parts_of(self.d) * ROWS // length) + i]


def totals_of(d: int) -> Totals:
    """The memory of a block."""
    return Totals(pk.shared(pk.sv(pk.f32, 2 * parts_of(d) * ROWS)), d)


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
def start_totals(totals: Totals, src: Any, column: int) -> None:
    """Let the first half have a column of a state, or 0."""
    pk.sync()
    for p in range(parts_of(totals.d)):
        x = pk.zeros(pk.f32, ROWS) if src is None else pk.load(src[:, column][p], cols=ROWS)
        pk.store(totals.part(0, ROWS, p), x)
    pk.sync()


@pk.function
def keep_totals(totals: Totals, half: Any, dst: Any, column: int) -> None:
    """Store the sums as a column of a state."""
    pk.sync()
    for p in range(parts_of(totals.d)):
        pk.store(dst[:, column][p], pk.load(totals.part(half, ROWS, p)))


def sums_of(totals: Totals | None, half: Any, factors: Any, b: Any, h: Any, i: Any) -> Sums | None:
    """The sums of a chunk, whose keys have factors, or None."""
    if totals is None:
        return None
    rows = None if factors is None else pk.load(factors[b, h, i], cols=CHUNK, spread=pk.per_row)
    return Sums(totals, half, rows)
