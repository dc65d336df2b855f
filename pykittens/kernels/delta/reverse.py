"""The gradients of states of the delta rule, one chunk after another from the last to the first.

With the names of `chunk`, U = X E, P = scale exp(c_i - c_j) Q K^T, dO the gradient of O, and dS' that of the state
after a chunk,

    dU = P^T dO + exp(c - c_i) K dS'
    dE = X^T dU
    dS = exp(c) dS' + scale Q^T (exp(c_i) dO) - K^T (beta exp(c_i) dE)

All of them are computed transposed, as states are.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.delta.chunk import (
    COLUMNS,
    along,
    factors_ring,
    fill_factors,
    operand_memory,
    registers_of,
    rounded,
    scaled,
)
from pykittens.kernels.linear.chunk import CHUNK, chunks_of, rows_of, segments_in
from pykittens.kernels.linear.sequences import sequence_of, sequences_in


@pk.kernel
def state_gradients(  # type: ignore[no-untyped-def]
    Q, K, dO, dE, beta, decay, inverses, pairs, after, before, added, states, scale, ends, *, config
):
    """dE, the transposes of the gradients of states after chunks, in the dtype, and that of the first state.

    inverses, pairs: those of `chunk_pairs`. after: the gradient of the state after the last chunk, or the transposes of
    those after segments of the chunks, on an axis of their own. added: gets the transposes of what each segment but the
    first adds to the gradient of a state, f32, if nothing else is to be found. ends: as of `delta_outputs`, with which
    dE has chunks of their own.
    """
    segments, skipped = segments_in(after), 0
    if added is not None:
        segments, skipped = added.shape[2] + 1, 1
    batch, heads, n, width = dO.shape
    d, width, dtype, groups = pk.static(K.shape[3]), pk.static(width), dO.dtype, config.groups
    rows, own = rows_of(d), COLUMNS * groups
    pk.resident(config.resident)
    of_keys, of_pairs = pk.st(dtype, CHUNK, rows), pk.st(dtype, CHUNK, CHUNK)
    stage: dict[str, Any] = {"q": of_keys, "k": of_keys, "x": of_pairs, "p": of_pairs}
    ring: Any = pk.pipeline(config.stages, **stage, do=pk.st(dtype, CHUNK, own))
    factors, memory = factors_ring(config.stages, decay), operand_memory(dtype, rows, config)
    if added is None:
        out: Any = pk.pipeline(1, pk.st(dtype, CHUNK, own))
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(width, own)
    own_segments = 1 if segments is None else segments - skipped
    tasks: Any = pk.persistent((sequences_in(ends, batch), heads, parts, own_segments))

    with pk.producer(registers=registers_of(ends, config)):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            q, k, do = (here.matrix(x, h, heads) for x in (Q, K, dO))
            for i in chunks_of(here.chunks, segments, segment + skipped, True):
                with ring.fill() as t:
                    pk.load_async(t.k, k[i, 0])
                    pk.load_async(t.do, do[i, part])
                    pk.load_async(t.p, pairs[here.batch, h, here.slot(i), 0])
                    pk.load_async(t.x, inverses[here.batch, h, here.slot(i), 0])
                    pk.load_async(t.q, q[i, 0])

    with pk.producer(registers=registers_of(ends, config)):
        for b, h, _, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            for i in chunks_of(here.chunks, segments, segment + skipped, True):
                fill_factors(factors, beta, decay, here, h, i)

    with pk.consumers(groups) as w:
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            state, column = pk.zeros(pk.f32, COLUMNS, rows), part * groups + w
            if after is not None and segments is None:
                state = pk.load(after[b, h, 0, column], rows=COLUMNS, cols=rows, transposed=True)
            elif after is not None:
                state = pk.load(after[b, h, segment, column, 0], rows=COLUMNS, cols=rows)
            for i in chunks_of(here.chunks, segments, segment + skipped, True):
                with ring.drain() as t, factors.drain() as f:
                    if states is not None:
                        pk.store(states[here.batch, h, here.slot(i), column, 0], state.to(dtype))
                    u = pk.mma_ABt(rounded(state, memory, w, dtype), t.k)
                    u = scaled(u, along(f, "suffix", decay))
                    do = pk.load(t.do.tiles(CHUNK, COLUMNS)[0, w], transposed=True)
                    u = pk.mma_AB(do, t.p, u)
                    de = pk.mma_ABt(u.to(dtype), t.x)
                    kept = None if decay is None else pk.load(f.total.parts(1)[0])
                    do = scaled(do.to(pk.f32) * scale, along(f, "prefix", decay)).to(dtype)
                    state = pk.mma_AB(do, t.q, scaled(state, kept))
                    rate = pk.load(f.beta, spread=pk.per_column)
                    known = (-de * scaled(rate, along(f, "prefix", decay))).to(dtype)
                    state = pk.mma_AB(known, t.k, state)
                if added is None:
                    with out.fill() as t:
                        pk.store(t.tiles(CHUNK, COLUMNS)[0, w], de.to(dtype), transposed=True)
            if added is not None:
                pk.store(added[b, h, segment, column, 0], state)
            if before is not None and (segments is None or segment == 0):
                pk.store(before[b, h, 0, column], state, transposed=True)

    if added is None:
        with pk.storer(registers=registers_of(ends, config)):
            for b, h, part, segment in tasks:
                here = sequence_of(ends, b, n, chunks)
                for i in chunks_of(here.chunks, segments, segment, True):
                    with out.drain() as t:
                        pk.store_async(dE[here.batch, h, here.slot(i), part], t)
