"""The sums of the features of keys, by which the sums of weights are found: a column more of a state.

Products of the features with a tile of SLICE columns find them; columns of a tile are copies of two parts of a number,
because one number of 16 bits has too few digits, or in f16 is too small, for a sum of many positions. Sums are in f32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.kernels.linear.chunk import CHUNK, ROWS, of_part
from pykittens.kernels.linear.scan import column_after_segments

SLICE = 16  # columns of a product at least, as wide as a tile: half of them for a part
UNIT = 2.0**12  # of the first part; the second is what that leaves


@dataclass(frozen=True)
class Sums:
    """What a block has in memory to find sums; of a chunk, with the place of its keys.

    factors: of keys, in parts. states: the sums up to the chunk, in parts, for products with features of queries.
    vector: these in f32. Memory is None where it is not needed.
    """

    factors: Any
    states: Any = None
    vector: Any = None


def sums_of(dtype: Any) -> Sums:
    """The memory of a block that finds sums."""
    return Sums(pk.shared(pk.st(dtype, CHUNK, SLICE)))


def sums_for_queries(dtype: Any, parts: int) -> Sums:
    """The same, with memory for the sums of weights, of so many times ROWS features."""
    states: Any = pk.shared(pk.st(dtype, ROWS, SLICE), count=parts)
    return Sums(sums_of(dtype).factors, states=states)


def sums_for_gradients(dtype: Any, parts: int) -> Sums:
    """The same, with memory for the gradients of features."""
    vector: Any = pk.shared(pk.sv(pk.f32, parts * ROWS))
    return Sums(sums_of(dtype).factors, vector=vector)


@pk.function
def store_parts(memory: Any, x: Any) -> None:
    """Store the two parts of a number of each row."""
    high = (x * (1.0 / UNIT)).to(memory.dtype).to(pk.f32)
    low = x - high * UNIT
    pk.store(memory, pk.where(pk.col_index(SLICE) < SLICE // 2, high, low).to(memory.dtype))


@pk.function
def joined(x: Any) -> Any:
    """The numbers of rows, of products with their parts."""
    return pk.column(x, 0) * UNIT + pk.column(x, SLICE // 2)


@pk.function
def publish_sums(sums: Any, found: list[Any], factors: Any, left: Any) -> None:
    """Store the sums up to a chunk, and the factors of its keys, 1 if they are None, for products of the group.

    left: the positions from the start of the chunk to the end of the sequence; others have no features.
    """
    factors = pk.zeros(pk.f32, CHUNK, spread=pk.per_row) + 1.0 if factors is None else factors
    store_parts(sums.factors, pk.where(pk.row_index(CHUNK) < left, factors, 0.0))
    for p, x in enumerate(found):
        if sums.states is not None:
            store_parts(sums.states[p], x)
        if sums.vector is not None:
            pk.store(sums.vector.parts(ROWS)[p], x)


@pk.function
def with_features(sums: Any, found: list[Any], keys: Any) -> list[Any]:
    """The sums after a chunk, of the features of its keys; none if none are found."""
    products = [pk.mma_AtB(keys[p], sums.factors) for p in range(len(found))]
    return [x + joined(y) for x, y in zip(found, products, strict=True)]


@pk.function
def started(
    count: int, src: Any, column: int, added: Any = None, place: Any = None, last: Any = None
) -> list[Any]:
    """A column of a state, or 0, and what segments add to it: see `column_after_segments`.

    last: the state of which the last segment stores the column, or None.
    """
    found = list[Any]()
    for p in range(count):
        x = pk.zeros(pk.f32, ROWS, spread=pk.per_row)
        if src is not None:
            part, i = of_part(src, p, ROWS)
            x = pk.load(part[:, column][i], cols=ROWS, spread=pk.per_row)
        if added is not None:
            x = column_after_segments(x, added, place, column, p, last, pk.per_row)
        found.append(x)
    return found


@pk.function
def keep_sums(found: list[Any], dst: Any, column: int, columns: int) -> None:
    """Store the sums as a column of a state of so many columns, and 0 in those past it, which fill up a line."""
    for p, x in enumerate(found):
        part, i = of_part(dst, p, ROWS)
        pk.store(part[:, column][i], x)
        for other in range(column + 1, columns):
            pk.store(part[:, other][i], pk.zeros(pk.f32, ROWS, spread=pk.per_row))
