"""The forward kernel of attention: O = softmax(scale Q K^T) V.

A block takes some queries and goes through the keys that they see in blocks, from the last to the first. With s = Q K^T
of one block of keys, it keeps for each query the maximum m so far, the sum l of the weights and the sum o of V so
weighted:

    m' = max(m, max s)    alpha = exp((m - m') scale)    p = exp((s - m') scale)
    l' = alpha l + sum p    o' = alpha o + p V        and in the end O = o / l

Source: Dao et al., "FlashAttention", 2022; the product with V of one step runs while the scores of the next are
normalised, as in Shah et al., "FlashAttention-3", 2024.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.attention.visible import Place

LN2 = 1 / pk.log2e


@pk.kernel
def attention_blocks(Q, K, V, O, *operands, config, form):  # type: ignore[no-untyped-def]
    """O and the log-sum-exp of the scores; persistent blocks, rings of keys and values."""
    given = form.bind(operands)
    visible, tensors = given.visible, given.tensors
    batch, heads, n, d = Q.shape
    m, d, width, dtype = K.shape[2], pk.static(d), pk.static(V.shape[3]), Q.dtype
    rows, keys, own = config.rows, config.keys, config.rows // config.consumers
    out_cols = config.columns_at_once(width)
    parts, blocks = width // out_cols, pk.cdiv(n, rows)
    scale = d**-0.5 if given.scale is None else given.scale
    to_log2 = pk.log2e if form.score else scale * pk.log2e  # a score is scaled before its function
    q_ring = pk.pipeline(1, pk.st(dtype, rows, d))
    k_ring = pk.pipeline(config.stages, pk.st(dtype, keys, d))
    v_ring = pk.pipeline(config.stages, pk.st(dtype, keys, width))
    out = pk.pipeline(1, pk.st(dtype, rows, out_cols))
    order = pk.row_major if visible.high is None else pk.longest_first
    tasks: Any = pk.persistent((batch, heads, blocks), order=order)

    def seen(b: Any, block: Any) -> Any:  # the blocks of keys that a block of queries sees
        end = pk.minimum((block + 1) * rows, n) - 1
        found = visible.blocks(b, block * rows, end, keys, m)
        return visible.at_least_one(found, keys, m)

    def weights(s: Any, place: Place, is_masked: bool, highest: Any, l: Any) -> Any:  # noqa: E741
        """A step of the softmax with the scores of a block of keys."""
        if form.score:
            s = form.score(s * scale, place, *tensors)
        if is_masked:
            s = visible.mask(s, place.b, place.row, place.column, m)
        p, *more = pk.online_softmax(s, to_log2, highest, l, to=dtype)
        return p if given.rate is None else pk.where(
            place.kept(given.rate, given.seed), p, 0.0
        ), *more

    def step(
        queries: Any, place: Place, is_masked: bool, p: Any, highest: Any, l: Any, o: Any
    ) -> Any:  # noqa: E741
        """The scores of a block of keys and the product of the weights of the block before, both in flight."""
        with k_ring.drain() as t:
            s = pk.mma_ABt(queries, t)
        with v_ring.drain() as t:
            o = pk.mma_AB(p, t, o)
        p, highest, l, alpha = weights(s, place, is_masked, highest, l)  # noqa: E741 # waits for s alone
        return p, highest, l, o * alpha  # and here for o

    with pk.producer():
        for b, h, block in tasks:
            group, at = h // form.group if form.group > 1 else h, seen(b, block)
            with k_ring.fill() as t:
                pk.load_async(t, K[b, group, at.stop - 1, 0])
            with q_ring.fill() as t:
                pk.load_async(t, Q[b, h, block, 0])
            for j in pk.range(at.stop - 1, at.first, -1):
                with k_ring.fill() as t:
                    pk.load_async(t, K[b, group, j - 1, 0])
                with v_ring.fill() as t:
                    pk.load_async(t, V[b, group, j, 0])
            with v_ring.fill() as t:
                pk.load_async(t, V[b, group, at.first, 0])

    with pk.consumers(config.consumers) as w:
        for b, h, block in tasks:
            at, row = seen(b, block), block * config.consumers + w
            p, highest, l, o = None, None, None, pk.zeros(pk.f32, own, width)  # noqa: E741
            if given.sinks is not None:  # each is the score of a key whose value is 0
                zeros = pk.zeros(pk.f32, own, spread=pk.per_row)
                highest, l = zeros + pk.load(given.sinks[h]) * (pk.log2e / to_log2), zeros + 1.0  # noqa: E741
            with q_ring.drain() as t:
                queries = t.tiles(own, d)[w]
                with k_ring.drain() as t:
                    s = pk.mma_ABt(queries, t)
                place = Place(b, h, row, at.stop - 1, own, keys)
                p, highest, l, _ = weights(s, place, True, highest, l)  # noqa: E741
                if visible.high is not None:
                    for j in pk.range(at.stop - 2, at.partial - 1, -1):
                        place = Place(b, h, row, j, own, keys)
                        p, highest, l, o = step(queries, place, True, p, highest, l, o)  # noqa: E741
                for j in pk.range(at.partial - 1, at.whole - 1, -1):
                    place = Place(b, h, row, j, own, keys)
                    p, highest, l, o = step(queries, place, False, p, highest, l, o)  # noqa: E741
                if visible.low is not None:
                    for j in pk.range(at.whole - 1, at.first - 1, -1):
                        place = Place(b, h, row, j, own, keys)
                        p, highest, l, o = step(queries, place, True, p, highest, l, o)  # noqa: E741
            with v_ring.drain() as t:
                o = pk.mma_AB(p, t, o)
            if given.lse is not None:
                pk.store(given.lse[b, h, row], (highest * to_log2 + pk.log2(l)) * LN2)
            o = pk.normalize(o, l)
            o = (o if given.gain is None else o * given.gain).to(dtype)
            for part in range(parts):
                with out.fill() as t:
                    piece = o[:, part * out_cols : (part + 1) * out_cols]
                    pk.store(t.tiles(own, out_cols)[w], piece)

    with pk.storer():
        for b, h, block in tasks:
            for part in range(parts):
                with out.drain() as t:
                    pk.store_async(O[b, h, block, part], t)
