"""Which keys a query sees: an interval for each query, whose ends do not fall from one query to the next.

A sliding window and a causal mask are intervals at a fixed distance; the documents of a packed batch are intervals by
position. The keys of a query give the queries of a key, which the gradients of keys and values go through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import pykittens as pk


@dataclass(frozen=True)
class Place:
    """Where a tile of scores lies, for functions of scores: batch `b`, head `h`, and its queries and keys.

    The tile is queries x keys; in the gradients of keys and values it is keys x queries, `transposed`. Of tiles of
    this size, it is number `row` from the top and number `column` from the left of the matrix of queries x keys.
    """

    b: Any
    h: Any
    row: Any
    column: Any
    rows: int
    columns: int
    transposed: bool = False

    @property
    def i(self) -> Any:
        """The numbers of the queries, an int32 vector that combines with the tile."""
        index = pk.col_index if self.transposed else pk.row_index
        return index(self.rows) + self.row * self.rows

    @property
    def j(self) -> Any:
        """The numbers of the keys, an int32 vector that combines with the tile."""
        index = pk.row_index if self.transposed else pk.col_index
        return index(self.columns) + self.column * self.columns

    def tile(self, tensor: Any) -> Any:
        """The elements of a tensor (batch, heads, queries, keys) at this place, as a tile; 0 past its ends."""
        shape = (self.columns, self.rows) if self.transposed else (self.rows, self.columns)
        part = tensor[self.b, self.h, self.row, self.column]
        return pk.load(part, rows=shape[0], cols=shape[1], transposed=self.transposed)

    def of_heads(self, tensor: Any) -> Any:
        """The element of a tensor (heads,) for the tile's head."""
        return pk.load(tensor[self.h])

    def of_queries(self, tensor: Any) -> Any:
        """The elements of a tensor (batch, queries), as a vector that combines with the tile."""
        spread = pk.per_column if self.transposed else pk.per_row
        return pk.load(tensor[self.b, self.row], cols=self.rows, spread=spread)

    def of_keys(self, tensor: Any) -> Any:
        """The elements of a tensor (batch, keys), as a vector that combines with the tile."""
        spread = pk.per_row if self.transposed else pk.per_column
        return pk.load(tensor[self.b, self.column], cols=self.columns, spread=spread)

    def kept(self, rate: Any, seed: Any) -> Any:
        """True where a weight is not dropped, which happens at random with the probability `rate`."""
        start = self.row * self.rows, self.column * self.columns
        size = {"rows": self.rows, "cols": self.columns}
        bits = pk.random_bits(pk.load(seed[0]), *start, stream=self.h, seed_high=self.b, **size)
        return pk.uniform(pk.transpose(bits) if self.transposed else bits) >= rate

    def thinned(self, p: Any, rate: Any, seed: Any) -> Any:
        """The weights, of which some are set to 0 at random, with the probability `rate`."""
        return pk.where(self.kept(rate, seed), p, 0.0)

    # -- results of the forward pass, whose rows are those of the tile -------------------------------

    def load_vector(self, tensor: Any) -> Any:
        """The elements of a tensor (batch, heads, queries)."""
        part = tensor[self.b, self.h, self.row]
        return pk.load(part, cols=self.rows, spread=pk.per_row)

    def store_vector(self, tensor: Any, x: Any) -> None:
        """Write elements of a tensor (batch, heads, queries)."""
        pk.store(tensor[self.b, self.h, self.row], x)

    def load_rows(self, tensor: Any, column: Any, cols: int) -> Any:
        """The rows of a tensor (batch, heads, queries, width), a tile of columns."""
        return pk.load(tensor[self.b, self.h, self.row, column], rows=self.rows, cols=cols)

    def store_rows(self, tensor: Any, x: Any) -> None:
        """Write rows of a tensor (batch, heads, queries, width)."""
        self.store_result(tensor, 0, x)

    def store_result(self, tensor: Any, column: Any, x: Any) -> None:
        """Write rows of a tensor (batch, heads, queries, width), a tile of columns."""
        pk.store(tensor[self.b, self.h, self.row, column], x)


class Blocks(NamedTuple):
    """Blocks of positions from `first` to before `stop`; those from `whole` to before `partial` are seen wholly."""

    first: Any
    whole: Any
    partial: Any
    stop: Any

    def share(self, i: Any, count: Any) -> tuple[Blocks, Any]:
        """Part i of `count`, with a block also if it is empty, and whether it is; `stop - 1` is not seen wholly."""
        n = self.stop - self.first
        first, end = self.first + n * i // count, self.first + n * (i + 1) // count
        stop = pk.maximum(end, first + 1)
        partial = pk.maximum(pk.minimum(self.partial, stop - 1), first)
        whole = pk.minimum(pk.maximum(self.whole, first), partial)
        return Blocks(first, whole, partial, stop), first == end


