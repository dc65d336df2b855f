"""Kernels whose waits and releases are delicate: one stage, two products a stage, stages inside one another."""

from __future__ import annotations

import pykittens as pk
from pykittens import bf16, f32


@pk.kernel
def one_stage(Q, K, V, O):
    """Attention with one stage of keys and one of values: nothing can be given back late."""
    n = Q.rows
    steps = pk.cdiv(n, 64)
    q, k, v = (pk.pipeline(1, pk.st(bf16, 64, 64)) for _ in range(3))
    tasks = pk.persistent((steps,))
    with pk.producer():
        for (block,) in tasks:
            with q.fill() as t:
                pk.load_async(t, Q[block])
            for j in pk.range(steps):
                with k.fill() as t:
                    pk.load_async(t, K[j])
                with v.fill() as t:
                    pk.load_async(t, V[j])
    with pk.consumers(1):
        for (block,) in tasks:
            o, m, l = pk.zeros(f32, 64, 64), None, None
            with q.drain() as qs:
                with k.drain() as kt:
                    s = pk.mma_ABt(qs, kt)
                s = pk.mask(s, row=0, col=0, cols=n)
                p, m, l, _ = pk.online_softmax(s, pk.log2e / 8, to=bf16)
                for j in pk.range(1, steps):
                    with v.drain() as vt:
                        o = pk.mma_AB(p, vt, o)
                    with k.drain() as kt:
                        s = pk.mma_ABt(qs, kt)
                    s = pk.mask(s, row=0, col=j * 64, cols=n)
                    p, m, l, alpha = pk.online_softmax(s, pk.log2e / 8, m, l, to=bf16)
                    o = o * alpha
                with v.drain() as vt:
                    o = pk.mma_AB(p, vt, o)
            pk.store(O[block], pk.normalize(o, l))


@pk.kernel
def two_products(A, C, D):
    """C = sum of T T^T, D = sum of T T over the 64x64 tiles T of A: two products read one stage."""
    ring = pk.pipeline(2, pk.st(bf16, 64, 64))
    pk.grid(1)
    with pk.producer():
        for i in pk.range(pk.cdiv(A.rows, 64)):
            with ring.fill() as t:
                pk.load_async(t, A[i])
    with pk.consumers(1):
        c, d = pk.zeros(f32, 64, 64), pk.zeros(f32, 64, 64)
        for _ in pk.range(pk.cdiv(A.rows, 64)):
            with ring.drain() as t:
                c = pk.mma_ABt(t, t, c)
                d = pk.mma_AB(t, t, d)
        pk.store(C[0], c)
        pk.store(D[0], d)


@pk.kernel
def nested(A, B, C):
    """C = the sum over i and j of A_i B_j: the stage of A is held while those of B come and go."""
    a, b = pk.pipeline(2, pk.st(bf16, 64, 64)), pk.pipeline(3, pk.st(bf16, 64, 64))
    pk.grid(1)
    with pk.producer():
        for i in pk.range(pk.cdiv(A.rows, 64)):
            with a.fill() as t:
                pk.load_async(t, A[i])
            for j in pk.range(pk.cdiv(B.rows, 64)):
                with b.fill() as t:
                    pk.load_async(t, B[j])
    with pk.consumers(1):
        c = pk.zeros(f32, 64, 64)
        for _ in pk.range(pk.cdiv(A.rows, 64)):
            with a.drain() as at:
                for _ in pk.range(pk.cdiv(B.rows, 64)):
                    with b.drain() as bt:
                        c = pk.mma_AB(at, bt, c)
        pk.store(C[0], c)


@pk.kernel
def same_stage(A, C, n):
    """C = n A A^T, all products from one stage that stays held."""
    ring = pk.pipeline(1, pk.st(bf16, 64, 64))
    pk.grid(1)
    with pk.producer(), ring.fill() as t:
        pk.load_async(t, A[0])
    with pk.consumers(1):
        c = pk.zeros(f32, 64, 64)
        with ring.drain() as t:
            for _ in pk.range(n):
                c = pk.mma_ABt(t, t, c)
        pk.store(C[0], c)


@pk.kernel
def prefetched(A, C):
    """Two fills ahead: a key stage given back late would keep the producer from filling the values."""
    k, v = pk.pipeline(2, pk.st(bf16, 64, 64)), pk.pipeline(1, pk.st(bf16, 64, 64))
    n = pk.cdiv(A.rows, 64)
    pk.grid(1)
    with pk.producer():
        for j in range(2):
            with k.fill() as t:
                pk.load_async(t, A[j])
        for i in pk.range(n):
            for j in range(2):
                with k.fill() as t:
                    pk.load_async(t, A[2 * i + 2 + j])
            with v.fill() as t:
                pk.load_async(t, A[i])
    with pk.consumers(1):
        c = pk.zeros(f32, 64, 64)
        for _ in pk.range(n):
            for _ in range(2):
                with k.drain() as t:
                    c = pk.mma_ABt(t, t, c)
            with v.drain() as t:
                c = pk.mma_ABt(t, t, c)
        for _ in range(2):
            with k.drain() as t:
                c = pk.mma_ABt(t, t, c)
        pk.store(C[0], c)
