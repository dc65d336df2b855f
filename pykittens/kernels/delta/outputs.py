"""The outputs of the delta rule, one chunk after another of some columns of the values."""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.delta.chunk import (
    COLUMNS,
    added_values,
    along,
    factors_ring,
    fill_factors,
    next_state,
    operand_memory,
    registers_of,
    rounded,
    scaled,
)
from pykittens.kernels.linear.chunk import CHUNK, chunks_of, rows_of, segments_in
from pykittens.kernels.linear.sequences import sequence_of, sequences_in


@pk.kernel
def delta_outputs(  # type: ignore[no-untyped-def]
    Q, K, V, O, beta, decay, inverses, pairs, before, after, states, scale, ends, *, config
):
    """O, and the state at the end; each warpgroup has the transpose of some columns of the state in its registers.

    inverses, pairs: those of `chunk_pairs`. before: the state at the start, or the transposes of those at the starts of
    segments of the chunks, on an axis of their own. Q, pairs: without them O gets the values U that are added to the
    state, in chunks of their own if `ends` is given. states: gets the transposes of the states at the starts of chunks,
    in the dtype. ends: where packed sequences start, and where the last ends.
    """
    segments = segments_in(before)
    batch, heads, n, width = (O if ends is None else V).shape
    d, width, dtype, groups = pk.static(K.shape[3]), pk.static(width), V.dtype, config.groups
    rows, own = rows_of(d), COLUMNS * groups
    pk.resident(config.resident)
    pk.overlap()
    of_keys, of_pairs = pk.st(dtype, CHUNK, rows), pk.st(dtype, CHUNK, CHUNK)
    stage: dict[str, Any] = {"k": of_keys, "v": pk.st(dtype, CHUNK, own), "x": of_pairs}
    stage |= {} if Q is None else {"q": of_keys, "p": of_pairs}
    ring: Any = pk.pipeline(config.stages, **stage)
    factors = factors_ring(config.stages, decay)
    out: Any = pk.pipeline(1, pk.st(O.dtype, CHUNK, own))
    memory = operand_memory(dtype, rows, config)
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(width, own)
    sequences = sequences_in(ends, batch)
    tasks: Any = pk.persistent((sequences, heads, parts, 1 if segments is None else segments))

    with pk.producer(registers=registers_of(ends, config)):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            k, v = (here.matrix(x, h, heads) for x in (K, V))
            for i in chunks_of(here.chunks, segments, segment, False):
                with ring.fill() as t:
                    pk.load_async(t.k, k[i, 0])
                    pk.load_async(t.v, v[i, part])
                    pk.load_async(t.x, inverses[here.batch, h, here.slot(i), 0])
                    if Q is not None:
                        pk.load_async(t.q, here.matrix(Q, h, heads)[i, 0])
                        pk.load_async(t.p, pairs[here.batch, h, here.slot(i), 0])

    with pk.producer(registers=registers_of(ends, config)):
        for b, h, _, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            for i in chunks_of(here.chunks, segments, segment, False):
                fill_factors(factors, beta, decay, here, h, i)

    with pk.consumers(groups) as w:
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            state, column = pk.zeros(pk.f32, COLUMNS, rows), part * groups + w
            if before is not None and segments is None:
                state = pk.load(before[b, h, 0, column], rows=COLUMNS, cols=rows, transposed=True)
            elif before is not None:
                state = pk.load(before[b, h, segment, column, 0], rows=COLUMNS, cols=rows)
            for i in chunks_of(here.chunks, segments, segment, False):
                with ring.drain() as t, factors.drain() as f:
                    of_state = rounded(state, memory, w, dtype)
                    seen = pk.mma_ABt(of_state, t.k)
                    o = None if Q is None else pk.mma_ABt(of_state, t.q)
                    if states is not None:
                        pk.store(states[here.batch, h, here.slot(i), column, 0], state.to(dtype))
                    u = added_values(t.v.tiles(CHUNK, COLUMNS)[0, w], seen, t.x, f, decay)
                    if o is not None:
                        o = scaled(o * scale, along(f, "prefix", decay))
                        o = pk.mma_ABt(u.to(dtype), t.p, o)
                    state = next_state(state, t.k, u, f, decay)
                with out.fill() as t:
                    found = u if o is None else o
                    pk.store(t.tiles(CHUNK, COLUMNS)[0, w], found.to(O.dtype), transposed=True)
            if after is not None and (segments is None or segment == segments - 1):
                pk.store(after[b, h, 0, column], state, transposed=True)

    with pk.storer(registers=registers_of(ends, config)):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            for i in chunks_of(here.chunks, segments, segment, False):
                at = (
                    O[here.batch, h, here.slot(i), part] if Q is None else here.heads(O)[h, i, part]
                )
                with out.drain() as t:
                    pk.store_async(at, t)
