"""Kernels of a user with annotations, which type checkers accept."""

# pyright: strict

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import pykittens as pk
from pykittens.ops.map import FLOAT, MAP
from pykittens.templates.lcsf import lcsf


@pk.kernel
def softmax(x: pk.Global, y: pk.Global) -> None:
    pk.require(x.shape == y.shape, "x and y must have one shape")
    (block,) = pk.grid(pk.cdiv(x.rows, 8))
    n = pk.static(x.cols)
    with pk.warps(8) as w:
        t = pk.load(x[block * 8 + w], cols=n, fill=-pk.inf).to(pk.f32)
        t = pk.exp(t - pk.max(t))
        pk.store(y[block * 8 + w], (t / pk.sum(t)).to(y.dtype))


@pk.kernel
def matvec(W: pk.Global, x: pk.Global, y: pk.Global) -> None:
    (row,) = pk.grid(pk.cdiv(W.rows, 16))
    pages = pk.pipeline(4, pk.st(pk.bf16, 16, 256))
    vectors = pk.pipeline(2, a=pk.sv(pk.f32, 256))
    sums = pk.pipeline(2, pk.sv(pk.f32, 64))
    w = pk.homes(pk.warps(4), fetchers=2)
    acc = pk.zeros(pk.f32, 16, 64)
    for k in pk.range(pk.cdiv(W.cols, 256)):
        own = pk.load(pages.stream(W[row, k]).tiles(16, 64)[0, w])
        part = pk.load(vectors.fetch(a=x[k]).a.parts(64)[w], spread=pk.per_column)
        acc = pk.fma(own.to(pk.f32), part, acc)
    pk.store(y[row], sums.join(pk.row_sum(acc)))


@pk.kernel
def matmul(A: pk.Global, B: pk.Global, C: pk.Global, bias: pk.Global | None) -> None:
    pk.require(A.cols == B.cols and C.shape == (A.rows, B.rows), "A is m x k, B n x k, C m x n")
    inputs = pk.pipeline(3, a=pk.st(pk.bf16, 128, 64), b=pk.st(pk.bf16, 256, 64))
    outputs = pk.pipeline(1, pk.st(pk.bf16, 128, 256))
    tasks = pk.persistent(C.tiles(128, 256), order=pk.supergroup(8))
    steps = pk.cdiv(A.cols, 64)
    with pk.producer():
        for row, col in tasks:
            for k in pk.range(steps):
                with inputs.fill() as s:
                    pk.load_async(s.a, A[row, k])
                    pk.load_async(s.b, B[col, k])
    with pk.consumers(2) as w:
        for row, col in tasks:
            acc = pk.zeros(pk.f32, 64, 256)
            for k in pk.range(steps):
                with inputs.drain() as s:
                    acc = pk.mma_ABt(s.a.tiles(64, 64)[w], s.b, acc)
            if bias is not None:
                acc = acc + pk.load(bias[col], cols=256, spread=pk.per_column)
            with outputs.fill() as t:
                pk.store(t.tiles(64, 256)[w], acc.to(pk.bf16))
    with pk.storer():
        for row, col in tasks:
            with outputs.drain() as t:
                pk.store_async(C[row, col], t)


def scores(queries: pk.SharedTile, keys: pk.SharedTile, scale: float) -> pk.RegTile:
    """A helper of a kernel: its parameters are handles."""
    return pk.mma_ABt(queries, keys) * scale


@pk.function
def at_most(t: pk.RegTile, limit: pk.Scalar) -> pk.RegTile:
    if limit > 0:
        t = pk.minimum(t, limit)
    return t


@pk.kernel(warps=4)
def attention(Q: pk.Global, K: pk.Global, V: pk.Global, O: pk.Global, *, causal: bool) -> None:
    batch, heads, n, width = Q.shape
    d = pk.static(width)
    q = pk.shared(pk.st(pk.bf16, 64, d))
    k, v = (pk.shared(pk.st(pk.bf16, 64, d)) for _ in range(2))
    b, h, block = pk.grid(batch, heads, pk.cdiv(n, 64))
    pk.publish(q, pk.load(Q[b, h, block, 0], rows=64, cols=d))
    o, m, l = (
        pk.zeros(pk.f32, 64, d),
        pk.full(pk.f32, -pk.inf, 64, spread=pk.per_row),
        pk.zeros(pk.f32, 64, spread=pk.per_row),
    )
    for j in pk.range(block + 1 if causal else pk.cdiv(n, 64)):
        pk.publish(k, pk.load(K[b, h, j, 0], rows=64, cols=d))
        pk.publish(v, pk.load(V[b, h, j, 0], rows=64, cols=d))
        s = pk.mask(scores(q, k, 1 / d**0.5), row=block * 64, col=j * 64, cols=n, causal=causal)
        highest = pk.maximum(m, pk.row_max(s))
        p, alpha = pk.exp(s - highest), pk.exp(m - highest)
        l = l * alpha + pk.row_sum(p)
        o, m = pk.mma_AB(p.to(pk.bf16), v, o * alpha), highest
        pk.sync()
    pk.store(O[b, h, block, 0], pk.normalize(o, l).to(O.dtype))


