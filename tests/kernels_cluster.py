"""Kernels of clusters: matrix products whose blocks share operands, and blocks that wait for one another."""

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


@pk.kernel
def cluster_of_both(A, B, C, *, sides):
    """C = A @ B.T; a cluster of rows x cols blocks, each of which shares A with its row and B with its column."""
    pk.require(A.cols == B.cols and C.shape == (A.rows, B.rows), "A is m x k, B n x k, C m x n")
    rows, cols = sides
    inputs = pk.pipeline(3, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 128, 64))
    at = pk.cdiv(C.rows, 64 * rows), pk.cdiv(C.cols, 128 * cols)
    tasks = pk.persistent((rows * cols, *at), cluster=rows * cols)
    steps = pk.cdiv(A.cols, 64)

    with pk.producer():
        for rank, row, col in tasks:
            for k in pk.range(steps):
                with inputs.fill() as s:
                    a, b = A[row * rows + rank // cols, k], B[col * cols + rank % cols, k]
                    pk.load_async(s.a, a, multicast=pk.peers(cols))
                    pk.load_async(s.b, b, multicast=pk.peers(rows, step=cols))

    with pk.consumers(1):
        for rank, row, col in tasks:
            acc = pk.zeros(f32, 64, 128)
            for _ in pk.range(steps):
                with inputs.drain() as s:
                    acc = pk.mma_ABt(s.a, s.b, acc)
            pk.store(C[row * rows + rank // cols, col * cols + rank % cols], acc)


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
