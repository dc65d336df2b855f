"""The gradients of linear attention with a gate for each channel, of all chunks at once.

With the names of `channels`, S the state before a chunk, dS' the gradient of that after it, dO that of O, and
D_ij = dO_i v_j, all without the factor of O,

    dq_i = a_1..i (dO_i S^T) + sum over j <= i of D_ij k_j a_j+1..i
    dk_j = a_j+1..n (v_j dS'^T) + sum over i >= j of D_ij q_i a_j+1..i

The gradient of the logarithm of a gate is what all products have that go through it: those of the state before the
chunk and the one after it; of keys before its position and the state after; of queries from its position on and what
is before them, less those pairs that are on one side of it, which are in q_s dq_s and in k_s dk_s. Pairs of a position
with itself are left out, as no gate is between. So nothing is summed beyond a chunk, and nothing cancels that gates
make small. Products of tensor cores have operands in two parts, the second of which is what rounding leaves, and D_ij
is rounded once for both gradients. Pairs of positions are those of `channel_runs`; sums along positions are of rows.

A warp has the rows of a block. States come in turns of 64 columns: each warp rounds a quarter of them for all. Products
with states are found first and wait in the memory of these, as registers hold gates and gradients of all rows later.

Source: Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training", 2024, section 4 and
appendix C, for gradients of gates from those of queries and keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.kernels.linear.channel_runs import (
    Rows,
    meet,
    parts_of,
    runs_in_block,
    runs_of_blocks,
)
from pykittens.kernels.linear.channel_weights import BLOCK, BLOCKS, around, rows_in
from pykittens.kernels.linear.chunk import CHUNK
from pykittens.kernels.linear.sequences import Sequence, is_there, slots_of, unit_at

EXCHANGE = 4096  # bytes of sums, and of semaphores
COLUMNS = 64  # of values and states that are multiplied at a time


def shared_bytes(size: int, has_wide_gates: bool) -> int:
    """Bytes of shared memory of a block that takes so many channels at a time, at most.

    has_wide_gates: whether gates are f32, so that results take their memory.
    """
    # Queries, keys, gates and results; states, which are operands in two parts, and values; and weights.
    of_rows, of_states = CHUNK * size * (2 + 2 + (4 if has_wide_gates else 6)), 2 * CHUNK * size * 4
    parts = 2 * 2 * size * COLUMNS + (2 * 2 * size * CHUNK if size != CHUNK else 0)
    return of_rows + of_states + parts + 2 * 2 * CHUNK * COLUMNS + 2 * CHUNK * CHUNK + EXCHANGE


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


@pk.function
def weigh_pairs(
    dO: Any,
    V: Any,
    places: Places,
    tiles: Tiles,
    all_values: Any,
    pairs: Any,
    same: Any,
    meets: Any,
) -> Any:
    """Fill `pairs` with D below its diagonal and the transpose of D above, and `same` with the diagonal.

    all_values: V of all blocks. meets: the semaphore of all warps and the number of their turn. Returns the next turn.
    """
    w, (do, v), (all_are_here, turn) = places.w, tiles.values, meets
    weights = [pk.zeros(pk.f32, BLOCK, BLOCK) for _ in range(BLOCKS)]
    for r in pk.range(places.count):
        start([do], [places.values(dO, r)], tiles.states_loaded)
        start([v], [places.values(V, r)], tiles.values_loaded)
        tiles.states_loaded.wait(r)
        tiles.values_loaded.wait(r)
        turn = meet(all_are_here, turn)
        for x in range(BLOCKS):
            weights[x] = pk.mma_ABt(do, all_values[x], weights[x])
        turn = meet(all_are_here, turn)
    own, part, dtype = pk.zeros(pk.f32, BLOCK, BLOCK), pairs.tiles(BLOCK, BLOCK), pairs.dtype
    for x in range(BLOCKS):
        own = own + pk.where(w == x, weights[x], 0.0)
        if w > x:
            pk.store(part[w, x], weights[x].to(dtype))
            pk.store(part[x, w], weights[x].to(dtype), transposed=True)
    row, col = pk.row_index(BLOCK), pk.col_index(BLOCK)
    pk.store(same.parts(BLOCK)[w], pk.row_sum(pk.where(row == col, own, 0.0)))
    pk.store(part[w, w], own.to(dtype), transposed=True)
    pk.sync()
    above = pk.load(part[w, w])
    pk.sync()
    pk.store(part[w, w], pk.where(row > col, own.to(dtype), above))
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
    count, at, before = places.count, places.of_state, (p + 1) * places.count
    of_queries, of_keys = (pk.zeros(pk.f32, BLOCK, places.size) for _ in range(2))
    total = pk.zeros(pk.f32, BLOCK, spread=pk.per_row)
    for r in pk.range(count):
        tiles.states_loaded.wait(before + r)
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
        tiles.values_loaded.wait(before + r)
        for x in in_parts:
            of_keys = pk.mma_ABt(v, x, of_keys)
        if r + 1 < count:
            start([v], [places.values(V, r + 1)], tiles.values_loaded)
    pk.store(s, of_queries)
    pk.store(ds, of_keys)
    return total, meet(all_are_here, turn)


@pk.function
def finish_rows(
    rows: Rows, tiles: Tiles, outside: tuple[Any, Any], same: Any, memory: list[Any], scale: Any
) -> tuple[Any, ...]:
    """Fill memory with the gradients of queries and keys.

    outside: the gates of the blocks before and after. same: the diagonal of D. Returns what a gradient of a gate has
    more than that of the position before, and the sums of what it has of keys and of queries.
    """
    (query_rows, key_rows, _), (before, after), steps = tiles.own, outside, []
    past, ahead = (pk.zeros(pk.f32, query_rows.cols) for _ in range(2))
    pk.sync()
    for j in range(BLOCK):
        query, key = (pk.load(x.row(j)).to(pk.f32) for x in (query_rows, key_rows))
        of_state, of_after = (pk.load(x.row(j)) for x in tiles.states)
        dq = rows.dq[j] + of_state * (rows.before[j] * before)
        of_after = of_after * (rows.after[j] * after)
        of_key, difference = of_after * key, query * dq - key * rows.dk[j]
        past, ahead = past + of_key, ahead + difference
        steps.append(of_key - difference)
        diagonal = pk.load(same.parts(1)[j])
        found = dq + diagonal * key, rows.dk[j] + of_after + diagonal * query
        for to, x in zip(memory, found, strict=True):
            pk.store(to.row(j), (x * scale).to(to.dtype))
    return steps, past, ahead


@pk.kernel
def channel_gradients(  # type: ignore[no-untyped-def]
    Q, K, V, dO, decay, states, afters, dQ, dK, d_decay, scale, ends, *, size, resident, shared
):
    """The gradients of q and k of each head of gates, and those of the gates. A warp takes a block of positions.

    states, afters: S and dS' of all chunks, at their slots. Heads of values that share gates are added up. ends: as of
    `weigh_channels`. size: channels at a time. shared: heads of gates that share a head of q and k, and heads of values
    that share one of gates.
    """
    batch, heads_of_gates, n, d = decay.shape
    width, dtype = pk.static(V.shape[3]), V.dtype
    pieces, columns = -(-pk.static(d) // size), -(-width // COLUMNS)
    pk.resident(resident)
    pk.overlap()
    b, g, i = pk.grid(batch, heads_of_gates, slots_of(n, ends))

    def tiles_of(of: Any, cols: int) -> Any:
        return pk.shared(pk.st(of, BLOCK, cols), count=BLOCKS)

    given: Any = [tiles_of(x.dtype, size) for x in (Q, K, decay)]
    results: Any = given[2] if decay.dtype is pk.f32 else tiles_of(pk.f32, size)
    of_values: Any = [tiles_of(dtype, COLUMNS) for _ in range(2)]
    of_states: Any = [tiles_of(pk.f32, size) for _ in range(2)]
    in_parts: Any = [pk.shared(pk.st(dtype, size, COLUMNS)) for _ in range(2)]
    operands: Any = in_parts
    if size != CHUNK:
        operands = [pk.shared(pk.st(dtype, CHUNK, size)) for _ in range(2)]
    pairs: Any = pk.shared(pk.st(dtype, CHUNK, CHUNK))
    same, whole = (pk.shared(pk.sv(pk.f32, BLOCKS * BLOCK)) for _ in range(2))
    gates, of_before, of_after = (pk.shared(pk.sv(pk.f32, BLOCKS * size)) for _ in range(3))
    all_are_here: Any = pk.semaphore(BLOCKS)
    loaded: Any = [pk.semaphore(1, count=BLOCKS) for _ in range(3)]

    with pk.warps(BLOCKS) as w:
        slot, (here, i) = i, unit_at(ends, b, i, n)
        if is_there(ends, here, i):
            of_q, of_k, logs = (
                here.heads(x).at(g // y) for x, y in ((Q, shared[0]), (K, shared[0]), (decay, 1))
            )
            block, own = i * BLOCKS + w, [x[w] for x in given]
            places = Places(here, b, g, slot, block, w, shared[1], columns, size)
            values, state_tiles = [x[w] for x in of_values], [x[w] for x in of_states]
            tiles = Tiles(own, values, state_tiles, results[w], *(x[w] for x in loaded))
            turn: Any = 0
            meets = all_are_here, turn
            turn = weigh_pairs(dO, V, places, tiles, of_values[1], pairs, same, meets)
            for p in pk.range(pieces):
                pk.store_wait(read=True)
                start(own, [x[block, p] for x in (of_q, of_k, logs)], tiles.rows_loaded)
                to = [places.state(x, p, 0) for x in (states, afters)]
                start([*state_tiles, values[0]], [*to, places.values(dO, 0)], tiles.states_loaded)
                start([values[1]], [places.values(V, 0)], tiles.values_loaded)
                of_all, meets = (dO, V, states, afters), (all_are_here, turn)
                total, turn = multiply_states(of_all, places, tiles, p, in_parts, meets)
                pk.store(whole.parts(BLOCK)[w], total)

                tiles.rows_loaded.wait(p)
                of_gates = [pk.exp2(x * pk.log2e) for x in rows_in(own[2])]
                one, zero = (pk.full(pk.f32, x, size) for x in (1.0, 0.0))
                rows = Rows(list(of_gates), *([x] * BLOCK for x in (one, zero, zero)))
                memory = [x.tiles(BLOCK, size)[w, 0] for x in operands]
                own_pairs = pairs.tiles(BLOCK, BLOCK)[w, w]
                gate = runs_in_block(rows, of_gates, own, own_pairs, memory, tiles.result)
                pk.store(gates.parts(size)[w], gate)
                turn = meet(all_are_here, turn)
                before, after, in_half, all_gates = around(gates, w, size)
                at = w, in_half, all_are_here, turn
                turn = runs_of_blocks(rows, own, pairs, operands, tiles.result, at)

                memory = [
                    own[x] if y.dtype == dtype else state_tiles[x] for x, y in enumerate((dQ, dK))
                ]
                of_block = same.parts(BLOCK)[w]
                steps, past, ahead = finish_rows(
                    rows, tiles, (before, after), of_block, memory, scale
                )
                pk.store(of_before.parts(size)[w], past)
                pk.store(of_after.parts(size)[w], ahead)
                pk.fence_async()
                turn = meet(all_are_here, turn)
                for x, to in zip(memory, (dQ, dK), strict=True):
                    pk.store_async(here.heads(to)[g, block, p], x)
                gradient = zero
                for x in range(BLOCKS // (size // BLOCK)):
                    gradient = gradient + pk.load(whole.parts(size)[x])
                gradient = gradient * all_gates
                for x in range(BLOCKS):
                    gradient = gradient + pk.where(w > x, pk.load(of_before.parts(size)[x]), 0.0)
                    gradient = gradient + pk.where(w <= x, pk.load(of_after.parts(size)[x]), 0.0)
                for j in range(BLOCK):
                    pk.store(own[2].row(j), (gradient * scale).to(decay.dtype))
                    gradient = gradient + steps[j]
                pk.fence_async()
                pk.sync()
                pk.store_async(here.heads(d_decay)[g, block, p], own[2])
