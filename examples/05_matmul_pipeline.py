"""A matrix product whose copies run ahead of it. The idea: concurrent roles, and a ring of stages between them."""

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens import bf16, f32


@pk.kernel
def matmul_pipeline(A, B, C):
    """C = A @ B.T in bf16, a 64x128 tile of C a block, four stages in flight."""
    pk.require(A.cols == B.cols and C.shape == (A.rows, B.rows), "A is m x k, B n x k, C m x n")
    row, col = pk.grid(*C.tiles(64, 128))
    steps = pk.cdiv(A.cols, 64)
    ring = pk.pipeline(4, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 128, 64))

    with pk.producer():  # one warp that starts copies
        for k in pk.range(steps):
            with ring.fill() as s:  # waits until a stage is free
                pk.load_async(s.a, A[row, k])
                pk.load_async(s.b, B[col, k])

    with pk.consumers(1):  # four warps that multiply
        acc = pk.zeros(f32, 64, 128)
        for k in pk.range(steps):
            with ring.drain() as s:  # waits until a stage is full, gives it back when it was read
                acc = pk.mma_ABt(s.a, s.b, acc)
        pk.store(C[row, col], acc.to(bf16))


def reference(A, B):
    """A @ B.T in float64."""
    return A.astype(np.float64) @ B.astype(np.float64).T


def main():
    """Multiply two ragged matrices and compare."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((300, 200)).astype(ml_dtypes.bfloat16)
    B = rng.standard_normal((500, 200)).astype(ml_dtypes.bfloat16)
    C = np.full((300, 500), np.nan, ml_dtypes.bfloat16)
    matmul_pipeline(A, B, C)
    expected = reference(A, B)
    error = np.linalg.norm(C.astype(np.float64) - expected) / np.linalg.norm(expected)
    print("relative error:", error)


if __name__ == "__main__":
    main()
