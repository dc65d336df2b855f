"""The features of a query or key, whose products are those of the exponential's series up to the second order.

    1 + s + s^2 / 2 = phi(q) phi(k),    s = scale q k

phi has the products of all pairs of elements, each pair once, then the elements, then 1: d (d + 1) / 2 + d + 1 of them.
Pair r is that of the elements r % d and (r % d + r // d) % d. All factors are those of queries: scale^2, half of it for
a pair of an element with itself, scale, and 1.

Products with matrices of 0 and 1 select the elements of a chunk: a feature is the product of two that are selected.
Source: Arora et al., "Simple linear attention language models balance the recall-throughput tradeoff", 2024.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.kernels.linear.based.sums import Sums, publish_sums
from pykittens.kernels.linear.chunk import CHUNK, ROWS, rows_of

STEP = 32  # features that are found at a time: more take registers beside a state


def feature_count(d: int) -> int:
    """The features of d elements."""
    return d * (d + 1) // 2 + d + 1


def parts_of(d: int) -> int:
    """How many times ROWS the features are."""
    return rows_of(feature_count(d)) // ROWS


def wide(d: int) -> int:
    """The columns of a shared tile of d elements."""
    return -(-d // 16) * 16


@dataclass(frozen=True)
class Features:
    """What finds the features of chunks, STEP at a time, in memory: a tile has ROWS of them.

    first, second: the matrices that select elements. added: what is added to their products for features that are no
    pairs, and then the factors of queries; they would take registers otherwise.
    """

    first: Any
    second: Any
    added: Any
    d: int

    @property
    def pairs(self) -> int:
        return self.d * (self.d + 1) // 2

    @property
    def count(self) -> int:
        """All features, with those that are 0."""
        return parts_of(self.d) * ROWS

    @property
    def alike(self) -> range:
        """The steps whose features are all pairs of two elements, and have one factor."""
        return range(-(-self.d // STEP), max(self.pairs // STEP, 1))

    @property
    def steps(self) -> int:
        """The steps with a feature; those after them, of which there may be one, have none but 0."""
        return -(-feature_count(self.d) // STEP)

    @property
    def others(self) -> list[int]:
        """All other steps."""
        return [x for x in range(self.steps) if x not in self.alike]

    def are_pairs(self, step: Any) -> bool:
        """Whether all features of a step are known to be pairs of two elements."""
        return not isinstance(step, int) or (step + 1) * STEP <= self.pairs

    def vector(self, which: int, length: int, i: int) -> Any:
        """Elements i * length and on of one of the vectors."""
        return self.added.parts(length)[which * self.count // length + i]


def features_of(dtype: Any, d: int) -> Features:
    """The memory of a block for features of d elements."""
    parts, of_parts = parts_of(d), pk.st(dtype, ROWS, wide(d))
    first, second = (pk.shared(of_parts, count=parts) for _ in range(2))
    return Features(first, second, pk.shared(pk.sv(pk.f32, 3 * parts * ROWS)), d)


def factor_of(r: Any, d: int, scale: Any) -> Any:
    """The factors of features r of queries."""
    pairs = d * (d + 1) // 2
    of_pair = pk.where(r < d, 0.5 * (scale * scale), scale * scale)
    return pk.where(r < pairs, of_pair, pk.where(r < pairs + d, scale, 1.0))


@pk.function
def publish_selections(features: Features, scale: Any, keys: Any) -> None:
    """Store what finds features, for products of the group; without a scale, those of keys.

    keys: the features of keys, of which those stay 0 that no step finds.
    """
    d, pairs = features.d, features.pairs
    column = pk.col_index(wide(d))
    for p in range(parts_of(d)):
        r = pk.row_index(ROWS) + p * ROWS
        of_pair, offset = pk.floor_mod(r, d), pk.floor_div(r, d)
        first = pk.where(r < pairs, of_pair, r - pairs)
        second = pk.where(r < pairs, pk.floor_mod(of_pair + offset, d), -1)
        for memory, index in ((features.first[p], first), (features.second[p], second)):
            pk.store(memory, ((column == index) & (column < d)).to(pk.f32).to(memory.dtype))
        r = pk.iota(ROWS) + p * ROWS
        pk.store(features.vector(0, ROWS, p), (r == pairs + d).to(pk.f32))
        pk.store(features.vector(1, ROWS, p), (r >= pairs).to(pk.f32))
        if scale is not None:
            pk.store(features.vector(2, ROWS, p), factor_of(r, d, scale))
    for step in range(features.steps, features.count // STEP):
        tile = keys[step // (ROWS // STEP)]
        zeros = pk.zeros(pk.f32, CHUNK, STEP).to(tile.dtype)
        pk.store(tile.tiles(CHUNK, STEP)[0, step % (ROWS // STEP)], zeros)
    pk.fence_async()
    pk.sync()


def of_step(tiles: Any, step: Any) -> Any:
    """The rows of some features."""
    tile = tiles[step // (ROWS // STEP)]
    return tile.tiles(STEP, tile.cols)[step % (ROWS // STEP), 0]


def selected(x: Any, features: Features, step: Any) -> tuple[Any, Any]:
    """The two factors of some features of the rows of x, without those of queries; a step of a loop has pairs only."""
    first, second = of_step(features.first, step), of_step(features.second, step)
    if features.are_pairs(step):
        return pk.mma_ABt(x, first), pk.mma_ABt(x, second)
    # Products start with what is added, which takes registers of its own otherwise.
    added = [pk.load(features.vector(i, STEP, step), spread=pk.per_column) for i in range(2)]
    start = [
        pk.full(pk.f32, -0.0, CHUNK, STEP) + y for y in added
    ]  # a sum with -0 is no instruction
    return pk.mma_ABt(x, first, start[0]), pk.mma_ABt(x, second, start[1])


def weighed(x: Any, features: Features, step: Any, scale: Any, is_alike: bool) -> Any:
    """Some features of queries with their factors."""
    if is_alike:
        return x * (scale * scale)
    return x * pk.load(features.vector(2, STEP, step), spread=pk.per_column)


def of_queries(q: Any, features: Features, step: Any, scale: Any, is_alike: bool) -> Any:
    """Some features of queries."""
    first, second = selected(q, features, step)
    return weighed(first * second, features, step, scale, is_alike).to(q.dtype)


@pk.function
def publish_keys(k: Any, keys: Any, features: Features, step: Any) -> None:
    """Store some features of a chunk's keys."""
    first, second = selected(k, features, step)
    tile = keys[step // (ROWS // STEP)]
    x = (first * second).to(tile.dtype)
    pk.store(tile.tiles(CHUNK, STEP)[0, step % (ROWS // STEP)], x)


@pk.function
def publish_state(
    memory: Any,
    state: list[Any],
    keys: Any,
    k: Any,
    features: Features,
    sums: tuple[Any, list[Any], Any, Any],
) -> None:
    """Store a state and the features of a chunk's keys, with which the group multiplies next.

    sums: what `publish_sums` takes; nothing without memory for them. Features of positions after the end of the
    sequence are in a state 0 by their values.
    """
    pk.mma_wait()
    pk.sync()
    for p, x in enumerate(state):
        pk.store(memory[p], x.to(memory[p].dtype))
    if sums[0] is not None:
        publish_sums(*sums)
    for step in pk.range(features.alike.start, features.alike.stop):
        publish_keys(k, keys, features, step)
    for other in features.others:
        publish_keys(k, keys, features, other)
    pk.fence_async()
    pk.sync()


@pk.function
def of_state(
    q: Any, states: Any, features: Features, scale: Any, sums: Sums | None
) -> tuple[Any, Any]:
    """The products of the features of queries with a state, and with the sums of the features of keys in parts."""
    o: Any = None  # the first product adds to nothing
    z: Any = None
    for other in features.others:
        x = of_queries(q, features, other, scale, False)
        o = pk.mma_AB(x, of_step(states, other), o)
        if sums is not None:
            z = pk.mma_AB(x, of_step(sums.states, other), z)
    for step in pk.range(features.alike.start, features.alike.stop):
        x = of_queries(q, features, step, scale, True)
        o = pk.mma_AB(x, of_step(states, step), o)
        if sums is not None:
            z = pk.mma_AB(x, of_step(sums.states, step), z)
    return o, z
