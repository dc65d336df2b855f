"""The kernels of the gradients of keys and values and of the feature map of keys, from the last chunk to the first.

R, the gradient of the state that a chunk is part of, has what all chunks but the next have added before: the features
of their queries, with b / z, times the results' gradients, and times -D in a column more. Then of the features of
chunk j, beside what the softmax has of its queries and those of the next chunk,

    dphi_j = R v_j + its last column        dv_j = phi(k_j) R
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.linear.chunk import (
    CHUNK,
    ROWS,
    bounds_of,
    loaded,
    segments_in,
    state_at,
)
from pykittens.kernels.linear.hedgehog.blocks import OfGroup, factor_of, load_two, two
from pykittens.kernels.linear.hedgehog.features import (
    OF_PACKED,
    PARTS,
    REGISTERS,
    apart,
    at_index,
    feature_gradient,
    feature_map,
    near_keys,
    of_sign,
    scores,
    sign_of,
    wide,
)
from pykittens.kernels.linear.sequences import own_registers, sequence_of, sequences_in
from pykittens.kernels.linear.totals import (
    Sums,
    add_keys,
    total_of,
    totals_of,
)


def steps_of(chunks: Any, segments: Any, segment: Any, to_start: bool) -> Any:
    """The chunks of a segment from the last to the first; to_start: and one before the first of all."""
    first, stop = bounds_of(chunks, segments, segment)
    if to_start:
        first = first - (segment == 0).to(pk.int32)
    return pk.range(stop - 1, first - 1, -1)


@pk.function
def with_end(
    state: list[Any], end: Any, own: OfGroup, slot: Any, at: tuple[Any, Any], part: Any
) -> list[Any]:
    """R with the gradient of the state after all, if the chunk is the last that this has, or before all.

    at: the chunk, and n. part: of the columns, the first of which has the sums.
    """
    (i, n), totals = at, own.totals
    if i == pk.maximum(pk.floor_div(n, CHUNK) - PARTS, -1):
        rows = of_sign(end, own.group, totals.rows)
        added = loaded(rows.window(1, 0, own.width), part, 1, own.columns, totals.rows)
        state = [x + y for x, y in zip(state, added, strict=True)]
        if part == 0:
            pk.sync()
            column = pk.load(rows[:, own.width][0], cols=ROWS)
            pk.store(totals.part(slot, ROWS, 0), pk.load(totals.part(slot, ROWS, 0)) + column)
            pk.sync()
    return state


def shift_of(rows: Any, i: Any, a: Any) -> tuple[Any, Any]:
    """The logarithms of z / a of a chunk's rows to base 2, with the largest scores, and which scores these are."""
    largest, index = (pk.load(rows[r, i], cols=CHUNK, spread=pk.per_row) for r in (0, 2))
    z = pk.load(rows[1, i], cols=CHUNK, spread=pk.per_row, fill=pk.inf)
    return largest - pk.log2(a / z), index


