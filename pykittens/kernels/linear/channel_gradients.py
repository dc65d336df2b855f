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
is rounded once for both gradients.

Inside of 8 positions, half a block, keys are multiplied with the gates up to the queries, one position after another in
f32. Halves and blocks multiply one another, with gates of their own and then those between, from block to block.

Source: Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training", 2024, section 4 and
appendix C, for the two levels of blocks, and for gradients of gates from those of queries and keys.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.linear.channel_weights import BLOCK, BLOCKS, rest_of
from pykittens.kernels.linear.chunk import CHUNK
from pykittens.kernels.linear.sequences import is_there, slots_of, unit_at

EXCHANGE = 8192  # bytes by which warps move tiles and sums, and of semaphores
HALF = 8  # positions of half a block
STEPS = 4  # positions of a block that are written out
COLUMNS = 64  # of values and states that are multiplied at a time


def shared_bytes(size: int, dtype: str) -> int:
    """Bytes of shared memory of a block that takes so many channels at a time, at most."""
    # In f32 and as given, with gates in two parts, and sums in two parts.
    tiles = 3 * 4 + 2 * 2 + 4 + 2 * 2 * 2 + (0 if dtype == "bf16" else 2 * 2 * 2)
    return size * (CHUNK * tiles + 2 * 2 * 2 * COLUMNS + 4 * BLOCKS) + 2 * CHUNK * CHUNK + EXCHANGE


@pk.function
def meet(all_are_here: Any, turn: Any) -> Any:
    """Wait for the other warps; returns the number of the next turn."""
    all_are_here.arrive()
    all_are_here.wait(turn)
    return turn + 1


