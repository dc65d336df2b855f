"""Kernels of linear attention with a gate for each channel: outputs, chunk after chunk.

Let a_i be the gates of position i, a vector with one of each channel, and a_j..i the product of those from j to i. With
S the state before a chunk from 1 to n

    o_i = (q_i a_1..i) S + sum over j <= i of [sum over channels of q_i k_j a_j+1..i] v_j
    S' = diag(a_1..n) S + sum over j of (k_j a_j+1..n) v_j^T

where the sums over channels are those of `channel_weights`.

Source: Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training", 2024, section 4.
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
    own_registers,
    sequence_of,
    sequences_in,
    slots_of,
)


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
                state = after_segments(state, added, totals, place, column, last)
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