@pk.kernel
def hedgehog_key_gradients(  # type: ignore[no-untyped-def]
    Q,
    K,
    V,
    G,
    rows,
    of_k,
    factors,
    dots,
    features,
    of_largest,
    dK,
    dV,
    before,
    end,
    after,
    of_maps,
    scale,
    ends,
    *,
    config,
):
    """The gradients dK and dV, of the results' gradient G, of some columns of V and G a block.

    Of two warpgroups the first has the scores of the next chunk's queries and the features with +, the second those of
    the chunk itself and with -; both then multiply for half of the columns. rows: as `hedgehog_outputs` keeps them.
    dots: those of `hedgehog_dots`. features, of_largest, of_maps: as `hedgehog_query_gradients` has them. before: R at
    the ends of segments, with the sums of part p of the columns in column width + p. end: the gradient of the state
    after all, or None. after: R before all in the form of `before`, if there are no segments.
    """
    segments = segments_in(before)
    batch, heads, n, width = V.shape
    d, count, width = pk.static(Q.shape[3]), pk.static(of_k.shape[2]), pk.static(width)
    half, columns, dtype = wide(d) // PARTS, config.columns * PARTS, V.dtype
    pk.overlap()
    of_k_rows = pk.st(dtype, CHUNK, wide(d))
    of_scores: Any = pk.pipeline(config.stages, q=two(dtype, wide(d)), k=of_k_rows)
    of_results: Any = pk.pipeline(config.stages, two(dtype, columns))
    of_v, of_f = pk.st(dtype, CHUNK, columns), pk.st(dtype, CHUNK, PARTS * ROWS)
    of_values: Any = pk.pipeline(config.stages, v=of_v, f=of_f)
    matrices: Any = pk.pipeline(1, pk.st(dtype, wide(d), ROWS))
    states: Any = pk.pipeline(1, pk.st(dtype, PARTS * ROWS, columns))
    pair: Any = two(dtype, ROWS)
    weights: Any = pk.pipeline(1, pair)
    of_phis: Any = pk.pipeline(1, phi=pair, y=pair)
    held: Any = totals_of(1, count, PARTS)
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(width, columns)
    sequences = sequences_in(ends, batch)
    tasks: Any = pk.persistent((sequences, heads, parts, 1 if segments is None else segments))

    of_groups, of_copies = REGISTERS if ends is None else OF_PACKED
    with pk.producer(registers=of_copies):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            with matrices.fill() as t:
                pk.load_async(t, of_k[h, 0, 0])
            for i in steps_of(here.chunks, segments, segment, after is not None):
                with of_scores.fill() as t:
                    load_two(t.q, here.heads(Q).at(h), [i + 1 - p for p in range(PARTS)], 0)
                    pk.load_async(t.k, here.heads(K)[h, i, 0])
                with of_results.fill() as t:
                    load_two(t, here.heads(G).at(h), [i + 1 - p for p in range(PARTS)], part)
                with of_values.fill() as t:
                    pk.load_async(t.v, here.heads(V)[h, i, part])
                    pk.load_async(t.f, here.heads(features)[h, i + 1, 0])

    with pk.consumers(PARTS, registers=of_groups) as w:
        sign, own = sign_of(w), OfGroup(w, held.of_group(w), width, columns)
        last = near_keys(w, CHUNK)
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            run = part if segments is None else part * segments + segment
            slot: Any = 0
            state = own.start(state_at(before, b, h, segment), part, width + part)
            a: Any = factor_of(factors, 0, h)
            of_map = pk.zeros(pk.f32, ROWS, half)
            with matrices.drain() as matrix:
                for i in steps_of(here.chunks, segments, segment, after is not None):
                    if end is not None:
                        state = with_end(state, end.at(b, h), own, slot, (i, here.n), part)
                    next_dot = pk.load(
                        here.heads(dots, part)[h, i + 1], cols=CHUNK, spread=pk.per_row
                    )
                    with of_scores.drain() as t, of_results.drain() as g:
                        q, of_g = t.q.tiles(CHUNK, wide(d)), g.tiles(CHUNK, columns)
                        half_g = g.tiles(CHUNK, config.columns)
                        with states.fill() as x:
                            pk.store(x.tiles(ROWS, columns)[w, 0], state[0].to(dtype))
                        with states.drain() as of_state:
                            with of_values.drain() as x:
                                sums = Sums(own.totals, slot, -next_dot)
                                f = x.f.tiles(CHUNK, ROWS)[0, w]
                                pk.sync()
                                add_keys(sums, pk.load(f).to(pk.f32), 0)
                                state = [pk.mma_AtB(f, of_g[0, 0], x) for x in apart(state)]
                                phi = feature_map(t.k, matrix, sign, count).to(dtype)
                                of_phi = pk.mma_ABt(x.v, of_state.tiles(ROWS, columns)[w, 0])
                                of_phi = of_phi + total_of(sums, ROWS, 0)
                                with of_phis.fill() as y:
                                    pk.store(y.phi.tiles(CHUNK, ROWS)[w, 0], phi)
                                    of_y = feature_gradient(phi.to(pk.f32), of_phi) * sign
                                    pk.store(y.y.tiles(CHUNK, ROWS)[w, 0], of_y.to(dtype))
                                shift, index = shift_of(here.columns(rows, h), i + 1 - w, a)
                                dot, through = (
                                    pk.load(
                                        here.heads(z, part)[h, i + 1 - w],
                                        cols=CHUNK,
                                        spread=pk.per_row,
                                    )
                                    for z in (dots, of_largest)
                                )
                                s = pk.exp2(scores(q[w, 0], t.k, scale, last) - shift).to(dtype)
                                with weights.fill() as y:
                                    pk.store(y.tiles(CHUNK, ROWS)[w, 0], s)
                                s = s.to(pk.f32) * (pk.mma_ABt(of_g[w, 0], x.v) - dot)
                                s = (s + at_index(index, w, through)) * scale
                                slot = 1 - slot
                            with of_phis.drain() as y:
                                with weights.drain() as x:
                                    dv = pk.zeros(pk.f32, CHUNK, config.columns)
                                    for p in range(PARTS):
                                        of_s, of_phi = (
                                            z.tiles(CHUNK, ROWS)[p, 0] for z in (x, y.phi)
                                        )
                                        dv = pk.mma_AtB(of_s, half_g[p, w], dv)
                                        of_half = of_state.tiles(ROWS, config.columns)[p, w]
                                        dv = pk.mma_AB(of_phi, of_half, dv)
                                pk.store(here.heads(dV)[h, i, part * PARTS + w], dv.to(dV.dtype))
                                with weights.fill() as x:
                                    pk.store(x.tiles(CHUNK, ROWS)[w, 0], s.to(dtype))
                                with weights.drain() as x:
                                    dk, half_k = (
                                        pk.zeros(pk.f32, CHUNK, half),
                                        t.k.tiles(CHUNK, half)[0, w],
                                    )
                                    for p in range(PARTS):
                                        of_s, of_y = (z.tiles(CHUNK, ROWS)[p, 0] for z in (x, y.y))
                                        dk = pk.mma_AtB(of_s, t.q.tiles(CHUNK, half)[p, w], dk)
                                        dk = pk.mma_ABt(of_y, matrix.tiles(half, ROWS)[w, 0], dk)
                                        of_map = pk.mma_AtB(of_y, half_k, of_map)
                    to = here.heads(dK) if len(dK.shape) == 4 else here.heads(dK, part)
                    pk.store(to[h, i, w], dk.to(dK.dtype))
            pk.store(of_maps[b, h, run, 0, w], of_map)
            if after is not None:
                own.keep_sums(slot, own.keep(state, after.at(b, h), part), width + part)