@pk.function
def fill_block(rows: list[Any], own: list[Any]) -> Any:
    """Fill vectors with the queries, keys and gates of tiles, in f32; returns the product of the gates."""
    size = own[0].cols
    whole = pk.full(pk.f32, 1.0, size)
    for part in pk.range(BLOCK // STEPS):
        for i in range(STEPS):
            j = part * STEPS + i
            x, y, log = (pk.load(tile.row(j)).to(pk.f32) for tile in own)
            gate = pk.exp2(log * pk.log2e)
            whole = whole * gate
            for memory, row in zip(rows, (x, y, gate), strict=True):
                pk.store(memory.parts(size)[j], row)
    pk.sync()
    return whole


@pk.function
def of_half(rows: Any, j: Any, size: int) -> Any:
    """For each half of a block its j-th row, along the rows of that half."""
    some = [pk.load(rows.parts(size)[HALF * x + j], spread=pk.per_column) for x in range(2)]
    return pk.where(pk.row_index(BLOCK) < HALF, some[0], some[1])


@pk.function
def of_queries(below: Any, keys: Any, gates: Any) -> tuple[Any, Any]:
    """The gradient of queries of keys before them in half a block, and the gates from its start to each position.

    below: D of the block, 0 unless the key is before the query.
    """
    size, row = keys.length // BLOCK, pk.row_index(BLOCK) % HALF
    first = pk.row_index(BLOCK) - row
    found, between = pk.zeros(pk.f32, BLOCK, size), pk.full(pk.f32, 1.0, BLOCK, size)
    for back in pk.range(1, HALF // STEPS + 1):
        for i in reversed(range(STEPS)):
            j = HALF - back * STEPS + i
            key, gate = (of_half(x, j, size) for x in (keys, gates))
            found = found + pk.column(below, first + j) * between * key
            between = pk.where(row == j, 1.0, between) * gate
    return found, between


@pk.function
def of_keys(above: Any, queries: Any, gates: Any) -> tuple[Any, Any]:
    """The gradient of keys of queries after them in half a block, and the gates from past each position to its end.

    above: the transpose of D of the block, 0 unless the query is after the key.
    """
    size, row = queries.length // BLOCK, pk.row_index(BLOCK) % HALF
    first = pk.row_index(BLOCK) - row
    found, between = pk.zeros(pk.f32, BLOCK, size), pk.full(pk.f32, 1.0, BLOCK, size)
    for part in pk.range(HALF // STEPS):
        for j in range(STEPS):
            i = part * STEPS + j
            query, gate = (of_half(x, i, size) for x in (queries, gates))
            between = pk.where(row < i, between * gate, 1.0)
            found = found + pk.column(above, first + i) * between * query
    return found, between


@pk.function
def store_parts(memory: list[Any], x: Any, i: Any, j: Any) -> None:
    """Store a tile as part (i, j) of two, rounded, and what that leaves."""
    for to, some in zip(memory, (x.to(memory[0].dtype), rest_of(x, memory[0].dtype)), strict=True):
        pk.store(to.tiles(x.rows, x.cols)[i, j], some)


@pk.function
def with_parts(product: Any, a: Any, memory: list[Any], i: Any, found: Any) -> Any:
    """The sum and the products with block i of a tile in two parts."""
    for x in memory:
        found = product(a, x.tiles(BLOCK, x.cols)[i, 0], found)
    return found


@pk.function
def with_sums(found: Any, memory: list[list[Any]], w: Any) -> Any:
    """For each position, the sum with the rows of all positions before it, and those of another tile from it on."""
    zeros = pk.zeros(pk.f32, BLOCK, BLOCK)
    row, col = pk.row_index(BLOCK), pk.col_index(BLOCK)
    for x in pk.range(w + 1):
        is_before = pk.where(col < row + (w - x) * BLOCK, 1.0, zeros).to(pk.bf16)
        found = with_parts(pk.mma_AB, is_before, memory[0], x, found)
    for x in pk.range(w, BLOCKS):
        is_not_before = pk.where(col >= row + (w - x) * BLOCK, 1.0, zeros).to(pk.bf16)
        found = with_parts(pk.mma_AB, is_not_before, memory[1], x, found)
    return found


@pk.function
def of_halves(given: tuple[Any, ...], across: list[Any], memory: list[Any], w: Any) -> Any:
    """Gradients and gates in half a block become those in a block, by queries and keys with their gates in memory.

    across: D of queries in the second half and keys in the first, and its transpose.
    """
    (dq, to_query, dk, to_end), row = given, pk.row_index(BLOCK)
    nothing = pk.zeros(pk.f32, dq.rows, dq.cols)
    dq = dq + to_query * with_parts(pk.mma_AB, across[0], memory[1], w, nothing)
    dk = dk + to_end * with_parts(pk.mma_AB, across[1], memory[0], w, nothing)
    halves = [pk.row(to_query, HALF * (x + 1) - 1) for x in range(2)]
    to_query = to_query * pk.where(row < HALF, 1.0, halves[0])
    to_end = to_end * pk.where(row < HALF, halves[1], 1.0)
    pk.sync()
    return dq, to_query, dk, to_end


@pk.kernel
def channel_gradients(  # type: ignore[no-untyped-def]
    Q, K, V, dO, decay, states, afters, dQ, dK, d_decay, scale, ends, *, size, resident
):
    """The gradients of q and k of each head of gates, and those of the gates. A warp takes a block of positions.

    states, afters: S and dS' of all chunks, at their slots. Heads of values that share gates are added up. ends: as of
    `weigh_channels`. size: channels at a time.
    """
    batch, heads_of_gates, n, d = decay.shape
    heads, width, dtype = V.shape[1], V.shape[3], V.dtype
    pk.resident(resident)
    pk.overlap()
    b, g, i = pk.grid(batch, heads_of_gates, slots_of(n, ends))
    memory: Any = [pk.shared(pk.sv(pk.f32, BLOCK * size), count=BLOCKS) for _ in range(3)]
    # Queries and keys with gates; and parts of a state and of its gradient.
    in_block: Any = [[pk.shared(pk.st(dtype, CHUNK, size)) for _ in range(2)] for _ in range(2)]
    of_states: Any = [[pk.shared(pk.st(dtype, size, COLUMNS)) for _ in range(2)] for _ in range(2)]
    # Products that are summed along positions, for which f16 has too few exponents; others take the same memory.
    sums: Any = in_block
    if dtype is not pk.bf16:
        sums = [[pk.shared(pk.st(pk.bf16, CHUNK, size)) for _ in range(2)] for _ in range(2)]
    pairs: Any = pk.shared(pk.st(dtype, CHUNK, CHUNK))
    gates: Any = pk.shared(pk.sv(pk.f32, BLOCKS * size))
    whole: Any = pk.shared(pk.sv(pk.f32, BLOCKS * BLOCK))
    all_are_here: Any = pk.semaphore(BLOCKS)
    of_given = [pk.st(x.dtype, BLOCK, size) for x in (Q, K, decay)]
    given: Any = [pk.shared(x, count=BLOCKS) for x in of_given]
    is_loaded: Any = pk.semaphore(1, count=BLOCKS)
    groups = [g // (heads_of_gates // x.shape[1]) for x in (Q, K)]
    shared, turns, down = heads // heads_of_gates, size // BLOCK, COLUMNS // size

    with pk.warps(BLOCKS) as w:
        slot, (here, i) = i, unit_at(ends, b, i, n)
        if is_there(ends, here, i):
            q, k = (here.heads(x).at(group) for x, group in zip((Q, K), groups, strict=True))
            logs = here.heads(decay).at(g)
            block = i * BLOCKS + w
            turn: Any = 0
            weights = [pk.zeros(pk.f32, BLOCK, BLOCK) for _ in range(BLOCKS)]
            for h in pk.range(g * shared, (g + 1) * shared):
                for c in pk.range(pk.cdiv(width, COLUMNS)):
                    do, v = (
                        pk.load(here.heads(x)[h, block, c], rows=BLOCK, cols=COLUMNS)
                        for x in (dO, V)
                    )
                    turn = meet(all_are_here, turn)
                    pk.store(pairs.tiles(BLOCK, COLUMNS)[w, 0], v)
                    turn = meet(all_are_here, turn)
                    for x in range(BLOCKS):
                        rows = pairs.tiles(BLOCK, COLUMNS)[x, 0]
                        weights[x] = pk.mma_ABt(do, rows, weights[x])
            turn = meet(all_are_here, turn)
            own = pk.zeros(pk.f32, BLOCK, BLOCK)
            for x in range(BLOCKS):
                own = own + pk.where(w == x, weights[x], 0.0)
                pk.store(pairs.tiles(BLOCK, BLOCK)[w, x], weights[x].to(dtype))
            row, col = pk.row_index(BLOCK), pk.col_index(BLOCK)
            below, same = pk.where(row > col, own, 0.0), pk.row_sum(pk.where(row == col, own, 0.0))
            above = pk.transpose(below)
            across = [pk.where(row < HALF, 0.0, pk.where(col < HALF, below, 0.0)).to(dtype)]
            across.append(pk.where(row < HALF, pk.where(col < HALF, 0.0, above), 0.0).to(dtype))

            for p in pk.range(pk.cdiv(d, size)):
                own_rows = [x[w] for x in given]
                pk.sync()
                is_loaded[w].expect(*own_rows)
                for to, x in zip(own_rows, (q, k, logs), strict=True):
                    pk.load_async(to, x[block, p], signal=is_loaded[w])
                of_q, of_k = pk.zeros(pk.f32, BLOCK, size), pk.zeros(pk.f32, BLOCK, size)
                both = pk.zeros(pk.f32, BLOCK, spread=pk.per_row)
                for h in pk.range(g * shared, (g + 1) * shared):
                    for c in pk.range(pk.cdiv(width, COLUMNS)):
                        at = p * turns + w % turns, c * down + w // turns
                        s, ds = (
                            pk.load(x[b, h, slot, at[0], at[1]], rows=BLOCK, cols=size)
                            for x in (states, afters)
                        )
                        do, v = (
                            pk.load(here.heads(x)[h, block, c], rows=BLOCK, cols=COLUMNS)
                            for x in (dO, V)
                        )
                        both = both + pk.row_sum(s * ds)
                        turn = meet(all_are_here, turn)
                        store_parts(of_states[0], s, w % turns, w // turns)
                        store_parts(of_states[1], ds, w % turns, w // turns)
                        turn = meet(all_are_here, turn)
                        for x in of_states[0]:
                            of_q = pk.mma_ABt(do, x, of_q)
                        for x in of_states[1]:
                            of_k = pk.mma_ABt(v, x, of_k)
                pk.store(whole.parts(BLOCK)[w], both)

                is_loaded[w].wait(p)
                rows_of = [x[w] for x in memory]
                pk.store(gates.parts(size)[w], fill_block(rows_of, own_rows))

                dq, to_query = of_queries(below, rows_of[1], rows_of[2])
                dk, to_end = of_keys(above, rows_of[0], rows_of[2])
                for half, (x, of) in enumerate(zip(own_rows, (to_query, to_end), strict=False)):
                    store_parts(in_block[half], pk.load(x).to(pk.f32) * of, w, 0)
                pk.sync()
                dq, to_query, dk, to_end = of_halves(
                    (dq, to_query, dk, to_end), across, in_block, w
                )
                for half, (x, of) in enumerate(zip(own_rows, (to_query, to_end), strict=False)):
                    store_parts(in_block[half], pk.load(x).to(pk.f32) * of, w, 0)
                turn = meet(all_are_here, turn)
                for y in pk.range(w):
                    of_q = of_q * pk.load(gates.parts(size)[y], spread=pk.per_column)
                    of_q = with_parts(
                        pk.mma_AB, pairs.tiles(BLOCK, BLOCK)[w, y], in_block[1], y, of_q
                    )
                dq, of_state = dq + of_q * to_query, of_k
                of_k = pk.zeros(pk.f32, BLOCK, size)
                for y in pk.range(BLOCKS - 1, w, -1):
                    gate = pk.load(gates.parts(size)[y], spread=pk.per_column)
                    of_k, of_state = of_k * gate, of_state * gate
                    of_k = with_parts(
                        pk.mma_AtB, pairs.tiles(BLOCK, BLOCK)[y, w], in_block[0], y, of_k
                    )
                dk, of_state = dk + of_k * to_end, of_state * to_end
                query, key = (pk.load(x).to(pk.f32) for x in own_rows[:2])
                turn = meet(all_are_here, turn)
                store_parts(sums[0], of_state * key, w, 0)
                store_parts(sums[1], query * dq - key * dk, w, 0)
                pk.store(here.heads(dQ)[g, block, p], ((dq + same * key) * scale).to(dQ.dtype))
                pk.store(
                    here.heads(dK)[g, block, p],
                    ((dk + of_state + same * query) * scale).to(dK.dtype),
                )
                turn = meet(all_are_here, turn)
                total = pk.zeros(pk.f32, size, spread=pk.per_column)
                for x in range(BLOCKS // turns):
                    total = total + pk.load(whole.parts(size)[x], spread=pk.per_column)
                for x in range(BLOCKS):
                    total = total * pk.load(gates.parts(size)[x], spread=pk.per_column)
                found = with_sums(pk.zeros(pk.f32, BLOCK, size) + total, sums, w)
                pk.store(here.heads(d_decay)[g, block, p], (found * scale).to(decay.dtype))
