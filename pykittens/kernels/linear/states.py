"""What each segment of a sequence adds to a state, so that many blocks share the sequence."""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.linear.chunk import (
    CHUNK,
    ROWS,
    bounds_of,
    chunk_products,
    chunks_of,
    drained_gates,
    fill_gates,
    gates_ring,
    keep,
    rows_of,
    values_in,
    zeros,
)
from pykittens.kernels.linear.sequences import own_registers, sequence_of


@pk.kernel
def segment_states(  # type: ignore[no-untyped-def]
    K,
    V,
    decay,
    rate,
    bias,
    states,
    totals,
    ends,
    *,
    config,
    reverse=False,
    exact=False,
    softplus=False,
):
    """The state that each segment of chunks would end with if it began with 0, and the sum of its decay.

    ends: as of `chunk_outputs`.
    """
    batch, heads, segments, d, width = states.shape
    n, d, width, dtype = V.shape[2], pk.static(d), pk.static(width), V.dtype
    rows, groups, columns = rows_of(d), config.groups, config.columns
    pk.resident(config.resident)
    pk.overlap()
    ring: Any = pk.pipeline(
        config.stages, k=pk.st(dtype, CHUNK, rows), v=pk.st(dtype, CHUNK, columns * groups)
    )
    gates = None if decay is None else gates_ring(config.stages, rate is not None)
    tiles = values_in(decay, exact)
    scaled: Any = [pk.shared(pk.st(dtype, CHUNK, columns), count=groups) for _ in range(tiles)]
    chunks, parts = pk.cdiv(n, CHUNK), pk.cdiv(width, columns * groups)
    tasks: Any = pk.persistent((batch, heads, parts, segments))

    with pk.producer(registers=own_registers(ends, config)):
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            k, v = (here.matrix(x, h, heads) for x in (K, V))
            for i in chunks_of(here.chunks, segments, segment, reverse):
                with ring.fill() as t:
                    pk.load_async(t.k, k[i, 0])
                    pk.load_async(t.v, v[i, part])

    if gates is not None:
        with pk.producer(registers=own_registers(ends, config)):
            for b, h, part, segment in tasks:
                here = sequence_of(ends, b, n, chunks)
                span = bounds_of(here.chunks, segments, segment)
                sums = fill_gates(gates, (decay, rate, bias), softplus, here, h, span, reverse)
                if part == 0:
                    pk.store(totals[b, h, segment], sums)

    with pk.consumers(groups) as w:
        for b, h, part, segment in tasks:
            here = sequence_of(ends, b, n, chunks)
            state = zeros(rows // ROWS, columns)
            for _ in chunks_of(here.chunks, segments, segment, reverse):
                _, part_of, total, *_ = drained_gates(gates, reverse, rate is not None)
                with ring.drain() as t:
                    v, memory = t.v.tiles(CHUNK, columns)[0, w], (None, [x[w] for x in scaled])
                    *_, state = chunk_products(None, t.k, v, state, (part_of, total), memory, False)
            keep(state, states.at(b, h, segment), part * groups + w)


@pk.kernel
def clear(x):  # type: ignore[no-untyped-def]
    """0 in place of all elements."""
    batch, heads, n, width = x.shape
    b, h, i, c = pk.grid(batch, heads, pk.cdiv(n, CHUNK), pk.cdiv(width, ROWS))
    pk.store(x[b, h, i, c], pk.zeros(pk.f32, CHUNK, ROWS).to(x.dtype))
