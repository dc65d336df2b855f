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

from contextlib import nullcontext
from math import gcd
from typing import Any

import pykittens as pk
from pykittens.kernels.attention.packed import PackedPlace
from pykittens.kernels.attention.visible import Blocks, Interval, Place

LN2 = 1 / pk.log2e


@pk.kernel
def attention_blocks(Q, K, V, O, *operands, config, form):  # type: ignore[no-untyped-def]
    """O and the log-sum-exp of the scores; persistent blocks, rings of keys and values."""
    given = form.bind(operands)
    visible, tensors, splits = given.visible, given.tensors, given.splits
    batch, heads, n, d = Q.shape
    size, group = form.packed, form.group
    m, d, width, dtype = K.shape[2], pk.static(d), pk.static(V.shape[3]), Q.dtype
    rows, keys, own = config.rows, config.keys, config.rows // config.consumers
    out_cols = config.columns_at_once(width)
    heads, blocks = (K.shape[1], 1) if size else (heads, pk.cdiv(n, rows))
    scale = d**-0.5 if given.scale is None else given.scale
    to_log2 = 1.0 if form.score else scale * pk.log2e  # a score is scaled before its function
    q_ring = pk.pipeline(config.q_stages, pk.st(dtype, rows, d))
    k_ring = pk.pipeline(config.stages, pk.st(dtype, keys, d))
    v_ring = pk.pipeline(config.stages, pk.st(dtype, keys, width))
    out = pk.pipeline(1, pk.st(dtype, rows, out_cols))
    order = pk.row_major if given.section is None else pk.longest_first(given.section)
    extents: tuple[Any, ...] = (batch, heads, blocks)
    extents = extents if splits is None else (*extents, splits)
    tasks: Any = pk.persistent(extents, order=order, tickets=given.tickets)

    def place_of(b: Any, h: Any, row: Any, j: Any) -> Any:
        if size:
            return PackedPlace(b, h, group, size, n, row * own, j, own, keys)
        return Place(b, h, row, j, own, keys)

    def parts(tensor: Any, t: Any, b: Any, h: Any, block: Any, column: Any = 0) -> Any:
        """The parts of a tile of queries or of results, with what they are in a tensor: each head's, or all of it."""
        if not size:
            return [(tensor[b, h, block, column], t)]
        views = enumerate(t.tiles(size, t.cols)[g] for g in range(rows // size))
        return [(tensor[b, h * group + min(g, group - 1), 0, column], x) for g, x in views]

    def seen(b: Any, block: Any, *split: Any) -> tuple[Blocks, Any]:
        """The blocks of keys that a block of queries sees, or a split of them, and the end of the keys in it."""
        end = pk.minimum((block + 1) * rows, n) - 1
        at = visible.at_least_one(visible.blocks(b, block * rows, end, keys, m), keys, m)
        if not split:
            return at, m
        at, is_empty = at.share(*split, splits)
        return at, pk.where(is_empty, 0, m)

    def weights(s: Any, place: Any, kept: Any, highest: Any, l: Any) -> Any:  # noqa: E741
        """A step of the softmax with the scores of a block of keys, of which the rows of a tile see those `kept`."""
        if form.score:
            s = form.score(s * scale, place, *tensors) * pk.log2e  # -inf if that is out of range
        if kept is not None:
            s = kept[0].hide(s, place, kept[1])
        p, *more = pk.online_softmax(s, to_log2, highest, l, to=dtype)
        if given.rate is not None:
            p = place.thinned(p, given.rate, given.seed)
        return p, *more

    def step(
        queries: Any, place: Place, kept: Interval, p: Any, highest: Any, l: Any, o: Any
    ) -> Any:  # noqa: E741
        """The scores of a block of keys and the product of the weights of the block before, both in flight."""
        with pk.in_turn() if config.turns else nullcontext():
            with k_ring.drain() as t:
                s = pk.mma_ABt(queries, t)
            with v_ring.drain() as t:
                o = pk.mma_AB(p, t, o)
        p, highest, l, alpha = weights(s, place, kept, highest, l)  # noqa: E741 # waits for s alone
        return p, highest, l, o * alpha  # and here for o

    def finish(w: Any, place: Any, o: Any, lse: Any) -> None:
        """Store the results of a group's queries."""
        if given.lse is not None:
            place.store_vector(given.lse, lse * LN2)
        o = (o if given.gain is None else o * given.gain).to(dtype)
        for at in range(0, width, out_cols):
            with out.fill() as t:
                pk.store(t.tiles(own, out_cols)[w], o[:, at : at + out_cols])

    with pk.producer():
        for b, h, block, *split in tasks:
            kv, (at, _) = h if size or group < 2 else h // group, seen(b, block, *split)
            with k_ring.fill() as t:
                pk.load_async(t, K[b, kv, at.stop - 1, 0])
            with q_ring.fill() as t:
                for src, part in parts(Q, t, b, h, block):
                    pk.load_async(part, src)
            for j in pk.range(at.stop - 1, at.first, -1):
                with k_ring.fill() as t:
                    pk.load_async(t, K[b, kv, j - 1, 0])
                with v_ring.fill() as t:
                    pk.load_async(t, V[b, kv, j, 0])
            with v_ring.fill() as t:
                pk.load_async(t, V[b, kv, at.first, 0])

    with pk.consumers(config.consumers) as w:
        for b, h, block, *split in tasks:
            (at, stop), row = seen(b, block, *split), block * config.consumers + w
            place = place_of(b, h, row, at.stop - 1)
            kept = visible.loaded(place, stop)
            p, highest, l, o = None, None, None, pk.zeros(pk.f32, own, width)  # noqa: E741
            if given.sinks is not None:  # each is the score of a key whose value is 0
                score = place.of_heads(given.sinks) * (pk.log2e / to_log2)
                highest, l = sink(score, own, split)  # noqa: E741
            with q_ring.drain() as t:
                queries = t.tiles(own, d)[w]
                with k_ring.drain() as t:
                    s = pk.mma_ABt(queries, t)
                p, highest, l, _ = weights(s, place, (kept, stop), highest, l)  # noqa: E741
                walks: Any = []
                if visible.high is not None:
                    walks += [(at.stop - 2, at.partial, (kept, m))]
                walks += [(at.partial - 1, at.whole, None)]  # seen wholly
                if visible.low is not None:
                    walks += [(at.whole - 1, at.first, (Interval(kept.low), None))]
                for last, first, seen_by in walks:
                    for j in pk.range(last, first - 1, -1):
                        here = place_of(b, h, row, j)
                        p, highest, l, o = step(queries, here, seen_by, p, highest, l, o)  # noqa: E741
            with v_ring.drain() as t:
                o = pk.mma_AB(p, t, o)
            o, lse = pk.normalize(o, l), highest * to_log2 + pk.log2(l)
            if splits is not None:
                merge(given, O, place, given.arrivals[b, h, row], split[0], o, lse)
            else:
                finish(w, place, o, lse)

    if splits is None:
        with pk.storer():
            for b, h, block in tasks:
                for part in range(width // out_cols):
                    with out.drain() as t:
                        for dst, x in parts(O, t, b, h, block, part)[: group if size else 1]:
                            pk.store_async(dst, x)


@pk.function
def sink(score: Any, rows: int, split: Any) -> tuple[Any, Any]:
    """The maximum and the sum at first: those of the sinks of the heads, in the first of several splits only."""
    zeros, weight = pk.zeros(pk.f32, rows, spread=pk.per_row), 1.0
    if split:
        score, weight = pk.where(split[0] == 0, score, -pk.inf), (split[0] == 0).to(pk.f32)
    return zeros + score, zeros + weight


@pk.function
def merge(given: Any, O: Any, place: Any, arrivals: Any, split: Any, o: Any, lse: Any) -> None:
    """Leave the part of a split, and let the last that arrives merge all of them, in the order of the splits."""
    rows, width = o.rows, o.cols
    place.store_rows(given.partial.at(split), o)
    place.store_vector(given.partial_lse.at(split), lse)
    before = pk.atomic_add(arrivals, 1)
    if before == given.splits - 1:
        pk.atomic_exchange(arrivals, 0)
        total = pk.zeros(pk.f32, rows, spread=pk.per_row)
        highest = total - pk.inf
        for i in pk.range(given.splits):
            part = place.load_vector(given.partial_lse.at(i))
            top = pk.maximum(highest, part)
            shift = pk.where(top == -pk.inf, 0.0, top)
            total = total * pk.exp2(highest - shift) + pk.exp2(part - shift)
            highest = top
        whole = highest + pk.log2(total)
        if given.lse is not None:
            place.store_vector(given.lse, whole * LN2)
        whole = pk.where(whole == -pk.inf, 0.0, whole)
        cols = gcd(width, 64)  # at a time, for registers
        for column in range(width // cols):
            sums = pk.zeros(pk.f32, rows, cols)
            for i in pk.range(given.splits):
                part = place.load_vector(given.partial_lse.at(i))
                found = place.load_rows(given.partial.at(i), column, cols)
                sums = sums + found * pk.exp2(part - whole)
            sums = sums if given.gain is None else sums * given.gain
            place.store_result(O, column, sums.to(O.dtype))
