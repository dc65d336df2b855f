"""Query heads of a group as rows of one tile, for few queries.

The heads of a group read the same keys. A tile has a part of `size` rows for each of them, a power of two of parts: row
r is query r % size of head r // size. Parts beyond the heads repeat the last head, and rows beyond the queries are
loaded as zeros; neither is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.errors import LanguageError


@dataclass(frozen=True)
class PackedPlace:
    """Where a tile of several heads lies, in place of a `Place`.

    kv: the head of keys, and of the group. heads: the query heads of a group, each with a part of `size` rows. queries:
    how many each head has. top: the row of the first of the tile's `rows` rows. `h` and `i` are int32 vectors, the head
    and the query of each row.
    """

    b: Any
    kv: Any
    heads: int
    size: int
    queries: Any
    top: Any
    column: Any
    rows: int
    columns: int
    transposed: bool = False

    @property
    def _row(self) -> Any:
        return pk.row_index(self.rows) + self.top

    @property
    def h(self) -> Any:
        """The head of each row."""
        return self._row // self.size + self.kv * self.heads

    @property
    def i(self) -> Any:
        """The query of each row."""
        return self._row % self.size

    @property
    def j(self) -> Any:
        """The numbers of the keys."""
        return pk.col_index(self.columns) + self.column * self.columns

    @property
    def row(self) -> Any:
        """Not known: `by_row` says that a function of scores does not need it."""
        raise LanguageError(
            "place.row: the tile has queries of several heads",
            help="use place.i, place.of_queries(tensor) and place.tile(tensor), or leave out `by_row`",
        )

    def of_heads(self, tensor: Any) -> Any:
        """The elements of a tensor (heads,) for the rows."""
        return pk.gather(tensor, self.h)

    def of_queries(self, tensor: Any) -> Any:
        """The elements of a tensor (batch, queries) for the rows."""
        return pk.gather(tensor[self.b], self.i)

    def of_keys(self, tensor: Any) -> Any:
        """The elements of a tensor (batch, keys), as a vector that combines with the tile."""
        return pk.load(tensor[self.b, self.column], cols=self.columns, spread=pk.per_column)

    @pk.function
    def tile(self, tensor: Any) -> Any:
        """The elements of a tensor (batch, heads, queries, keys) at this place, as a tile; 0 past its ends."""
        found, part = pk.zeros(tensor.dtype, self.rows, self.columns), self._row // self.size
        for g in self.parts:
            rows = tensor.window(2, self.top - g * self.size, tensor.shape[2])
            at = rows[self.b, self.kv * self.heads + g, 0, self.column]
            x = pk.load(at, rows=self.rows, cols=self.columns)
            found = pk.where(part == g, x, found)
        return found

    @pk.function
    def thinned(self, p: Any, rate: Any, seed: Any) -> Any:
        """The weights, of which some are set to 0 at random, with the probability `rate`."""
        part, column = self._row // self.size, self.column * self.columns
        size: Any = {"rows": self.rows, "cols": self.columns, "seed_high": self.b}
        for g in self.parts:
            start, head = self.top - g * self.size, self.kv * self.heads + g
            bits = pk.random_bits(pk.load(seed[0]), start, column, stream=head, **size)
            p = pk.where(part == g, pk.where(pk.uniform(bits) >= rate, p, 0.0), p)
        return p

    @property
    def parts(self) -> Any:
        """The parts of heads that have rows of the tile, as a range."""
        first, count = self.top // self.size, max(self.rows // self.size, 1)
        return pk.range(first, pk.minimum(first + count, self.heads))

    # -- results, whose rows are those of the tile ---------------------------------------------------

    @property
    def _slots(self) -> Any:
        """The number of each row among all queries of a group; -1 for a row without a query."""
        head, i = self._row // self.size, self.i
        return pk.where((head < self.heads) & (i < self.queries), head * self.queries + i, -1)

    def load_vector(self, tensor: Any) -> Any:
        """The elements of a tensor (batch, groups, heads of a group x queries)."""
        return pk.gather(tensor[self.b, self.kv, :], self._slots)

    def store_vector(self, tensor: Any, x: Any) -> None:
        """Write elements of a tensor (batch, groups, heads of a group x queries)."""
        pk.scatter(tensor[self.b, self.kv, :], self._slots, x)

    def load_rows(self, tensor: Any, column: Any, cols: int) -> Any:
        """The rows of a tensor (batch, groups, heads of a group x queries, width), a tile of columns."""
        return pk.gather(tensor.at(self.b, self.kv)[..., column], self._slots, cols=cols)

    def store_rows(self, tensor: Any, x: Any) -> None:
        """Write rows of a tensor (batch, groups, heads of a group x queries, width)."""
        pk.scatter(tensor.at(self.b, self.kv), self._slots, x)

    @pk.function
    def store_result(self, tensor: Any, column: Any, x: Any) -> None:
        """Write rows of a tensor (batch, heads, queries, width), a tile of columns."""
        for g in self.parts:
            rows = tensor.window(2, self.top - g * self.size, self.queries)
            pk.store(rows[self.b, self.kv * self.heads + g, 0, column], x)


def part_of(rows: int, own: int, heads: int) -> int:
    """The rows of each head if this many share a tile, of which a warpgroup has `own`; 0 if none fits.

    A multiple of 8, for the layout of shared memory, and no part lies partly in the rows of a warpgroup.
    """
    size = rows >> (heads - 1).bit_length()
    return size if size % 8 == 0 and 0 in (size % own, own % (size or 1)) else 0
