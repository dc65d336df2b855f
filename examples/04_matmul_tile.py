"""A matrix product, one tile per block. The idea: the tensor cores multiply tiles in shared memory."""

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens import bf16, f32


@pk.kernel
def matmul_tile(A, B, C):
    """C = A @ B.T in bf16, a 64x128 tile of C a block, one step after the other."""
    pk.require(A.cols == B.cols and C.shape == (A.rows, B.rows), "A is m x k, B n x k, C m x n")
    row, col = pk.grid(*C.tiles(64, 128))
    a, b = pk.shared(pk.st(bf16, 64, 64)), pk.shared(pk.st(bf16, 128, 64))
    acc = pk.zeros(f32, 64, 128)
    for k in pk.range(pk.cdiv(A.cols, 64)):
        pk.store(a, pk.load(A[row, k], rows=64, cols=64))
        pk.store(b, pk.load(B[col, k], rows=128, cols=64))
        pk.fence_async()  # the tensor cores see what was stored ...
        pk.sync()  # ... by all warps
        acc = pk.mma_ABt(a, b, acc, managed=False)
        pk.mma_wait()  # the product has read both tiles
        pk.sync()
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
    matmul_tile(A, B, C)
    expected = reference(A, B)
    error = np.linalg.norm(C.astype(np.float64) - expected) / np.linalg.norm(expected)
    print("relative error:", error)


if __name__ == "__main__":
    main()
