"""Kernels of clusters: a matrix product whose blocks share an operand, and blocks that wait for one another."""

import pykittens as pk
from pykittens import bf16, f32


@pk.kernel(cluster=2)
def cluster_matmul(A, B, C):
    """C = A @ B.T; two blocks take neighbouring rows of tiles and share the columns' operand."""
    pk.require(A.cols == B.cols and C.shape == (A.rows, B.rows), "A is m x k, B n x k, C m x n")
    inputs = pk.pipeline(3, a=pk.st(bf16, 128, 64), b=pk.st(bf16, 256, 64))
    outputs = pk.pipeline(1, c=pk.st(bf16, 128, 256))
    tasks = pk.persistent(C.tiles(128, 256), order=pk.supergroup(8), cluster_axis=0)
    steps = pk.cdiv(A.cols, 64)

    with pk.producer():
        for row, col in tasks:
            for k in pk.range(steps):
                with inputs.fill() as s:
                    pk.load_async(s.a, A[row, k])
                    pk.load_async(s.b, B[col, k], multicast=True)

    with pk.consumers(2) as w:
        for row, col in tasks:
            acc = pk.zeros(f32, 64, 256)
            for k in pk.range(steps):
                with inputs.drain() as s:
                    acc = pk.mma_ABt(s.a.tiles(64, 64)[w], s.b, acc)
            with outputs.fill() as s:
                pk.store(s.c.tiles(64, 256)[w], acc.to(bf16))

    with pk.storer():
        for row, col in tasks:
            with outputs.drain() as s:
                pk.store_async(C[row, col], s.c)


def meeting(cluster):
    """A kernel of clusters: each block waits for all others, and fills most of a multiprocessor's shared memory."""

    @pk.kernel(cluster=cluster)
    def meet(y, counter, blocks):
        room = pk.shared(pk.st(f32, 64, 256), count=2)
        (block,) = pk.grid(y.rows)
        pk.store(room[0], pk.zeros(f32, 64, 256))
        pk.signal(counter[0], 1, op="add")
        pk.wait(counter[0], blocks)
        pk.store(y[block], pk.zeros(y.dtype, 8) + 1.0)

    return meet