@pk.kernel
def steps_of_softmax(S: pk.Global, out: pk.Global, limit: pk.Scalar) -> None:
    row, _ = pk.grid(*S.tiles(64, 64))
    s = at_most(pk.load(S[row, 0], rows=64, cols=64), limit)
    p, m, l, _ = pk.online_softmax(s, pk.log2e, to=pk.bf16)
    total = p.to(pk.f32)
    for j in pk.range(1, pk.cdiv(S.cols, 64)):
        s = pk.load(S[row, j], rows=64, cols=64)
        p, m, l, alpha = pk.online_softmax(s, pk.log2e, m, l, to=pk.bf16)
        total = total * alpha + p.to(pk.f32)
    pk.store(out[row, 0], total / l)


@pk.kernel
def totals(x: pk.Global, parts: pk.Global, y: pk.Global, counters: pk.Global) -> None:
    row, block = pk.grid(*x.tiles(1, 64))
    blocks = pk.cdiv(x.cols, 64)
    pk.store(parts[row, block], pk.sum(pk.load(x[row, block], cols=64)))
    if pk.atomic_add(counters[row], 1) == blocks - 1:
        total = pk.load(parts[row, 0])
        for i in pk.range(1, blocks):
            total = total + pk.load(parts[row, i])
        pk.store(y[row], total)
        pk.signal(counters[row], 0)


@pk.kernel
def rows_by_index(x: pk.Global, index: pk.Global, bins: pk.Global, y: pk.Global) -> None:
    counts = pk.shared(pk.sv(pk.int32, 256))
    (block,) = pk.grid(pk.cdiv(index.cols, 64))
    pk.store(counts, pk.zeros(pk.int32, 256))
    pk.sync()
    rows = pk.load(index[0, block], cols=64, fill=-1, spread=pk.per_row)
    tile = pk.gather(x[..., 0], rows, cols=32)
    pk.store(y[block, 0], tile)
    values, columns = pk.row_topk(tile, 1)
    pk.scatter(counts, columns, 1, op="add")
    pk.sync()
    pk.store(bins, pk.load(counts), op="add")
    pk.print("row {} has {}", block, pk.max(values))


class Weights(NamedTuple):
    """An argument with parts."""

    scale: pk.Global
    shift: pk.Scalar


@pk.kernel
def elements(x: pk.Global, y: pk.Global, weights: Weights) -> None:
    row, col = pk.grid(*x.tiles(64, 64))
    t = pk.load(x[row, col], rows=64, cols=64)
    scale = pk.load(weights.scale[col], cols=64, spread=pk.per_column)
    outside = (pk.row_index(64) + row * 64 >= x.rows) | (pk.col_index(64) + col * 64 >= x.cols)
    t = pk.where(outside, 0.0, 2 * t * scale - weights.shift)
    t = pk.clamp(pk.fma(t, scale, 1.0), -4.0, high=4.0)
    t = pk.concat(t[:, 32:], -t[:, :32], axis=1)
    whole = outside[0:64, 0:64] & ~(t > 0) ^ (pk.abs(t) < 1.0)
    table = pk.row_index(64) * 64 + pk.col_index(64)
    pk.assert_(pk.row_min(table) >= 0, "positions count from 0")
    odd = pk.shift_right(table, 1) % 2 == 1
    count = pk.sum(odd.to(pk.int32)) // 2
    noise = pk.uniform(pk.random_bits(7, row * 64, col * 64, rows=64, cols=64))
    pk.store(
        y[row, col], pk.where(whole & odd, t + noise, t) ** 2 / pk.maximum(count.to(pk.f32), 1.0)
    )


