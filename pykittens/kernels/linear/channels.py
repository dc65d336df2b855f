"""Kernels of linear attention with a gate for each channel: weights of a chunk, and outputs, chunk after chunk.

Let a_i be the gates of position i, a vector with one of each channel, and a_j..i the product of those from j to i. With
S the state before a chunk from 1 to n

    o_i = (q_i a_1..i) S + sum over j <= i of [sum over channels of q_i k_j a_j+1..i] v_j
    S' = diag(a_1..n) S + sum over j of (k_j a_j+1..n) v_j^T

Quotients of products of gates would overflow, so there are only products. Blocks of 16 positions multiply one another
on tensor cores: with e the end of the block of j, a weight is the product of q_i a_e+1..i and k_j a_j+1..e. Going back
over the blocks before that of i, queries are multiplied with the gates of each. Inside of a block, going back over its
positions j, queries are multiplied with the gates of each in f32, so an element takes two multiplications and no
exponential. In the end queries have the gates of all positions of the chunk up to theirs.

Source: Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training", 2024, section 4.3, for the
two levels of blocks.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.linear.chunk import (
    CHUNK,
    ROWS,
    chunks_of,
    keep,
    loaded,
    matrix_of,
    publish,
    rows_of,
    segments_in,
    state_at,
    with_products,
    zeros,
)
from pykittens.kernels.linear.scan import after_segments
from pykittens.kernels.linear.sequences import (
    is_there,
    own_registers,
    sequence_of,
    sequences_in,
    slots_of,
    unit_at,
)

BLOCK = 16  # positions
BLOCKS = CHUNK // BLOCK
AT_ONCE = 8  # positions that are loaded at a time


def piece_of(d: int) -> int:
    """The channels that a warp takes at a time."""
    return min(-(-d // 16) * 16, 64)


def channels_of(d: int) -> int:
    """The channels of queries and keys with d of them in scratch memory: those past the last are 0."""
    return -(-d // piece_of(d)) * piece_of(d)


@pk.function
def some_rows(x: Any, start: Any, piece: Any, size: int) -> list[Any]:
    """Rows of some positions in f32, 0 past the last."""
    n = x.shape[0]
    some = [pk.load(x[pk.minimum(start + j, n - 1), piece], cols=size) for j in range(AT_ONCE)]
    return [pk.where(start + j < n, row.to(pk.f32), 0.0) for j, row in enumerate(some)]


@pk.function
def some_gates(decay: Any, start: Any, piece: Any, size: int) -> list[Any]:
    """The gates of some positions, 1 past the last."""
    return [pk.exp2(x * pk.log2e) for x in some_rows(decay, start, piece, size)]


def rest_of(x: Any, dtype: Any) -> Any:
    """What rounding leaves of f32, rounded."""
    return (x - x.to(dtype).to(pk.f32)).to(dtype)


@pk.function
def pairs_in_block(q: Any, keys: Any, gates: Any) -> tuple[Any, Any]:
    """The weights of the positions of a block for one another, and queries with the gates up to theirs."""
    size, row, col = q.cols, pk.row_index(BLOCK), pk.col_index(BLOCK)
    seen = pk.zeros(pk.f32, BLOCK, size)
    pairs = pk.zeros(pk.f32, BLOCK, BLOCK)
    for back in pk.range(1, BLOCK // AT_ONCE + 1):
        for i in reversed(range(AT_ONCE)):
            j = BLOCK - back * AT_ONCE + i
            # Queries from position j on, with the gates from j + 1 to theirs.
            seen = pk.where(row == j, q, seen)
            own = pk.row_sum(seen * pk.load(keys.parts(size)[j], spread=pk.per_column))
            pairs = pk.where(col == j, pairs + own, pairs)
            seen = seen * pk.load(gates.parts(size)[j], spread=pk.per_column)
    return pairs, seen


def weighing_bytes(d: int, cached: bool) -> int:
    """Bytes of shared memory of `weigh_channels`."""
    size, wide = piece_of(d), channels_of(d)
    return wide * (2 * CHUNK + 4 * BLOCKS) + 2 * 4 * CHUNK * (wide if cached else size)


@pk.function
def fill_rows(keys: Any, gates: Any, k: Any, logs: Any, place: tuple[Any, Any], to: Any) -> Any:
    """Fill vectors with the keys and the gates of a block; and a tile with keys that have the gates up to its end.

    place: of the block and of the channels. to: the rows of the tile, or None. Returns the products of all gates.
    """
    (block, p), size = place, gates.length // BLOCK
    after = pk.full(pk.f32, 1.0, size)
    for back in pk.range(1, BLOCK // AT_ONCE + 1):
        first = BLOCK - back * AT_ONCE
        at = block * BLOCK + first
        own, rows = some_gates(logs, at, p, size), some_rows(k, at, p, size)
        for j in reversed(range(AT_ONCE)):
            pk.store(keys.parts(size)[first + j], rows[j])
            pk.store(gates.parts(size)[first + j], own[j])
            if to is not None:
                pk.store(to.row(first + j), (rows[j] * after).to(to.dtype))
                after = after * own[j]
    return after


@pk.kernel
def weigh_channels(  # type: ignore[no-untyped-def]
    Q, K, decay, queries, keys, pairs, kept, ends, *, cached=True, exact=()
):
    """Chunks of queries with the gates up to theirs, and of keys with those after theirs; `pairs`, what values weigh;
    and `kept`, the products of all gates of a chunk, each at its slot. A warp takes a block.

    ends: where packed sequences start, and where the last ends. exact: which of "queries" and "keys" have, past all
    chunks, what rounding leaves of them. cached: gates and keys stay in shared memory, where they are not loaded twice.
    """
    batch, heads, n, d = decay.shape
    size, dtype = piece_of(pk.static(d)), Q.dtype
    pieces = channels_of(pk.static(d)) // size
    pk.overlap()
    b, h, i = pk.grid(batch, heads, slots_of(n, ends))
    in_block: Any = pk.shared(pk.st(dtype, CHUNK, size), count=pieces)
    of_blocks: Any = pk.shared(pk.sv(pk.f32, BLOCKS * size), count=pieces)
    own, copies = pk.sv(pk.f32, BLOCK * size), pieces if cached else 1
    own_keys, own_gates = (pk.shared(own, count=BLOCKS * copies) for _ in range(2))
    is_found: Any = pk.semaphore(BLOCKS)
    groups = [h // (heads // x.shape[1]) for x in (Q, K)]

    with pk.warps(BLOCKS) as w:
        slot, (here, i) = i, unit_at(ends, b, i, n)
        if is_there(ends, here, i):
            q, k = (here.heads(x).at(group) for x, group in zip((Q, K), groups, strict=True))
            logs = here.heads(decay).at(h)
            block, rests = i * BLOCKS + w, slots_of(n, ends) * BLOCKS
            to_block = block if ends is None else slot * BLOCKS + w
            for p in pk.range(pieces):
                at = w * copies + (p if cached else 0)
                to = in_block[p].tiles(BLOCK, size)[w, 0]
                product = fill_rows(own_keys[at], own_gates[at], k, logs, (block, p), to)
                pk.store(of_blocks[p].parts(size)[w], product)
            is_found.arrive()
            is_found.wait(0)

            weights = [pk.zeros(pk.f32, BLOCK, BLOCK) for _ in range(BLOCKS)]
            for p in pk.range(pieces):
                at = w * copies + (p if cached else 0)
                rows_of_keys, rows_of_gates = own_keys[at], own_gates[at]
                if not cached:
                    pk.sync()
                    fill_rows(rows_of_keys, rows_of_gates, k, logs, (block, p), None)
                    pk.sync()
                after = pk.full(pk.f32, 1.0, size)
                for later in range(1, BLOCKS):
                    after = after * pk.where(
                        w < later, pk.load(of_blocks[p].parts(size)[later]), 1.0
                    )
                for back in pk.range(1, BLOCK + 1):
                    j = BLOCK - back
                    one = pk.load(rows_of_keys.parts(size)[j]) * after
                    pk.store(keys[b, h, to_block * BLOCK + j, p], one.to(dtype))
                    if "keys" in exact:
                        pk.store(keys[b, h, (rests + to_block) * BLOCK + j, p], rest_of(one, dtype))
                    after = after * pk.load(rows_of_gates.parts(size)[j])
                if w == 0:
                    pk.store(kept[b, h, slot, p], after)
                x = pk.load(q[block, p], rows=BLOCK, cols=size).to(pk.f32)
                found, x = pairs_in_block(x, rows_of_keys, rows_of_gates)
                weights[0] = weights[0] + found
                for past in range(1, BLOCKS):
                    # Before the first block there is none: the products with it instead are left out below.
                    other = pk.maximum(w - past, 0)
                    rows = in_block[p].tiles(BLOCK, size)[other, 0]
                    weights[past] = pk.mma_ABt(x.to(dtype), rows, weights[past])
                    product = pk.load(of_blocks[p].parts(size)[other], spread=pk.per_column)
                    x = x * pk.where(w >= past, product, 1.0)
                # A loop, because registers are few.
                for part in pk.range(1 + ("queries" in exact)):
                    pk.store(queries[b, h, to_block + part * rests, p], x.to(dtype))
                    x = x - x.to(dtype).to(pk.f32)
            for past in range(BLOCKS):
                x = pk.where(w >= past, weights[past], 0.0)
                pk.store(pairs[b, h, to_block, (w - past) % BLOCKS], x.to(dtype))


@pk.kernel
def channel_outputs(  # type: ignore[no-untyped-def]
    queries,
    keys,
    pairs,
    kept,
    V,
    O,
    before,
    after,
    added,
    totals,
    whole,
    states,
    scale,
    unit,
    ends,
    *,
    config,
    exact=False,
    reverse=False,
):
    """O, and the state at the end; or without O, the states alone. Each warpgroup has some columns of the state in its
    registers.

    queries, keys, pairs, kept: what `weigh_channels` finds; if `exact`, the keys with what rounding leaves. In reverse,
    which is the recurrence of gradients, queries and keys have changed places. before: the states at the starts of
    segments of the chunks, on an axis of their own, or at the start of all chunks. after: those at the ends, without
    `before` of segments that begin with 0; `whole` is the logarithm of what is kept of these. Both are `unit` times
    those of the kernel, if that is not None. added, totals: as of `chunk_outputs`. states: those of the kernel before
    each chunk, or None. ends: as of `weigh_channels`.
    """
    segments = segments_in(before, after, added)
    batch, heads, n, width = V.shape
    d, width, dtype = pk.static(keys.shape[3]), pk.static(width), V.dtype
    rows, groups, columns = rows_of(d), config.groups, config.columns
    pk.resident(config.resident)
    pk.overlap()
    of_keys = ("k", "rest") if exact else ("k",)
    of_rows = of_keys if O is None else ("q", *of_keys)
    stage: dict[str, Any] = {name: pk.st(dtype, CHUNK, rows) for name in of_rows}
    if O is not None:
        stage["pairs"] = pk.st(dtype, CHUNK, CHUNK)
    ring: Any = pk.pipeline(
        config.stages, v=pk.st(dtype, CHUNK, columns * groups), kept=pk.sv(pk.f32, rows), **stage
    )
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(width, columns * groups)
    slots = chunks if ends is None else slots_of(n, ends)
    sequences = sequences_in(ends, batch)
    tasks: Any = pk.persistent((sequences, heads, parts, 1 if segments is None else segments))
    if O is not None:
        out: Any = pk.pipeline(1, pk.st(dtype, CHUNK, columns * groups))
        rounded: Any = pk.shared(pk.st(dtype, rows, columns), count=groups)

    with pk.producer(registers=own_registers(ends, config)):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            for i in chunks_of(here.chunks, segments, segment, reverse):
                at, slot = (here.batch, h, heads), here.slot(i)
                with ring.fill() as t:
                    pk.load_async(t.k, matrix_of(keys, *at)[slot, 0])
                    pk.load_async(t.v, here.heads(V)[h, i, part])
                    pk.load_async(t.kept, matrix_of(kept, *at)[slot, 0])
                    if exact:
                        pk.load_async(t.rest, matrix_of(keys, *at)[slots + slot, 0])
                    if O is not None:
                        pk.load_async(t.q, matrix_of(queries, *at)[slot, 0])
                        pk.load_async(t.pairs, matrix_of(pairs, *at)[slot, 0])

    with pk.consumers(groups) as w:
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            state = zeros(rows // ROWS, columns)
            product = [pk.full(pk.f32, 1.0, ROWS, spread=pk.per_row) for _ in state]
            column = part * groups + w
            if before is not None:
                src = state_at(before, b, h, segment)
                state = times(
                    loaded(src, column, len(state), columns), None if unit is None else 1 / unit
                )
            if added is not None:
                place, last = (b, h, segment), (state_at(after, b, h, segment), unit)
                state = after_segments(state, added, totals, place, column, reverse, last)
            for i in chunks_of(here.chunks, segments, segment, reverse):
                if states is not None:
                    keep(state, states.at(here.batch, h, here.slot(i)), column)
                with ring.drain() as t:
                    v = t.v.tiles(CHUNK, columns)[0, w]
                    own = [
                        pk.load(t.kept.parts(ROWS)[r], spread=pk.per_row) for r in range(len(state))
                    ]
                    operand = [x.to(dtype) for x in state]
                    # Registers that products add to must not move while others are in flight.
                    state = [x * y for x, y in zip(state, own, strict=True)]
                    if O is not None:
                        tiles = rounded[w].tiles(ROWS, columns)
                        publish([(tiles[r, 0], x) for r, x in enumerate(operand)])
                        o = pk.mma_AB(t.q, rounded[w])
                        o = (pk.mma_AtB if reverse else pk.mma_AB)(t.pairs, v, o)
                    for x in (t.k, t.rest) if exact else (t.k,):
                        state = with_products(state, x, v)
                    if whole is not None:
                        product = [x * y for x, y in zip(product, own, strict=True)]
                    if O is not None:
                        o = o * scale
                if O is not None:
                    with out.fill() as t:
                        pk.store(t.tiles(CHUNK, columns)[0, w], o.to(dtype))
            if after is not None and added is None:
                keep(times(state, unit), state_at(after, b, h, segment), column)
            if whole is not None and column == 0:
                for r, x in enumerate(product):
                    pk.store(whole[b, h, segment, r], pk.log2(x))

    if O is not None:
        with pk.storer(registers=own_registers(ends, config)):
            for b, h, part, segment in tasks:
                here = sequence_of(ends, b, n, chunks)
                for i in chunks_of(here.chunks, segments, segment, reverse):
                    with out.drain() as t:
                        pk.store_async(here.heads(O)[h, i, part], t)


def times(state: list[Any], unit: Any) -> list[Any]:
    """A state times a number, or itself."""
    return state if unit is None else [x * unit for x in state]
