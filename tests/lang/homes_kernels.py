"""Kernels by homes, and the same by roles, in which a `with` ends after the last use of its stage."""

from __future__ import annotations

import pykittens as pk
from pykittens import bf16, f32

WIDTH, WARPS = 256, 4
SUB = WIDTH // WARPS


@pk.kernel
def matvec(W, x, y):
    """y = W x; a warp has a part of each row."""
    (row,) = pk.grid(pk.cdiv(W.rows, 16))
    pages = pk.pipeline(4, pk.st(bf16, 16, WIDTH), flight=2)
    sums = pk.pipeline(2, pk.sv(f32, WARPS * 16))
    w = pk.homes(pk.warps(WARPS))
    acc = pk.zeros(f32, 16, SUB)
    for k in pk.range(pk.cdiv(W.cols, WIDTH)):
        page = pages.stream(W[row, k])
        part = pk.load(x[k * WARPS + w], cols=SUB, spread=pk.per_column)
        acc = pk.fma(pk.load(page.tiles(16, SUB)[0, w]).to(f32), part, acc)
    pk.store(y[row], sums.join(pk.row_sum(acc)))


def all_but_one(s):
    """The sum of the vectors of all warps but the last, and that of the last."""
    total = pk.load(s.parts(16)[0])
    for i in range(1, WARPS - 1):
        total = total + pk.load(s.parts(16)[i])
    return total, pk.load(s.parts(16)[WARPS - 1])


@pk.kernel
def matvec_by_roles(W, x, y):
    """The same."""
    (row,) = pk.grid(pk.cdiv(W.rows, 16))
    pages = pk.pipeline(4, pk.st(bf16, 16, WIDTH), flight=2)
    sums = pk.pipeline(2, pk.sv(f32, WARPS * 16))
    with pk.producer():
        for k in pk.range(pk.cdiv(W.cols, WIDTH)):
            with pages.fill() as page:
                pk.load_async(page, W[row, k])
    with pk.warps(WARPS) as w:
        acc = pk.zeros(f32, 16, SUB)
        for k in pk.range(pk.cdiv(W.cols, WIDTH)):
            with pages.drain() as page:
                part = pk.load(x[k * WARPS + w], cols=SUB, spread=pk.per_column)
                own = pk.load(page.tiles(16, SUB)[0, w])
            acc = pk.fma(own.to(f32), part, acc)
        total = pk.row_sum(acc)
        with sums.fill() as s:
            pk.store(s.parts(16)[w], total)
    with pk.storer():
        with sums.drain() as s:
            total, last = all_but_one(s)
        pk.store(y[row], total + last)


@pk.kernel
def matmul(A, B, C):
    """C = A B^T, by two groups that have 64 rows each."""
    row, col = pk.grid(pk.cdiv(A.rows, 128), pk.cdiv(B.rows, 128))
    ring = pk.pipeline(3, a=pk.st(bf16, 128, 64), b=pk.st(bf16, 128, 64))
    g = pk.homes(pk.consumers(2))
    acc = pk.zeros(f32, 64, 128)
    for k in pk.range(pk.cdiv(A.cols, 64)):
        s = ring.stream(a=A[row, k], b=B[col, k])
        acc = pk.mma_ABt(s.a.tiles(64, 64)[g, 0], s.b, acc)
    pk.store(C[2 * row + g, col], acc.to(bf16))


@pk.kernel
def matmul_by_roles(A, B, C):
    """The same."""
    row, col = pk.grid(pk.cdiv(A.rows, 128), pk.cdiv(B.rows, 128))
    ring = pk.pipeline(3, a=pk.st(bf16, 128, 64), b=pk.st(bf16, 128, 64))
    with pk.producer():
        for k in pk.range(pk.cdiv(A.cols, 64)):
            with ring.fill() as s:
                pk.load_async(s.a, A[row, k])
                pk.load_async(s.b, B[col, k])
    with pk.consumers(2) as g:
        acc = pk.zeros(f32, 64, 128)
        for k in pk.range(pk.cdiv(A.cols, 64)):
            with ring.drain() as s:
                acc = pk.mma_ABt(s.a.tiles(64, 64)[g, 0], s.b, acc)
        pk.store(C[2 * row + g, col], acc.to(bf16))


