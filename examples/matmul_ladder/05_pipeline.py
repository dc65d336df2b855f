"""Matmul, step 5 of 8. The idea: a ring of stages, so that copies run ahead while the tensor cores multiply."""

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens import bf16, f32


@pk.kernel
def matmul(A, B, C):
    """C = A @ B.T in bf16, a 128x128 tile of C a block, four stages in flight."""
    pk.require(A.cols == B.cols and C.shape == (A.rows, B.rows), "A is m x k, B n x k, C m x n")
    row, col = pk.grid(*C.tiles(128, 128))
    steps = pk.cdiv(A.cols, 64)
    inputs = pk.pipeline(4, a=pk.st(bf16, 128, 64), b=pk.st(bf16, 128, 64))

    with pk.producer():  # one warp that starts copies
        for k in pk.range(steps):
            with inputs.fill() as s:  # waits until a stage is free
                pk.load_async(s.a, A[row, k])
                pk.load_async(s.b, B[col, k])

    with pk.consumers(1):  # a warpgroup that multiplies
        acc = pk.zeros(f32, 128, 128)
        for k in pk.range(steps):
            with inputs.drain() as s:  # waits until a stage is full, gives it back when it was read
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
    matmul(A, B, C)
    expected = reference(A, B)
    error = np.linalg.norm(C.astype(np.float64) - expected) / np.linalg.norm(expected)
    print("relative error:", error)


if __name__ == "__main__":
    main()
