"""The backward kernels of attention: the gradients of q, k and v.

    P = exp(S - lse)    dP = dO V^T    delta = row sums of dO O    dS = P (dP - delta)
    dV = P^T dO    dK = dS^T Q scale    dQ = dS K scale

A block takes some keys, with the gradients of keys and values in registers, and goes through the queries that see them.
It has the transposes of the tiles of scores, so that P^T and dS^T are operands in registers. dQ is added up in f32 in
memory; with `flags`, the blocks of keys add to a tile one after another, and each flag counts those that have.

Source: Dao, "FlashAttention-2", 2023; the order of the products of a step is that of Shah et al., "FlashAttention-3",
2024.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import pykittens as pk
from pykittens.kernels.attention.config import TURNS
from pykittens.kernels.attention.derivative import derivative
from pykittens.kernels.attention.turns import Beside
from pykittens.kernels.attention.visible import Blocks, Place

ROWS = 64  # of a block of the kernels around the main one
LEAST_STEP = 32  # queries of a step; so many have a flag


@pk.kernel
def prepare_gradients(O, dO, lse, lse2, delta, sums, *flags, d):  # type: ignore[no-untyped-def]
    """delta; lse2, the log-sum-exp of base 2, inf for a query that sees no key or is past the last; sums, flags: 0."""
    batch, heads, whole = lse2.shape
    width = pk.static(O.shape[3])
    b, h, i = pk.grid(batch, heads, pk.cdiv(whole, ROWS))
    o, do = (pk.load(x[b, h, i, 0], rows=ROWS, cols=width).to(pk.f32) for x in (O, dO))
    pk.store(delta[b, h, i], pk.row_sum(o * do))
    of_e = pk.load(lse[b, h, i], cols=ROWS, fill=-pk.inf, spread=pk.per_row)
    pk.store(lse2[b, h, i], pk.where(of_e == -pk.inf, pk.inf, of_e * pk.log2e))
    pk.store(sums[b * heads + h, i], pk.zeros(pk.f32, ROWS * d, spread=pk.lane_order))
    for of_turns in flags:
        pk.store(of_turns[b, h, i], pk.zeros(pk.int32, ROWS // LEAST_STEP))


@pk.kernel
def finish_gradients(sums, dQ, scale, *, config, d):  # type: ignore[no-untyped-def]
    """dQ = sums scale, in the dtype of dQ; a tile of a step, whose elements are in lane order, a block."""
    batch, heads, n, _ = dQ.shape
    rows, cols = config.queries, config.dq_cols(d)
    parts = d // cols
    b, h, i, part = pk.grid(batch, heads, pk.cdiv(n, rows), parts)
    x = pk.load(sums[b * heads + h, i * parts + part], cols=rows * cols, spread=pk.lane_order)
    x = (x * scale).to(dQ.dtype)
    sides = (cols, rows) if config.turned else (rows, cols)
    pk.store(dQ[b, h, i, part], pk.from_lane_order(x, *sides), transposed=config.turned)


@pk.kernel
def sink_gradients(lse, delta, sinks, d_sinks):  # type: ignore[no-untyped-def]
    """The gradient of each head's sink: - sum of exp(sink - lse) delta over batches and queries."""
    batch, heads, n = lse.shape
    (h,) = pk.grid(heads)
    sink, sums = pk.load(sinks[h]), pk.zeros(pk.f32, 1024)
    for b in pk.range(batch):
        for i in pk.range(pk.cdiv(n, 1024)):
            of_e = pk.load(lse[b, h, i], cols=1024, fill=pk.inf)
            weights = pk.where(of_e == -pk.inf, 0.0, pk.exp(sink - of_e))  # a sink may be -inf, too
            sums = sums - weights * pk.load(delta[b, h, i], cols=1024)
    pk.store(d_sinks[h], pk.sum(sums))


