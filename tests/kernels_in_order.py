"""Kernels whose blocks or warps wait for one another, and attention with its products in flight, all by hand."""

from __future__ import annotations

import pykittens as pk
from pykittens import bf16, f32


@pk.kernel
def split_depth(A, B, C, done, *, parts: int):
    """C = A B^T: the blocks of a tile take parts of the depth, and add their sums in the order of the parts."""
    operands = pk.pipeline(2, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 64, 64))
    row, col, part = pk.grid(*C.tiles(64, 64), parts)
    steps = pk.cdiv(A.cols, 64)
    each = pk.cdiv(steps, parts)
    first, last = part * each, pk.minimum(steps, (part + 1) * each)
    with pk.producer():
        for k in pk.range(first, last):
            with operands.fill() as s:
                pk.load_async(s.a, A[row, k])
                pk.load_async(s.b, B[col, k])
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 64)
        for _ in pk.range(first, last):
            with operands.drain() as s:
                acc = pk.mma_ABt(s.a, s.b, acc)
        tile = row * pk.cdiv(C.cols, 64) + col
        pk.wait(done[tile], part)
        if part > 0:
            acc = acc + pk.load(C[row, col], rows=64, cols=64)
        pk.store(C[row, col], acc)
        pk.signal(done[tile], part + 1)


@pk.kernel
def sums_with_neighbours(x, y, flags, sweeps):
    """Each tile becomes the sum of itself and its two neighbours, from x to y and back; waits only for these."""
    tiles = pk.cdiv(x.rows, 64)
    (block,) = pk.grid(tiles)
    for i in pk.range(sweeps):
        if block > 0:
            pk.wait(flags[block], i)
        if block < tiles - 1:
            pk.wait(flags[block + 2], i)
        if i % 2 == 0:
            above = pk.load(x[block - 1], rows=64, cols=64)
            below = pk.load(x[block + 1], rows=64, cols=64)
            pk.store(y[block], above + pk.load(x[block], rows=64, cols=64) + below)
        else:
            above = pk.load(y[block - 1], rows=64, cols=64)
            below = pk.load(y[block + 1], rows=64, cols=64)
            pk.store(x[block], above + pk.load(y[block], rows=64, cols=64) + below)
        pk.signal(flags[block + 1], i + 1)


@pk.kernel
def two_layers(x, first, second, hidden, y, flags):
    """y = relu(x first^T) second^T in one launch: the second layer fetches a tile when the first has stored it."""
    operands = pk.pipeline(2, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 64, 64))
    tasks = pk.persistent((2, pk.cdiv(x.rows, 64)))
    with pk.producer():
        for layer, row in tasks:
            if layer == 0:
                with operands.fill() as s:
                    pk.load_async(s.a, x[row])
                    pk.load_async(s.b, first[0])
            else:
                pk.wait(flags[row], 1)
                with operands.fill() as s:
                    pk.load_async(s.a, hidden[row])
                    pk.load_async(s.b, second[0])
    with pk.consumers(1):
        for layer, row in tasks:
            with operands.drain() as s:
                t = pk.mma_ABt(s.a, s.b)
            if layer == 0:
                pk.store(hidden[row], pk.relu(t).to(bf16))
                pk.signal(flags[row], 1)
            else:
                pk.store(y[row], t)


@pk.kernel
def scores_ahead(Q, K, V, O):
    """Attention of one head: the scores of the next keys are computed while the values of these are summed."""
    q, k = pk.shared(pk.st(bf16, 64, 64)), pk.shared(pk.st(bf16, 64, 64), count=2)
    v, q_full = pk.shared(pk.st(bf16, 64, 64), count=2), pk.semaphore(1)
    k_full, k_free = pk.semaphore(1, count=2), pk.semaphore(1, count=2)
    v_full, v_free = pk.semaphore(1, count=2), pk.semaphore(1, count=2)
    (row,) = pk.grid(pk.cdiv(Q.rows, 64))
    blocks, scale = pk.cdiv(K.rows, 64), 0.125 * pk.log2e
    with pk.producer():
        q_full.expect(q)
        pk.load_async(q, Q[row], signal=q_full)
        for j in pk.range(blocks):
            k_free[j % 2].wait(j // 2 + 1)
            k_full[j % 2].expect(k[j % 2])
            pk.load_async(k[j % 2], K[j], signal=k_full[j % 2])
            v_free[j % 2].wait(j // 2 + 1)
            v_full[j % 2].expect(v[j % 2])
            pk.load_async(v[j % 2], V[j], signal=v_full[j % 2])
    with pk.consumers(1):
        q_full.wait(0)
        k_full[0].wait(0)
        s = pk.mma_ABt(q, k[0], managed=False)
        pk.mma_wait()
        k_free[0].arrive()
        o = pk.zeros(f32, 64, 64)
        p, m, l, _ = pk.online_softmax(pk.mask(s, 0, 0, K.rows), scale, to=bf16)
        for j in pk.range(1, blocks):
            k_full[j % 2].wait(j // 2)
            s = pk.mma_ABt(q, k[j % 2], managed=False)
            v_full[(j - 1) % 2].wait((j - 1) // 2)
            o = pk.mma_AB(p, v[(j - 1) % 2], o, managed=False)
            pk.mma_wait(1)
            k_free[j % 2].arrive()
            scores = pk.mask(s, 0, j * 64, K.rows)
            newer, m, l, alpha = pk.online_softmax(scores, scale, m, l, to=bf16)
            pk.mma_wait()
            v_free[(j - 1) % 2].arrive()
            o = o * alpha
            p = newer
        v_full[(blocks - 1) % 2].wait((blocks - 1) // 2)
        o = pk.mma_AB(p, v[(blocks - 1) % 2], o, managed=False)
        pk.mma_wait()
        pk.store(O[row], pk.normalize(o, l))


@pk.kernel
def one_query(q, K, V, o):
    """Attention of one query: four warps take every fourth key, and the first adds the partial results."""
    sums = [pk.shared(pk.sv(f32, 64)) for _ in range(4)]
    weights = [pk.shared(pk.sv(f32, 16)) for _ in range(4)]
    left = pk.semaphore(4)
    pk.grid(1)
    with pk.warps(4) as w:
        query = pk.load(q[0], cols=64)
        total = pk.zeros(f32, 64)
        weight = pk.sum(total)
        for i in pk.range(w, K.rows, 4):
            p = pk.exp(pk.sum(query * pk.load(K[i], cols=64)) * 0.125)
            weight = weight + p
            total = total + pk.load(V[i], cols=64) * p
        for j in range(4):
            if w == j:
                pk.store(sums[j], total)
                pk.store(weights[j], pk.full(f32, weight, 16))
        left.arrive()
        if w == 0:
            left.wait(0)
            total, weight = pk.load(sums[0]), pk.max(pk.load(weights[0]))
            for j in range(1, 4):
                total = total + pk.load(sums[j])
                weight = weight + pk.max(pk.load(weights[j]))
            pk.store(o[0], total / weight)
