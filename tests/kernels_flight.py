"""Accumulators that a loop carries in ways that leave no room for a product in flight over its back edge."""

import pykittens as pk
from pykittens import bf16, f32


@pk.kernel
def carried_products(A, B, C, *, way):
    """Products of single steps of A and B.T, combined by a loop in the way named."""
    a, b = pk.pipeline(2, pk.st(bf16, 64, 64)), pk.pipeline(2, pk.st(bf16, 64, 64))
    tasks = pk.persistent(C.tiles(64, 64))
    steps = pk.cdiv(A.cols, 64)
    with pk.producer():
        for row, col in tasks:
            for k in pk.range(steps):
                with a.fill() as t:
                    pk.load_async(t, A[row, k])
                with b.fill() as t:
                    pk.load_async(t, B[col, k])
    with pk.consumers(1):
        for row, col in tasks:
            with a.drain() as x, b.drain() as y:
                first = pk.mma_ABt(x, y)
            if way == "kept":  # the loop accumulates on a copy
                total = first
                for _ in pk.range(1, steps):
                    with a.drain() as x, b.drain() as y:
                        total = pk.mma_ABt(x, y, total)
                result = total - first
            elif way == "swapped":  # two accumulators take each other's place
                total, other = first, pk.zeros(f32, 64, 64)
                for _ in pk.range(1, steps):
                    with a.drain() as x, b.drain() as y:
                        total = pk.mma_ABt(x, y, total)
                    total, other = other, total
                result = total + other
            else:  # a fresh product each pass, added in the next
                total, last = pk.zeros(f32, 64, 64), first
                for _ in pk.range(1, steps):
                    with a.drain() as x, b.drain() as y:
                        now = pk.mma_ABt(x, y)
                    total = total + last
                    last = now
                result = total + last
            pk.store(C[row, col], result)


WAYS = ("kept", "swapped", "fresh")


def expected(a, b, way):
    """The same of float64 arrays or tensors."""
    whole = a @ b.T
    return whole - a[:, :64] @ b[:, :64].T if way == "kept" else whole