@pk.kernel
def gradient_blocks(Q, K, V, dO, lse2, delta, sums, dK, dV, *operands, config, form):  # type: ignore[no-untyped-def]
    """dK and dV, and dQ without its scale added to sums, in lane order; persistent blocks, rings of queries."""
    given = form.bind(operands)
    seen_by, tensors, flags = given.queries, given.tensors, given.flags
    batch, n, kv_heads, m = Q.shape[0], Q.shape[2], K.shape[1], K.shape[2]
    scale = pk.static(Q.shape[3]) ** -0.5 if given.scale is None else given.scale
    to_log2 = pk.log2e if form.score else scale * pk.log2e
    d, width = config.widths(pk.static(Q.shape[3]), pk.static(V.shape[3]))
    rows, keys, dtype = config.queries, config.keys, Q.dtype
    groups, share = config.consumers, config.share
    own, piece = keys * share // groups, config.piece(d, width)
    dq_cols = config.dq_cols(d)
    dq_parts = d // groups // dq_cols
    kv: Any = pk.pipeline(1, k=pk.st(dtype, keys, d), v=pk.st(dtype, keys, width))
    of_queries: Any = {"q": pk.st(dtype, rows, d), "do": pk.st(dtype, rows, width)}
    of_queries |= {name: pk.sv(pk.f32, rows) for name in ("lse", "delta")}
    q_ring: Any = pk.pipeline(config.stages, **of_queries)
    ds_ring: Any = pk.pipeline(config.ds_stages, pk.st(dtype, keys, rows * share))
    dq_ring: Any = pk.pipeline(1, pk.sv(pk.f32, rows * d))
    turns: Any = pk.pipeline(TURNS, pk.sv(pk.int32, 16)) if flags is not None else None
    out: Any = pk.pipeline(1, pk.st(dtype, keys, piece * share))
    is_spread = seen_by.low is None and seen_by.high is None  # all blocks of keys see all queries
    section = 1 if is_spread else given.section
    steps, key_blocks = pk.cdiv(n, rows), pk.cdiv(m, keys)
    tasks: Any = pk.persistent((batch, kv_heads, key_blocks), order=pk.longest_first(section))

    def task(b: Any, h: Any, index: Any, slot: Any) -> tuple[Any, Blocks, Beside]:
        """A block of keys, those that most queries see first, the blocks of queries that see it, none of them wholly if
        the keys end in it, and the blocks of keys beside it. slot: the number of the task in its round.
        """
        j, head, width = key_blocks - 1 - index, b * kv_heads + h, 1
        end = pk.minimum((j + 1) * keys, m)
        first, whole, partial, stop = seen_by.blocks(b, j * keys, end - 1, rows, n)
        whole = pk.where(end < (j + 1) * keys, stop, whole)
        if not is_spread:
            width = pk.minimum(section, batch * kv_heads - head // section * section)
        others = Beside.of(j, slot, tasks.blocks, width, key_blocks)
        if is_spread:
            others = others.spread(j, steps)
        return j, Blocks(first, whole, pk.maximum(whole, partial), stop), others

    def block(step: Any, j: Any, others: Beside) -> Any:
        """The block of queries of a step; blocks of keys that run at a time begin spread over all queries."""
        if not is_spread:
            return step
        i = (j * steps // key_blocks if flags is None else others.start(j, steps)) + step
        return i - pk.where(i < steps, 0, steps)

    def heads_of(h: Any) -> Any:
        return pk.range(h * form.group, (h + 1) * form.group) if form.group > 1 else [h]

    with pk.producer(registers=config.copy_registers):
        slot = tasks.block  # in its round; rounds alternate in direction
        for b, h, index in tasks:
            j, at, others = task(b, h, index, slot)
            with kv.fill() as t:
                pk.load_async(t.k, K[b, h, j, 0])
                pk.load_async(t.v, V[b, h, j, 0])
            for head in heads_of(h):
                for number in pk.range(at.first, at.stop):
                    i = block(number, j, others)
                    with q_ring.fill() as t:
                        pk.load_async(t.q, Q[b, head, i, 0])
                        pk.load_async(t.lse, lse2[b, head, i])
                        pk.load_async(t.do, dO[b, head, i, 0])
                        pk.load_async(t.delta, delta[b, head, i])
            slot = tasks.blocks - 1 - slot

    def weights(s: Any, place: Place, is_masked: bool, lse: Any) -> tuple[Any, Any]:
        """The transposed weights of a step, and the derivative of the scores by the scaled products."""
        slope: Any = 1.0
        if form.score:
            scores = s * scale
            s = form.score(scores, place, *tensors)
            slope = (
                form.gradient(scores, place, *tensors) if form.gradient else derivative(s, scores)
            )
            slope = 0.0 if slope is None else slope
        s = s * to_log2
        if is_masked:
            if not is_spread:  # the weights of queries past the last are 0
                s = seen_by.mask(s, place.b, place.column, place.row, n)
            s = pk.lower_fill(s, m - place.column * own, -pk.inf)
        of_query = pk.load(lse, spread=pk.per_column)
        p = pk.exp2(s - of_query)
        if form.score:  # scores and slopes that nothing takes may be anything
            p = pk.where(of_query < pk.inf, p, 0.0)
            slope = slope if isinstance(slope, float) else pk.where(p > 0.0, slope, 0.0)
        return p, slope

    def part_of_dq(k: Any, ds: Any, at: Any) -> Any:
        """Some columns of a step's part of dQ, or of its transpose."""
        part = k.tiles(keys, dq_cols)[0, at]
        return pk.mma_AtB(part, ds) if config.turned else pk.mma_AtB(ds, part)

    def step(t: Any, w: Any, place: Place, is_masked: bool, dk: Any, dv: Any) -> tuple[Any, Any]:
        """The gradients after a block of queries."""
        k, v = (x if config.by_columns else x.tiles(own, x.cols)[w] for x in (t.k, t.v))
        with q_ring.drain() as q:
            s, dp = pk.mma_ABt(k, q.q), pk.mma_ABt(v, q.do)
            p, slope = weights(s, place, is_masked, q.lse)
            kept = p
            if given.rate is not None:
                is_kept = place.kept(given.rate, given.seed)
                kept, dp = pk.where(is_kept, p, 0.0), pk.where(is_kept, dp * given.gain, 0.0)
            ds = p * (dp - pk.load(q.delta, spread=pk.per_column))
            ds = (ds if isinstance(slope, float) and slope == 1 else ds * slope).to(dtype)
            with ds_ring.fill() as x:
                pk.store(x.tiles(own, rows)[(0, w) if config.by_columns else (w, 0)], ds)
            do = q.do.tiles(rows, width // groups)[0, w] if config.by_columns else q.do
            dv = pk.mma_AB(kept.to(dtype), do, dv)
            with ds_ring.drain() as x:
                of_keys = x.tiles(own, rows)[0, w] if config.by_columns else x
                dq = part_of_dq(t.k, of_keys, w * dq_parts)
                dk = pk.mma_AB(
                    ds, q.q.tiles(rows, d // groups)[0, w] if config.by_columns else q.q, dk
                )
                with dq_ring.fill() as y:
                    for at in range(dq_parts):
                        dq = part_of_dq(t.k, of_keys, w * dq_parts + at) if at else dq
                        part = y.parts(rows * dq_cols)[w * dq_parts + at]
                        pk.store(part, pk.in_lane_order(dq))
        return dk, dv

    with pk.consumers(groups) as w:
        slot = tasks.block
        for b, h, index in tasks:
            j, at, others = task(b, h, index, slot)
            column = j if config.by_columns else j * groups + w
            dk, dv = pk.zeros(pk.f32, own, d // share), pk.zeros(pk.f32, own, width // share)
            with kv.drain() as t:
                for head in heads_of(h):
                    ends = at if seen_by.high is not None else at[:-1]
                    for part, (first, stop) in enumerate(pairwise(ends)):
                        for number in pk.range(first, stop):
                            i = block(number, j, others)
                            place = Place(b, head, i, column, rows, own, transposed=True)
                            dk, dv = step(t, w, place, part != 1, dk, dv)  # 1 is seen wholly
            dv = dv if given.gain is None else dv * given.gain
            for x in (dv.to(dtype), (dk * scale).to(dtype)):
                for at_column in range(0, x.cols, piece):
                    with out.fill() as t:
                        tile = t.tiles(own, piece)[(0, w) if config.by_columns else (w, 0)]
                        pk.store(tile, x[:, at_column : at_column + piece])
            slot = tasks.blocks - 1 - slot

    def wait_for_turns(b: Any, head: Any, j: Any, at: Blocks, others: Beside) -> None:
        """Let the tiles of a head be added to dQ in turn among those of the blocks of keys that see the queries."""
        i, turn, rest = others.first_step(j, steps) if is_spread else (at.first, 0, 0)
        for _ in pk.range(at.first, at.stop):
            if not is_spread:
                of = given.visible.blocks(b, i * rows, pk.minimum((i + 1) * rows, n) - 1, keys, m)
                turn = others.turn(j, of)
            with turns.fill():
                pk.wait(flags[b, head, i], turn)
            if is_spread:
                i, turn, rest = others.next_step(i, turn, rest, steps)
            else:
                i = i + 1

    if flags is not None:
        # A role of its own, so that the way of a flag to this block costs the storer nothing.
        with pk.producer(registers=config.copy_registers):
            slot = tasks.block
            for b, h, index in tasks:
                j, at, others = task(b, h, index, slot)
                for head in heads_of(h):
                    wait_for_turns(b, head, j, at, others)
                slot = tasks.blocks - 1 - slot

    with pk.storer(registers=config.copy_registers):
        slot = tasks.block
        for b, h, index in tasks:
            j, at, others = task(b, h, index, slot)
            for head in heads_of(h):
                for number in pk.range(at.first, at.stop):
                    i = block(number, j, others)
                    with dq_ring.drain() as t, nullcontext() if flags is None else turns.drain():
                        pk.store_async(sums[b * Q.shape[1] + head, i], t, op="add")
                    if flags is not None:
                        pk.store_wait()
                        pk.signal(flags[b, head, i], 1, op="add")
            for to, columns in ((dV, width // share), (dK, d // share)):
                for x in range(columns // piece):
                    with out.drain() as t:
                        for g in range(share):
                            place = to[b, h, j, g * (columns // piece) + x]
                            pk.store_async(place, t.tiles(keys, piece)[0, g] if share > 1 else t)
            slot = tasks.blocks - 1 - slot
