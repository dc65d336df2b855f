"""The products of the gradients of linear attention with a gate for each channel that have no gates in them.

With the names of `channel_gradients`, these are D, the products of all rows of dO and V; and dO S^T and V dS'^T. A warp
has the rows of a block. It loads them, and a quarter of what all warps multiply, by the copy engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.kernels.linear.channel_runs import meet, parts_of
from pykittens.kernels.linear.channel_weights import BLOCK, BLOCKS
from pykittens.kernels.linear.sequences import Sequence

COLUMNS = 64  # of values and states that are multiplied at a time


@pk.function
def start(memory: list[Any], places: list[Any], is_loaded: Any) -> None:
    """Start to load tiles."""
    pk.sync()
    is_loaded.expect(*memory)
    for tile, place in zip(memory, places, strict=True):
        pk.load_async(tile, place, signal=is_loaded)


@dataclass(frozen=True)
class Places:
    """Where the tiles of a warp are in tensors.

    g: the head of gates. columns: turns of a head of values, of which `count` are those of `heads` of them. size:
    channels of a piece.
    """

    here: Sequence
    b: Any
    g: Any
    slot: Any
    block: Any
    w: Any
    heads: int
    columns: int
    size: int

    @property
    def count(self) -> int:
        """Turns of all heads of values that share one of gates."""
        return self.heads * self.columns

    @property
    def of_state(self) -> tuple[Any, Any]:
        """Which tile of a turn of a state is that of the warp."""
        return self.w % (self.size // BLOCK), self.w // (self.size // BLOCK)

    def values(self, x: Any, r: Any) -> Any:
        """Rows of values or of dO."""
        return self.here.heads(x)[
            self.g * self.heads + r // self.columns, self.block, r % self.columns
        ]

    def state(self, x: Any, p: Any, r: Any) -> Any:
        """A part of a state."""
        i, j = self.of_state
        at = p * (self.size // BLOCK) + i, r % self.columns * (COLUMNS // self.size) + j
        return x[self.b, self.g * self.heads + r // self.columns, self.slot, at[0], at[1]]


@dataclass(frozen=True)
class Tiles:
    """Shared memory of a warp, and signals of its loads.

    own: queries, keys and gates. values: dO and V. states: S and dS', and then the products with them. result: results
    of products in f32, which may be the memory of gates.
    """

    own: list[Any]
    values: list[Any]
    states: list[Any]
    result: Any
    rows_loaded: Any
    states_loaded: Any
    values_loaded: Any


@dataclass(frozen=True)
class Weights:
    """D of a chunk, and its transpose above, in shared memory.

    pairs: rounded. rest: what that leaves, of the block of a warp. same: the diagonal of that block, in f32.
    """

    pairs: Any
    rest: Any
    same: Any

    @property
    def blocks(self) -> Any:
        """The tiles of two blocks each."""
        return self.pairs.tiles(BLOCK, BLOCK)


@pk.function
def fold(tile: Any, x: Any) -> None:
    """Fill a tile with what is below the diagonal of x, and its transpose above."""
    row, col = pk.row_index(BLOCK), pk.col_index(BLOCK)
    pk.store(tile, x, transposed=True)
    pk.sync()
    above = pk.load(tile)
    pk.sync()
    pk.store(tile, pk.where(row > col, x, above))


@pk.function
def weigh_pairs(
    dO: Any, V: Any, places: Places, tiles: Tiles, all_values: Any, weights: Weights, meets: Any
) -> Any:
    """Fill the memory of weights.

    all_values: V of all blocks. meets: the semaphore of all warps and the number of their turn. Returns the next turn.
    """
    w, (do, v), (all_are_here, turn) = places.w, tiles.values, meets
    found = [pk.zeros(pk.f32, BLOCK, BLOCK) for _ in range(BLOCKS)]
    for r in pk.range(places.count):
        start([do], [places.values(dO, r)], tiles.states_loaded)
        start([v], [places.values(V, r)], tiles.values_loaded)
        tiles.states_loaded.wait(r)
        tiles.values_loaded.wait(r)
        turn = meet(all_are_here, turn)
        for x in range(BLOCKS):
            found[x] = pk.mma_ABt(do, all_values[x], found[x])
        turn = meet(all_are_here, turn)
    own, part, dtype = pk.zeros(pk.f32, BLOCK, BLOCK), weights.blocks, weights.pairs.dtype
    for x in range(BLOCKS):
        own = own + pk.where(w == x, found[x], 0.0)
        if w > x:
            pk.store(part[w, x], found[x].to(dtype))
            pk.store(part[x, w], found[x].to(dtype), transposed=True)
    on_diagonal = pk.row_index(BLOCK) == pk.col_index(BLOCK)
    pk.store(weights.same, pk.row_sum(pk.where(on_diagonal, own, 0.0)))
    for tile, x in zip((part[w, w], weights.rest), parts_of(own, dtype), strict=True):
        fold(tile, x)
    pk.sync()
    return turn


@pk.function
def store_parts(in_parts: list[Any], place: tuple[Any, Any], x: Any) -> None:
    """Store a tile of a state, rounded, and what that leaves."""
    for to, part in zip(in_parts, parts_of(x, in_parts[0].dtype), strict=True):
        pk.store(to.tiles(x.rows, x.cols)[place[0], place[1]], part)


@pk.function
def multiply_states(
    given: tuple[Any, ...], places: Places, tiles: Tiles, p: Any, in_parts: list[Any], meets: Any
) -> tuple[Any, Any]:
    """Leave dO S^T and V dS'^T of a piece of channels in the memory of states.

    given: dO, V, S and dS'. Returns the sums over columns of S dS' for the channels that the warp loads, and the next
    turn.
    """
    dO, V, states, afters = given
    (do, v), (s, ds), (all_are_here, turn) = tiles.values, tiles.states, meets
    count, at = places.count, places.of_state
    of_queries, of_keys = (pk.zeros(pk.f32, BLOCK, places.size) for _ in range(2))
    total = pk.zeros(pk.f32, BLOCK, spread=pk.per_row)
    for r in pk.range(count):
        tiles.states_loaded.wait(count + r)
        state, after = pk.load(s), pk.load(ds)
        total = total + pk.row_sum(state * after)
        turn = meet(all_are_here, turn)
        store_parts(in_parts, at, state)
        turn = meet(all_are_here, turn)
        for x in in_parts:
            of_queries = pk.mma_ABt(do, x, of_queries)
        turn = meet(all_are_here, turn)
        store_parts(in_parts, at, after)
        if r + 1 < count:
            to = [places.state(x, p, r + 1) for x in (states, afters)]
            start([s, ds, do], [*to, places.values(dO, r + 1)], tiles.states_loaded)
        turn = meet(all_are_here, turn)
        tiles.values_loaded.wait(count + r)
        for x in in_parts:
            of_keys = pk.mma_ABt(v, x, of_keys)
        if r + 1 < count:
            start([v], [places.values(V, r + 1)], tiles.values_loaded)
    pk.store(s, of_queries)
    pk.store(ds, of_keys)
    return total, meet(all_are_here, turn)
