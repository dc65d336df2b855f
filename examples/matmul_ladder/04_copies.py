"""Matmul, step 4 of 8. The idea: the copy engine fills shared memory, and a semaphore signals completion."""

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens import bf16, f32


@pk.kernel(warps=4)
def matmul(A, B, C):
    """C = A @ B.T in bf16, a 128x128 tile of C a block, one step after the other."""
    pk.require(A.cols == B.cols and C.shape == (A.rows, B.rows), "A is m x k, B n x k, C m x n")
    row, col = pk.grid(*C.tiles(128, 128))
    a, b = pk.shared(pk.st(bf16, 128, 64)), pk.shared(pk.st(bf16, 128, 64))
    full = pk.semaphore(1)
    acc = pk.zeros(f32, 128, 128)
    for k in pk.range(pk.cdiv(A.cols, 64)):
        full.expect(a, b)  # all warps are done with both tiles; asks for the bytes of new ones
        pk.load_async(a, A[row, k], signal=full)
        pk.load_async(b, B[col, k], signal=full)
        full.wait(k)  # all bytes are there
        acc = pk.mma_ABt(a, b, acc, managed=False)
        pk.mma_wait()  # the product has read both tiles
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