@pk.kernel
def by_hand(x: pk.Global, y: pk.Global) -> None:
    tiles = pk.shared(pk.st(pk.f32, 64, 64), count=2)
    full, empty = pk.semaphore(1, count=2), pk.semaphore(1, count=2)
    (block,) = pk.grid(x.rows // 64)
    steps = pk.cdiv(x.cols, 64)
    with pk.producer():
        for i in pk.range(steps):
            empty[i % 2].wait(i // 2 + 1)
            full[i % 2].expect(tiles[i % 2])
            pk.load_async(tiles[i % 2], x[block, i], signal=full[i % 2])
    with pk.warpgroups(1):
        for i in pk.range(steps):
            full[i % 2].wait(i // 2)
            t = pk.load(tiles[i % 2])
            empty[i % 2].arrive()
            pk.store(y[block, i], t + 1)


@pk.kernel
def scaled(A: pk.Global, scales: pk.Global, C: pk.Global) -> None:
    tasks = pk.persistent((pk.cdiv(A.rows, 64), 1), blocks=8)
    ring = pk.pipeline(2, a=pk.st(pk.f32, 64, 64), s=pk.sv(pk.f32, 64))
    own = pk.pipeline(2, pk.sv(pk.f32, 64))
    with pk.producer():
        for row, col in tasks:
            with ring.fill() as stage, own.fill() as vector:
                pk.load_async(stage.a, A[row, col])
                pk.load_async(stage.s, scales[0, row])
                pk.load_async(vector, scales[0, row])
    with pk.consumers(1):
        for row, col in tasks:
            with ring.drain() as stage, own.drain() as vector:
                by_row = pk.load(vector, spread=pk.per_row)
                first = pk.load(vector.parts(1)[0])
                t = pk.load(stage.a) * pk.load(stage.s, spread=pk.per_row) * by_row * first
            pk.store(C[row, col], t)


@pk.op(family=MAP, scalar=pk.ScalarMeaning(np.arctan, "atanf({0})", kinds=FLOAT))
def arctan(x: pk.RegTile) -> pk.RegTile:  # type: ignore[empty-body]
    """The inverse tangent of x."""
    ...


@pk.function
def summed(tiles: list[pk.RegTile], l: pk.RegVector | None = None) -> pk.RegTile:
    m: pk.RegVector | None = None
    whole = pk.zeros(pk.f32, 64, 64)
    for tile in tiles:
        p, m, l, alpha = pk.online_softmax(tile, 1.0, m, l, to=pk.f32)
        whole = p if alpha is None else whole * alpha + p
    return whole + sum(tiles)


@pk.kernel(cluster=1)
def odds_and_ends(x: pk.Global, y: pk.Global, flags: pk.Global) -> None:
    pk.overlap()
    pk.resident(1)
    kept = pk.shared(pk.st(pk.f32, 64, 64))
    n = pk.static(x.cols)
    sizes: tuple[int, ...] = tuple(range(0, n, 64))
    tasks = pk.persistent(x.tiles(64, 64), pk.longest_first(2) if n > 999 else pk.row_major)
    with pk.consumers(1, registers=240) as w:
        for task in tasks:
            parts = [pk.load(x[task], rows=64, cols=64) for _ in sizes]
            before: pk.Scalar | float = 0.0
            i: pk.Scalar | int = 0
            while i < 3 and not tasks.block > 1000:
                before, i = before + pk.max(parts[0]), i + 1
            with pk.in_turn():
                pk.publish(kept, arctan(summed(parts)) + before)
                pk.store_async(y[task], kept)
                pk.store_wait(read=True)
            flag = flags[0]
            pk.signal(flag, 1 if n else w, op="add")
            pk.wait(flag, 0)
            pk.sync()


@pk.kernel
def from_template(A: pk.Global, B: pk.Global, C: pk.Global) -> None:
    def load(task: tuple[pk.Scalar, ...], step: pk.Scalar, input: Any) -> None:
        row, col = task
        pk.load_async(input.a, A[row, step])
        pk.load_async(input.b, B[col, step])

    def setup() -> pk.RegTile:
        return pk.zeros(pk.f32, 64, 256)

    def compute(input: Any, state: pk.RegTile, worker: pk.Scalar) -> pk.RegTile:
        return pk.mma_ABt(input.a.tiles(64, 64)[worker], input.b, state)

    def finish(output: pk.SharedTile, state: pk.RegTile, worker: pk.Scalar) -> None:
        pk.store(output.tiles(64, 256)[worker], state.to(pk.bf16))

    def store(task: tuple[pk.Scalar, ...], output: pk.SharedTile) -> None:
        pk.store_async(C[task], output)

    lcsf(
        load=load,
        compute=compute,
        store=store,
        finish=finish,
        setup=setup,
        tasks=pk.persistent(C.tiles(128, 256)),
        steps=pk.cdiv(A.cols, 64),
        inputs=pk.pipeline(3, a=pk.st(pk.bf16, 128, 64), b=pk.st(pk.bf16, 256, 64)),
        outputs=pk.pipeline(1, pk.st(pk.bf16, 128, 256)),
        consumers=pk.consumers(2),
    )