@pk.kernel
def normed(x, gain, W, y, *, n):
    """y = W (rms_norm(x) * gain), of a vector of n elements. The storer knows the scale, and hands it back."""
    ring = pk.pipeline(4, pk.st(bf16, 16, WIDTH))
    vectors = pk.pipeline(1, pk.sv(f32, n))
    squares, scales = pk.pipeline(1, pk.sv(f32, WARPS * 16)), pk.pipeline(1, pk.sv(f32, 16))
    sums = pk.pipeline(2, pk.sv(f32, WARPS * 16))
    w = pk.homes(pk.warps(WARPS))
    for (row,) in pk.persistent((pk.cdiv(W.rows, 16),), blocks=3):
        v = vectors.fetch(x[0])
        own = [
            pk.load(v.parts(SUB)[k * WARPS + w], spread=pk.per_column) for k in range(n // WIDTH)
        ]
        square = pk.zeros(f32, 16)
        for part in own:
            square = square + pk.sum(part * part)
        scale = pk.rsqrt(squares.join(square) / n + 1e-5)
        factor = pk.load(scales.hand(scale, to="consumers"), spread=pk.per_row)
        acc = pk.zeros(f32, 16, SUB)
        for k in range(n // WIDTH):
            page = pk.load(ring.stream(W[row, k]).tiles(16, SUB)[0, w]).to(f32)
            weight = pk.load(gain[k * WARPS + w], cols=SUB, spread=pk.per_column)
            acc = pk.fma(page, own[k] * weight, acc)
        pk.store(y[row], sums.join(pk.row_sum(acc * factor)))


@pk.kernel
def normed_by_roles(x, gain, W, y, *, n):
    """The same."""
    ring = pk.pipeline(4, pk.st(bf16, 16, WIDTH))
    vectors = pk.pipeline(1, pk.sv(f32, n))
    squares, scales = pk.pipeline(1, pk.sv(f32, WARPS * 16)), pk.pipeline(1, pk.sv(f32, 16))
    sums = pk.pipeline(2, pk.sv(f32, WARPS * 16))
    tasks = pk.persistent((pk.cdiv(W.rows, 16),), blocks=3)
    with pk.producer():
        for (row,) in tasks:
            for k in range(n // WIDTH):
                with ring.fill() as page:
                    pk.load_async(page, W[row, k])
    with pk.warps(1):
        for (_row,) in tasks:
            with vectors.fill() as v:
                pk.load_async(v, x[0])
    with pk.warps(WARPS) as w:
        for (row,) in tasks:
            with vectors.drain() as v:
                own = [
                    pk.load(v.parts(SUB)[k * WARPS + w], spread=pk.per_column)
                    for k in range(n // WIDTH)
                ]
            square = pk.zeros(f32, 16)
            for part in own:
                square = square + pk.sum(part * part)
            with squares.fill() as s:
                pk.store(s.parts(16)[w], square)
            with scales.drain() as s:
                factor = pk.load(s, spread=pk.per_row)
            acc = pk.zeros(f32, 16, SUB)
            for k in range(n // WIDTH):
                with ring.drain() as t:
                    page = pk.load(t.tiles(16, SUB)[0, w])
                page = page.to(f32)
                weight = pk.load(gain[k * WARPS + w], cols=SUB, spread=pk.per_column)
                acc = pk.fma(page, own[k] * weight, acc)
            total = pk.row_sum(acc * factor)
            with sums.fill() as s:
                pk.store(s.parts(16)[w], total)
    with pk.storer():
        for (row,) in tasks:
            with squares.drain() as s:
                total, last = all_but_one(s)
            scale = pk.rsqrt((total + last) / n + 1e-5)
            with scales.fill() as s:
                pk.store(s, scale)
            with sums.drain() as s:
                total, last = all_but_one(s)
            pk.store(y[row], total + last)


HEAD, KEYS = 64, 64  # elements of a head, and keys of a page, 16 for each warp


def scores(page, x, w, first, count, scale):
    """The scores of a warp's keys, -1e30 for those that are absent."""
    s = pk.row_sum(page * x) * scale
    return pk.where(pk.row_index(16) + (first + 16 * w) < count, s, -1e30)


def softmax_step(top, total, acc, s, v):
    """The softmax of a warp's keys so far, with the next."""
    new = pk.maximum(top, s)
    p, old = pk.exp(s - new), pk.exp(top - new)
    return new, total * old + p, acc * old + v * p


def begin():
    top = pk.full(f32, -1e30, 16, spread=pk.per_row)
    return top, pk.zeros(f32, 16, spread=pk.per_row), pk.zeros(f32, 16, HEAD)


def reduced(top, total, acc):
    """The maximum, sum and weighted values of a warp's keys."""
    best = pk.max(top)
    e = pk.exp(top - best)
    zero = pk.zeros(f32, 16)
    return zero + best, zero + pk.sum(total * e), pk.col_sum(acc * e)


def merge(m, l, o, out, head):
    """Store the softmax of the keys of all warps."""
    most = m[0]
    for part in m[1:]:
        most = pk.maximum(most, part)
    weights = [pk.exp(part - most) for part in m]
    total = weights[0] * l[0]
    for weight, part in zip(weights[1:], l[1:], strict=True):
        total = total + weight * part
    for j in range(HEAD // 16):
        y = weights[0] * o[0][j]
        for weight, part in zip(weights[1:], o[1:], strict=True):
            y = y + weight * part[j]
        pk.store(out[head, j], y / total)


@pk.kernel
def decode(q, K, V, o, *, scale):
    """o[head] = softmax(q[head] K[head]^T * scale) V[head] of one query; the storer merges what the warps have."""
    (head,) = pk.grid(K.shape[0])
    keys, queries = pk.pipeline(4, pk.st(bf16, KEYS, HEAD)), pk.pipeline(1, pk.sv(f32, HEAD))
    each = pk.sv(f32, WARPS * 16)
    parts = pk.pipeline(1, m=each, l=each, o=pk.sv(f32, WARPS * HEAD))
    w = pk.homes(pk.warps(WARPS))
    x = pk.load(queries.fetch(q[head]), spread=pk.per_column)
    top, total, acc = begin()
    for k in pk.range(pk.cdiv(K.shape[1], KEYS)):
        page = pk.load(keys.stream(K[head, k, 0]).tiles(16, HEAD)[w, 0]).to(f32)
        s = scores(page, x, w, KEYS * k, K.shape[1], scale)
        v = pk.load(keys.stream(V[head, k, 0]).tiles(16, HEAD)[w, 0]).to(f32)
        top, total, acc = softmax_step(top, total, acc, s, v)
    m, l, out = reduced(top, total, acc)
    p = parts.hand(m=m, l=l, o=out)
    ms, ls = ([pk.load(t.parts(16)[i]) for i in range(WARPS)] for t in (p.m, p.l))
    count = HEAD // 16
    os = [[pk.load(p.o.parts(16)[i * count + j]) for j in range(count)] for i in range(WARPS)]
    merge(ms, ls, os, o, head)


@pk.kernel
def decode_by_roles(q, K, V, o, *, scale):
    """The same."""
    (head,) = pk.grid(K.shape[0])
    keys, queries = pk.pipeline(4, pk.st(bf16, KEYS, HEAD)), pk.pipeline(1, pk.sv(f32, HEAD))
    each = pk.sv(f32, WARPS * 16)
    parts = pk.pipeline(1, m=each, l=each, o=pk.sv(f32, WARPS * HEAD))
    with pk.producer():
        for k in pk.range(pk.cdiv(K.shape[1], KEYS)):
            for tensor in (K, V):
                with keys.fill() as page:
                    pk.load_async(page, tensor[head, k, 0])
    with pk.warps(1), queries.fill() as s:
        pk.load_async(s, q[head])
    with pk.warps(WARPS) as w:
        with queries.drain() as s:
            x = pk.load(s, spread=pk.per_column)
        top, total, acc = begin()
        for k in pk.range(pk.cdiv(K.shape[1], KEYS)):
            with keys.drain() as t:
                own = pk.load(t.tiles(16, HEAD)[w, 0])
            page = own.to(f32)
            s = scores(page, x, w, KEYS * k, K.shape[1], scale)
            with keys.drain() as t:
                v = pk.load(t.tiles(16, HEAD)[w, 0])
            top, total, acc = softmax_step(top, total, acc, s, v.to(f32))
        m, l, out = reduced(top, total, acc)
        with parts.fill() as p:
            pk.store(p.m.parts(16)[w], m)
            pk.store(p.l.parts(16)[w], l)
            pk.store(p.o.parts(HEAD)[w], out)
    with pk.storer():
        count = HEAD // 16
        with parts.drain() as p:
            ms, ls = ([pk.load(t.parts(16)[i]) for i in range(WARPS)] for t in (p.m, p.l))
            os = [
                [pk.load(p.o.parts(16)[i * count + j]) for j in range(count)] for i in range(WARPS)
            ]
        merge(ms, ls, os, o, head)
