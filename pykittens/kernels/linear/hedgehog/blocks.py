"""What the blocks of Hedgehog share: rings of two chunks, and the states and sums of their groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.kernels.linear.chunk import CHUNK, ROWS, keep, loaded, zeros
from pykittens.kernels.linear.hedgehog.features import PARTS, of_sign, wide
from pykittens.kernels.linear.scan import after_segments
from pykittens.kernels.linear.totals import Totals, keep_totals, start_totals


def two(dtype: Any, columns: int) -> Any:
    """The tile of two chunks."""
    return pk.st(dtype, PARTS * CHUNK, columns)


def query_ring(dtype: Any, d: int, stages: int) -> Any:
    """The ring of queries, with the keys of two chunks."""
    return pk.pipeline(stages, q=pk.st(dtype, CHUNK, wide(d)), k=two(dtype, wide(d)))


def map_ring(dtype: Any, d: int) -> Any:
    """The ring of both maps."""
    return pk.pipeline(1, q=pk.st(dtype, wide(d), ROWS), k=pk.st(dtype, wide(d), ROWS))


def load_two(tile: Any, x: Any, chunks: list[Any], column: Any) -> None:
    """Load two chunks of a matrix, one under the other."""
    for p, chunk in enumerate(chunks):
        pk.load_async(tile.tiles(CHUNK, tile.cols)[p, 0], x[chunk, column])


@pk.function
def fill_queries(of_scores: Any, q: Any, k: Any, i: Any) -> None:
    """Fill a stage with the queries of a chunk, and the keys of the chunk before and its own."""
    with of_scores.fill() as t:
        pk.load_async(t.q, q[i, 0])
        load_two(t.k, k, [i - 1 + p for p in range(PARTS)], 0)


def factor_of(factors: Any, which: int, h: Any) -> Any:
    """One of the factors of a head, by default 1."""
    return 1.0 if factors is None else pk.load(factors[which, h])


@dataclass(frozen=True)
class OfGroup:
    """What a group has of states: rows of the features of its sign, some columns of the values, and sums in memory."""

    group: Any
    totals: Totals
    width: int
    columns: int

    def start(
        self,
        src: Any,
        part: Any,
        column: Any,
        added: Any = None,
        place: tuple[Any, ...] = (),
        last: Any = None,
    ) -> list[Any]:
        """The state of part of the columns, from memory or 0, with the column of its sums.

        added, place, last: as of `after_segments`; None if segments add nothing.
        """
        state, rows = zeros(1, self.columns), self.totals.rows
        if src is not None:
            src = of_sign(src, self.group, rows)
            state = loaded(src.window(1, 0, self.width), part, 1, self.columns, rows)
        if added is not None:
            added = added.window(3, self.group * rows, (self.group + 1) * rows)
            of_values, dst = added.window(4, 0, self.width), None
            if last is not None:
                last = of_sign(last, self.group, rows)
                dst = last.window(1, 0, self.width)
            state = after_segments(state, of_values, None, place, part, (dst, None))
        start_totals(self.totals, src, column, added, (*place, part), last)
        return state

    def keep(self, state: list[Any], dst: Any, part: Any) -> Any:
        """Store a state; returns its rows, of which the sums have a column."""
        dst = of_sign(dst, self.group, self.totals.rows)
        keep(state, dst.window(1, 0, self.width), part, self.totals.rows)
        return dst

    def keep_sums(self, half: Any, dst: Any, column: Any) -> None:
        """Store the sums in a column of the rows."""
        keep_totals(self.totals, half, dst, column)
