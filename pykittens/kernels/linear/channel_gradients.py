"""The gradients of linear attention with a gate for each channel, of all chunks at once.

With the names of `channels`, S the state before a chunk, dS' the gradient of that after it, dO that of O, and
D_ij = dO_i v_j, all without the factor of O,

    dq_i = a_1..i (dO_i S^T) + sum over j <= i of D_ij k_j a_j+1..i
    dk_j = a_j+1..n (v_j dS'^T) + sum over i >= j of D_ij q_i a_j+1..i

The gradient of the logarithm of a gate is what all products have that go through it: those of the state before the
chunk and the one after it; of keys before its position and the state after; of queries from its position on and what
is before them, less those pairs that are on one side of it, which are in q_s dq_s and in k_s dk_s. Pairs of a position
with itself are left out, as no gate is between. So nothing is summed beyond a chunk, and nothing cancels that gates
make small. Products of tensor cores have operands in two parts, the second of which is what rounding leaves, and so has
D_ij in a block; that of different blocks is rounded once for both gradients. Pairs of positions are those of
`channel_runs`; sums along positions are of rows.

A warp has the rows of a block. States come in turns of 64 columns: each warp rounds a quarter of them for all. Products
with states are found first and wait in the memory of these, as registers hold gates and gradients of all rows later.

Source: Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training", 2024, section 4 and
appendix C, for gradients of gates from those of queries and keys.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.linear.channel_products import (
    COLUMNS,
    Places,
    Tiles,
    Weights,
    multiply_states,
    start,
    weigh_pairs,
)
from pykittens.kernels.linear.channel_runs import Rows, meet, runs_in_block, runs_of_blocks
from pykittens.kernels.linear.channel_weights import BLOCK, BLOCKS, around, rows_in
from pykittens.kernels.linear.chunk import CHUNK
from pykittens.kernels.linear.sequences import is_there, slots_of, unit_at

EXCHANGE = 6144  # bytes of the second parts of weights, of sums, and of semaphores


def shared_bytes(size: int, has_wide_gates: bool) -> int:
    """Bytes of shared memory of a block of so many channels, at most.

    has_wide_gates: whether gates are f32, so that results take their memory.
    """
    # Queries, keys, gates and results; states, which are operands in two parts, and values; and weights.
    of_rows, of_states = CHUNK * size * (2 + 2 + (4 if has_wide_gates else 6)), 2 * CHUNK * size * 4
    parts = 2 * 2 * size * COLUMNS + (2 * 2 * size * CHUNK if size != CHUNK else 0)
    return of_rows + of_states + parts + 2 * 2 * CHUNK * COLUMNS + 2 * CHUNK * CHUNK + EXCHANGE


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


@pk.function
def store_gates(
    memory: Any, steps: list[Any], sums: tuple[Any, ...], all_gates: Any, w: Any, scale: Any
) -> None:
    """Fill memory with the gradients of gates.

    sums: for each channel that of S dS'; and of each block those of keys and of queries, as of `finish_rows`.
    """
    whole, of_before, of_after = sums
    size, gradient = memory.cols, pk.zeros(pk.f32, memory.cols)
    for x in range(BLOCKS * BLOCK // size):
        gradient = gradient + pk.load(whole.parts(size)[x])
    gradient = gradient * all_gates
    for x in range(BLOCKS):
        gradient = gradient + pk.where(w > x, pk.load(of_before.parts(size)[x]), 0.0)
        gradient = gradient + pk.where(w <= x, pk.load(of_after.parts(size)[x]), 0.0)
    for j in range(BLOCK):
        pk.store(memory.row(j), (gradient * scale).to(memory.dtype))
        gradient = gradient + steps[j]


@pk.kernel
def channel_gradients(  # type: ignore[no-untyped-def]
    Q, K, V, dO, decay, states, afters, dQ, dK, d_decay, scale, ends, *, size, resident, shared
):
    """The gradients of q and k of each head of gates, and those of the gates.

    A block has some channels of a chunk, and a warp a block of positions. states, afters: S and dS' of all chunks, at
    their slots. Heads of values that share gates are added up. ends: as of `weigh_channels`. size: channels of a block.
    shared: heads of gates that share a head of q and k, and heads of values that share one of gates.
    """
    batch, heads_of_gates, n, d = decay.shape
    width, dtype = pk.static(V.shape[3]), V.dtype
    pieces, columns = -(-pk.static(d) // size), -(-width // COLUMNS)
    pk.resident(resident)
    pk.overlap()
    b, g, i = pk.grid(batch, heads_of_gates, slots_of(n, ends) * pieces)

    def tiles_of(of: Any, cols: int) -> Any:
        return pk.shared(pk.st(of, BLOCK, cols), count=BLOCKS)

    # Queries, and then keys.
    given: Any = pk.shared(pk.st(dtype, BLOCK, size), count=2 * BLOCKS)
    of_decay: Any = tiles_of(decay.dtype, size)
    results: Any = of_decay if decay.dtype is pk.f32 else tiles_of(pk.f32, size)
    of_values: Any = [tiles_of(dtype, COLUMNS) for _ in range(2)]
    of_states: Any = [tiles_of(pk.f32, size) for _ in range(2)]
    in_parts: Any = [pk.shared(pk.st(dtype, size, COLUMNS)) for _ in range(2)]
    operands: Any = in_parts
    if size != CHUNK:
        operands = [pk.shared(pk.st(dtype, CHUNK, size)) for _ in range(2)]
    pairs: Any = pk.shared(pk.st(dtype, CHUNK, CHUNK))
    rests: Any = pk.shared(pk.st(dtype, BLOCK, CHUNK))
    same, whole = (pk.shared(pk.sv(pk.f32, BLOCKS * BLOCK)) for _ in range(2))
    gates, of_before, of_after = (pk.shared(pk.sv(pk.f32, BLOCKS * size)) for _ in range(3))
    all_are_here: Any = pk.semaphore(BLOCKS)
    loaded: Any = [pk.semaphore(1, count=BLOCKS) for _ in range(3)]

    with pk.warps(BLOCKS) as w:
        slot, p = i // pieces, i % pieces
        here, i = unit_at(ends, b, slot, n)
        if is_there(ends, here, i):
            of_q, of_k, logs = (
                here.heads(x).at(g // y) for x, y in ((Q, shared[0]), (K, shared[0]), (decay, 1))
            )
            block, own = i * BLOCKS + w, [given[w], given[BLOCKS + w], of_decay[w]]
            places = Places(here, b, g, slot, block, w, shared[1], columns, size)
            values, state_tiles = [x[w] for x in of_values], [x[w] for x in of_states]
            tiles = Tiles(own, values, state_tiles, results[w], *(x[w] for x in loaded))
            turn: Any = 0
            meets, weights = (
                (all_are_here, turn),
                Weights(pairs, rests.tiles(BLOCK, BLOCK)[0, w], same.parts(BLOCK)[w]),
            )
            turn = weigh_pairs(dO, V, places, tiles, of_values[1], weights, meets)
            start(own, [x[block, p] for x in (of_q, of_k, logs)], tiles.rows_loaded)
            to = [places.state(x, p, 0) for x in (states, afters)]
            start([*state_tiles, values[0]], [*to, places.values(dO, 0)], tiles.states_loaded)
            start([values[1]], [places.values(V, 0)], tiles.values_loaded)
            of_all, meets = (dO, V, states, afters), (all_are_here, turn)
            total, turn = multiply_states(of_all, places, tiles, p, in_parts, meets)
            pk.store(whole.parts(BLOCK)[w], total)

            tiles.rows_loaded.wait(0)
            of_gates = [pk.exp2(x * pk.log2e) for x in rows_in(own[2])]
            one = pk.full(pk.f32, 1.0, size)
            rows = Rows(list(of_gates), *([x] * BLOCK for x in (one, None, None)))
            memory = [x.tiles(BLOCK, size)[w, 0] for x in operands]
            of_block = [weights.blocks[w, w], weights.rest]
            gate = runs_in_block(rows, of_gates, own, of_block, memory, tiles.result)
            pk.store(gates.parts(size)[w], gate)
            turn = meet(all_are_here, turn)
            before, after, in_half, all_gates = around(gates, w, size)
            at = w, in_half, all_are_here, turn
            turn = runs_of_blocks(rows, given, pairs, operands, tiles.result, at)

            memory = [
                own[x] if y.dtype == dtype else state_tiles[x] for x, y in enumerate((dQ, dK))
            ]
            steps, past, ahead = finish_rows(
                rows, tiles, (before, after), weights.same, memory, scale
            )
            pk.store(of_before.parts(size)[w], past)
            pk.store(of_after.parts(size)[w], ahead)
            pk.fence_async()
            turn = meet(all_are_here, turn)
            for x, to in zip(memory, (dQ, dK), strict=True):
                pk.store_async(here.heads(to)[g, block, p], x)
            sums = whole, of_before, of_after
            store_gates(own[2], steps, sums, all_gates, w, scale)
            pk.fence_async()
            pk.sync()
            pk.store_async(here.heads(d_decay)[g, block, p], own[2])
