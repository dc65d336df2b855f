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

A warp has the rows of a block. States come in turns of 64 columns: each warp rounds a quarter of them for all.

Source: Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training", 2024, section 4 and
appendix C, for gradients of gates from those of queries and keys.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.linear.channel_runs import (
    Rows,
    add_block,
    in_rows,
    parts_of,
    runs_in_block,
    store_operands,
    with_parts,
)
from pykittens.kernels.linear.channel_weights import BLOCK, BLOCKS, around, rows_in
from pykittens.kernels.linear.chunk import CHUNK
from pykittens.kernels.linear.sequences import is_there, slots_of, unit_at

EXCHANGE = 6144  # bytes of sums, and of semaphores
COLUMNS = 64  # of values and states that are multiplied at a time


def shared_bytes(size: int, dtype: str) -> int:
    """Bytes of shared memory of a block that takes so many channels at a time, at most."""
    # Queries, keys and gates; states, which are operands in two parts, and values; and weights.
    of_rows, of_states = CHUNK * size * (2 + 2 + 4), 2 * CHUNK * size * 4
    parts = 2 * 2 * size * COLUMNS + (2 * 2 * size * CHUNK if size != CHUNK else 0)
    return of_rows + of_states + parts + 2 * 2 * CHUNK * COLUMNS + 2 * CHUNK * CHUNK + EXCHANGE


@pk.function
def meet(all_are_here: Any, turn: Any) -> Any:
    """Wait for the other warps; returns the number of the next turn."""
    all_are_here.arrive()
    all_are_here.wait(turn)
    return turn + 1


@pk.function
def start(memory: list[Any], places: list[Any], is_loaded: Any) -> None:
    """Start to load tiles."""
    pk.sync()
    is_loaded.expect(*memory)
    for tile, place in zip(memory, places, strict=True):
        pk.load_async(tile, place, signal=is_loaded)