@pk.kernel
def hedgehog_state_gradients(features, G, dots, end, states, ends, *, config, count, to_start):  # type: ignore[no-untyped-def]
    """The state R that each segment would add: that of the chunks after each of its own, and what is the end's."""
    batch, heads, segments, _, all_columns = states.shape
    n, width, dtype = G.shape[2], pk.static(G.shape[3]), G.dtype
    columns = config.columns * PARTS
    pk.overlap()
    of_f, of_g = pk.st(dtype, CHUNK, PARTS * ROWS), pk.st(dtype, CHUNK, columns)
    ring: Any = pk.pipeline(config.stages, f=of_f, g=of_g)
    held: Any = totals_of(1, count, PARTS)
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(width, columns)
    tasks: Any = pk.persistent((batch, heads, parts, segments))

    with pk.producer(registers=own_registers(ends, config)):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            for i in steps_of(here.chunks, segments, segment, to_start):
                with ring.fill() as t:
                    pk.load_async(t.f, here.heads(features)[h, i + 1, 0])
                    pk.load_async(t.g, here.heads(G)[h, i + 1, part])

    with pk.consumers(PARTS) as w:
        own = OfGroup(w, held.of_group(w), width, columns)
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            slot: Any = 0
            state = own.start(None, 0, width)
            for i in steps_of(here.chunks, segments, segment, to_start):
                if end is not None:
                    state = with_end(state, end.at(b, h), own, slot, (i, here.n), part)
                dot = pk.load(here.heads(dots, part)[h, i + 1], cols=CHUNK, spread=pk.per_row)
                with ring.drain() as t:
                    sums, f = Sums(own.totals, slot, -dot), t.f.tiles(CHUNK, ROWS)[0, w]
                    pk.sync()
                    add_keys(sums, pk.load(f).to(pk.f32), 0)
                    state, slot = [pk.mma_AtB(f, t.g, state[0])], 1 - slot
            dst = own.keep(state, states.at(b, h, segment), part)
            own.keep_sums(slot, dst, width + part)
            if part == 0:
                spare = dst.window(1, width + -(-width // columns), all_columns)
                pk.store(spare[0, 0], pk.zeros(pk.f32, ROWS, 16))
