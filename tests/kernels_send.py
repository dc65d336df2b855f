"""Kernels whose blocks send tiles to one another: a ring, sums of all blocks, products of what comes."""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens import f32
from pykittens.types.dtypes import DType


def ring(cluster: int, dtype: DType = f32, rows: int = 64, cols: int = 64) -> Any:
    """A kernel of clusters: each block stores what the one before it has loaded, through two places by turns."""

    @pk.kernel
    def ring(x, y):
        places = pk.shared(pk.st(dtype, rows, cols), count=2)
        full, free = pk.semaphore(1, count=2), pk.semaphore(1, count=2)
        first, rank = pk.grid(x.rows // (cluster * rows), cluster, cluster=cluster)
        row = first * cluster + rank
        for i in pk.range(pk.cdiv(x.cols, cols)):
            t = pk.load(x[row, i], rows=rows, cols=cols)
            full[i % 2].expect(places[i % 2])
            free[i % 2].wait(i // 2 + 1)
            pk.send(places[i % 2], t, block=(rank + 1) % cluster, signal=full[i % 2])
            full[i % 2].wait(i // 2)
            pk.store(y[row, i], pk.load(places[i % 2]))
            free[i % 2].arrive(block=(rank + (cluster - 1)) % cluster)

    return ring


def all_to_all(cluster: int, dtype: DType = f32, rows: int = 64, cols: int = 64) -> Any:
    """A kernel of clusters: sums of the tiles of all blocks, in each block; one group sends, another one adds."""

    @pk.kernel(cluster=cluster)
    def all_to_all(x, y):
        places = pk.shared(pk.st(dtype, rows, cols), count=cluster)
        full, free = pk.semaphore(1), pk.semaphore(cluster)
        first, rank = pk.grid(x.rows // (cluster * rows), cluster)
        row, steps = first * cluster + rank, pk.cdiv(x.cols, cols)
        with pk.warps(1):
            for i in pk.range(steps):
                free.wait(i + 1)
                for part in range(rows // 16):
                    t = pk.load(x[row * (rows // 16) + part, i], rows=16, cols=cols)
                    for peer in range(cluster):
                        to = places[rank].tiles(16, cols)[part, 0]
                        pk.send(to, t, block=peer, signal=full)
        with pk.warpgroups(1):
            for i in pk.range(steps):
                full.expect(*(places[peer] for peer in range(cluster)))
                full.wait(i)
                total = pk.load(places[0])
                for peer in range(1, cluster):
                    total = total + pk.load(places[peer])
                pk.store(y[row, i], total)
                for peer in range(cluster):
                    free.arrive(block=peer)

    return all_to_all


@pk.kernel(cluster=2)
def product(A, B, C, *, fences: bool = True):
    """C = A @ B.T of blocks of 64 rows; the operand b comes from the other block of the cluster."""
    a, b = pk.shared(pk.st(pk.bf16, 64, 64)), pk.shared(pk.st(pk.bf16, 64, 64))
    full = pk.semaphore(1)
    (rank,) = pk.grid(2)
    full.expect(b)
    pk.send(b, pk.load(B[rank, 0], rows=64, cols=64), block=1 - rank, signal=full)
    pk.publish(a, pk.load(A[rank, 0], rows=64, cols=64))
    full.wait(0)
    if fences:
        pk.fence_async()
    pk.store(C[rank, 0], pk.mma_ABt(a, b))