@pk.function
def store_all(rows: list[Any], memory: Any, to: Any, scale: Any) -> None:
    """Store the rows of a block to a tensor, through memory that a copy of the engine may still read."""
    for j in range(BLOCK):
        pk.store(memory.row(j), (rows[j] * scale).to(memory.dtype))
    pk.fence_async()
    pk.sync()
    pk.store_async(to, memory)


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
    count = shared[1] * columns
    pk.resident(resident)
    pk.overlap()
    b, g, i = pk.grid(batch, heads_of_gates, slots_of(n, ends))

    def tiles(of: Any, cols: int) -> Any:
        return pk.shared(pk.st(of, BLOCK, cols), count=BLOCKS)

    given: Any = [tiles(x.dtype, size) for x in (Q, K, decay)]
    of_values: Any = [tiles(dtype, COLUMNS) for _ in range(2)]
    of_states: Any = [tiles(pk.f32, size) for _ in range(2)]
    in_parts: Any = [pk.shared(pk.st(dtype, size, COLUMNS)) for _ in range(2)]
    operands: Any = in_parts
    if size != CHUNK:
        operands = [pk.shared(pk.st(dtype, CHUNK, size)) for _ in range(2)]
    pairs: Any = pk.shared(pk.st(dtype, CHUNK, CHUNK))
    same, whole = (pk.shared(pk.sv(pk.f32, BLOCKS * BLOCK)) for _ in range(2))
    gates, of_before, of_after = (pk.shared(pk.sv(pk.f32, BLOCKS * size)) for _ in range(3))
    all_are_here: Any = pk.semaphore(BLOCKS)
    rows_loaded, states_loaded = (pk.semaphore(1, count=BLOCKS) for _ in range(2))
    turns, down = size // BLOCK, COLUMNS // size

    with pk.warps(BLOCKS) as w:
        slot, (here, i) = i, unit_at(ends, b, i, n)
        if is_there(ends, here, i):
            of_q, of_k, logs = (
                here.heads(x).at(g // y) for x, y in ((Q, shared[0]), (K, shared[0]), (decay, 1))
            )
            block, own = i * BLOCKS + w, [x[w] for x in given]
            do, v, s, ds = (x[w] for x in (*of_values, *of_states))
            memory = [x.tiles(BLOCK, size)[w, 0] for x in operands]
            turn, loads = 0, 0

            def values(x: Any, r: Any) -> Any:
                return here.heads(x)[g * shared[1] + r // columns, block, r % columns]

            def state(x: Any, p: Any, r: Any) -> Any:
                at = p * turns + w % turns, r % columns * down + w // turns
                return x[b, g * shared[1] + r // columns, slot, at[0], at[1]]

            weights = [pk.zeros(pk.f32, BLOCK, BLOCK) for _ in range(BLOCKS)]
            for r in pk.range(count):
                start([do, v], [values(x, r) for x in (dO, V)], states_loaded[w])
                states_loaded[w].wait(loads)
                loads = loads + 1
                turn = meet(all_are_here, turn)
                for x in range(BLOCKS):
                    weights[x] = pk.mma_ABt(do, of_values[1][x], weights[x])
                turn = meet(all_are_here, turn)
            of_own, part = pk.zeros(pk.f32, BLOCK, BLOCK), pairs.tiles(BLOCK, BLOCK)
            for x in range(BLOCKS):
                of_own = of_own + pk.where(w == x, weights[x], 0.0)
                if w > x:
                    pk.store(part[w, x], weights[x].to(dtype))
                    pk.store(part[x, w], weights[x].to(dtype), transposed=True)
            row, col = pk.row_index(BLOCK), pk.col_index(BLOCK)
            pk.store(same.parts(BLOCK)[w], pk.row_sum(pk.where(row == col, of_own, 0.0)))
            pk.store(part[w, w], of_own.to(dtype), transposed=True)
            pk.sync()
            above = pk.load(part[w, w])
            pk.sync()
            pk.store(part[w, w], pk.where(row > col, of_own.to(dtype), above))
            pk.sync()

            for p in pk.range(pieces):
                pk.store_wait(read=True)
                start(own, [x[block, p] for x in (of_q, of_k, logs)], rows_loaded[w])
                start([ds, do], [state(states, p, 0), values(dO, 0)], states_loaded[w])
                rows_loaded[w].wait(p)
                of_gates = [pk.exp2(x * pk.log2e) for x in rows_in(own[2])]
                one, zero = (pk.full(pk.f32, x, size) for x in (1.0, 0.0))
                rows = Rows(list(of_gates), *([x] * BLOCK for x in (one, zero, zero)))
                gate = runs_in_block(rows, of_gates, own, part[w, w], memory, s)
                pk.store(gates.parts(size)[w], gate)
                store_operands(memory, w % 2 == 1, own, rows, None)
                turn = meet(all_are_here, turn)
                before, after, in_half, all_gates = around(gates, w, size)
                beside = w + 1 - w % 2 * 2
                others = [x.tiles(BLOCK, size)[beside, 0] for x in operands]
                add_block(rows, w % 2 == 1, None, with_parts(part[w, beside], others), s)
                turn = meet(all_are_here, turn)
                store_operands(memory, w >= 2, own, rows, in_half)
                turn = meet(all_are_here, turn)
                product = pk.zeros(pk.f32, BLOCK, size)
                for x in range(2):
                    beside = 2 - w // 2 * 2 + x
                    others = [y.tiles(BLOCK, size)[beside, 0] for y in operands]
                    product = with_parts(part[w, beside], others, product)
                add_block(rows, w >= 2, in_half, product, s)
                # Registers are few.
                pk.sync()
                for j in range(BLOCK):
                    pk.store(s.row(j), rows.after[j] * after)

                product = pk.zeros(pk.f32, BLOCK, size)
                for r in pk.range(count):
                    states_loaded[w].wait(loads)
                    loads = loads + 1
                    own_state = pk.load(ds)
                    turn = meet(all_are_here, turn)
                    for x, y in zip(in_parts, parts_of(own_state, dtype), strict=True):
                        pk.store(x.tiles(BLOCK, size)[w % turns, w // turns], y)
                    turn = meet(all_are_here, turn)
                    for x in in_parts:
                        product = pk.mma_ABt(do, x, product)
                    if r + 1 < count:
                        to = [state(states, p, r + 1), values(dO, r + 1)]
                        start([ds, do], to, states_loaded[w])
                difference = []
                for j, x in enumerate(in_rows(product, ds)):
                    query, key = (pk.load(y.row(j)).to(pk.f32) for y in own[:2])
                    dq = rows.dq[j] + x * (rows.before[j] * before)
                    difference.append(query * dq - key * rows.dk[j])
                    diagonal = pk.load(same.parts(1)[w * BLOCK + j])
                    rows.dq[j] = dq + diagonal * key
                    rows.dk[j] = rows.dk[j] + diagonal * query
                to_end = rows_in(s)
                pk.sync()
                store_all(
                    rows.dq, own[0] if dQ.dtype == dtype else ds, here.heads(dQ)[g, block, p], scale
                )

                pk.store_wait(read=True)
                product = pk.zeros(pk.f32, BLOCK, size)
                total = pk.zeros(pk.f32, BLOCK, spread=pk.per_row)
                for r in pk.range(count):
                    to = [state(states, p, r), state(afters, p, r), values(V, r)]
                    start([s, ds, v], to, states_loaded[w])
                    states_loaded[w].wait(loads)
                    loads = loads + 1
                    own_state = pk.load(ds)
                    total = total + pk.row_sum(pk.load(s) * own_state)
                    turn = meet(all_are_here, turn)
                    for x, y in zip(in_parts, parts_of(own_state, dtype), strict=True):
                        pk.store(x.tiles(BLOCK, size)[w % turns, w // turns], y)
                    turn = meet(all_are_here, turn)
                    for x in in_parts:
                        product = pk.mma_ABt(v, x, product)
                pk.store(whole.parts(BLOCK)[w], total)
                found = in_rows(product, s)
                of_keys, past, ahead = [], zero, zero
                for j in range(BLOCK):
                    x = found[j] * to_end[j]
                    rows.dk[j] = rows.dk[j] + x
                    of_keys.append(x * pk.load(own[1].row(j)).to(pk.f32))
                    past, ahead = past + of_keys[j], ahead + difference[j]
                pk.store(of_before.parts(size)[w], past)
                pk.store(of_after.parts(size)[w], ahead)
                turn = meet(all_are_here, turn)
                gradient = zero
                for x in range(BLOCKS // turns):
                    gradient = gradient + pk.load(whole.parts(size)[x])
                gradient = gradient * all_gates
                for x in range(BLOCKS):
                    gradient = gradient + pk.where(w > x, pk.load(of_before.parts(size)[x]), 0.0)
                    gradient = gradient + pk.where(w <= x, pk.load(of_after.parts(size)[x]), 0.0)
                of_decay = []
                for j in range(BLOCK):
                    of_decay.append(gradient)
                    gradient = gradient + of_keys[j] - difference[j]
                store_all(
                    rows.dk, own[1] if dK.dtype == dtype else s, here.heads(dK)[g, block, p], scale
                )
                store_all(of_decay, own[2], here.heads(d_decay)[g, block, p], scale)