class Interval(NamedTuple):
    """What positions of one side see of the other: from `low` to before `high`.

    A bound is None; a number, so that position i has the bound i + number; or an int32 tensor (batch, length) of the
    bounds themselves, which do not fall along the length. The other side has positions from 0 to before its length.
    """

    low: Any = None
    high: Any = None

    def first(self, b: Any, i: Any) -> Any:
        """The first position that position i sees; it may be past the last that there is."""
        return pk.maximum(_bound(self.low, b, i), 0)

    def stop(self, b: Any, i: Any, length: Any) -> Any:
        """The position after the last that position i sees, from 0 to `length`."""
        if self.high is None:
            return length
        return pk.maximum(pk.minimum(_bound(self.high, b, i), length), 0)

    def blocks(self, b: Any, start: Any, end: Any, size: int, length: Any) -> Blocks:
        """The blocks of `size` positions that positions from `start` to `end` see; the last may end past `length`.

        A block is among those that see a position exactly if the position's block is among those that the block sees.
        """
        count = pk.cdiv(length, size)
        first: Any = 0
        if self.low is not None:
            at = self.first(b, start)
            first = pk.where(at < length, at // size, count)  # the last block may end past `length`
        whole, partial, stop = first, count, count
        if self.high is not None:
            stop = pk.maximum(pk.cdiv(self.stop(b, end, length), size), first)
            partial = pk.maximum(pk.minimum(self.stop(b, start, length) // size, stop), first)
        if self.low is not None:
            # Not below `first` for tensors whose bounds fall either, else roles would not agree.
            whole = pk.maximum(pk.minimum(pk.cdiv(self.first(b, end), size), partial), first)
        return Blocks(first, whole, partial, stop)

    def at_least_one(self, blocks: Blocks, size: int, length: Any) -> Blocks:
        """The same with a block also if none is seen; the last is not among those that are seen wholly."""
        first, whole, partial, stop = blocks
        if self.low is not None:
            first = pk.minimum(first, pk.cdiv(length, size) - 1)
        if self.high is None:
            partial = stop - 1
        else:
            stop = pk.maximum(stop, first + 1)
            partial = pk.maximum(pk.minimum(partial, stop - 1), first)
        return Blocks(
            first, first if self.low is None else pk.minimum(whole, partial), partial, stop
        )

    def turned(self) -> Interval:
        """What the positions of the other side see of this side, for bounds that are numbers."""
        low, high = (None if x is None else 1 - x for x in (self.high, self.low))
        return Interval(low, high)

    def mask(self, s: Any, b: Any, row: Any, column: Any, length: Any) -> Any:
        """The tile with -inf where a row does not see a column; `row` and `column` count tiles of its size."""
        place = Place(b, None, row, column, s.rows, s.cols)
        return self.loaded(place, length).hide(s, place, length)

    def loaded(self, place: Any, length: Any) -> Interval:
        """The same for the rows of a tile at a place, with vectors of their bounds for bounds in tensors."""
        low, high = (
            place.of_queries(bound) if isinstance(bound, pk.Global) else bound for bound in self
        )
        return Interval(low, pk.minimum(high, length) if isinstance(high, pk.RegVector) else high)

    def hide(self, s: Any, place: Any, length: Any) -> Any:
        """The tile with -inf where a row does not see a column, by the bounds of its rows, or past `length`."""
        first, stop, causal = self.low, length, {}
        if first is not None and not isinstance(first, pk.RegVector):
            first = place.i + first
        if isinstance(self.high, pk.RegVector):
            stop = self.high
        elif self.high is not None and isinstance(place, Place):
            causal = {
                "causal": True,
                "offset": self.high - 1,
            }  # needs fewer registers than a vector
        elif self.high is not None:
            stop = pk.minimum(place.i + self.high, length)
        row = place.row * place.rows if causal else 0
        return pk.mask(s, row, place.column * s.cols, stop, first=first, **causal)


def _bound(bound: Any, b: Any, i: Any) -> Any:
    return pk.load(bound[b, i]) if isinstance(bound, pk.Global) else i + bound


# -- the host --------------------------------------------------------------------------------------


def band(left: int | None, right: int | None, shift: int = 0) -> Interval:
    """Query i sees the keys from i + shift - left to i + shift + right; None: all on that side."""
    low = None if left is None else shift - left
    return Interval(low, None if right is None else shift + right + 1)


def packed(queries: Sequence[int], keys: Sequence[int], left: Any, right: Any) -> Any:
    """The bounds of the keys of each query, int32 (2, queries), for sequences packed one after another.

    queries, keys: where each sequence starts and where the last ends. left, right: as in `band`, with the last query of
    a sequence at its last key.
    """
    lows, highs = [], []
    for q, q_end, k, k_end in zip(queries, queries[1:], keys, keys[1:], strict=False):
        position = np.arange(k_end - (q_end - q), k_end)
        low = np.full(q_end - q, k) if left is None else position - left
        high = np.full(q_end - q, k_end) if right is None else position + right + 1
        lows.append(np.clip(low, k, k_end))
        highs.append(np.clip(high, k, k_end))
    if not lows:
        return np.zeros((2, 0), np.int32)
    return np.stack([np.concatenate(lows), np.concatenate(highs)]).astype(np.int32)


def turned(low: Any, high: Any, keys: int) -> tuple[Any, Any]:
    """The bounds of the queries of each key, (batch, keys), by those of the keys of each query, (batch, queries).

    The bounds that are given must not fall along the queries.
    """
    at = np.arange(keys)
    first, stop = (
        np.stack([np.searchsorted(bound, at, "right") for bound in np.asarray(bounds)])
        for bounds in (high, low)
    )
    return first.astype(np.int32), stop.astype(np.int32)
