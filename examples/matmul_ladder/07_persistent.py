"""Matmul, step 7 of 8. The idea: persistent blocks, so that one tile is stored while the next is computed."""

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens import bf16, f32


@pk.kernel
def matmul(A, B, C):
    """C = A @ B.T in bf16, 128x256 tiles of C, blocks that walk from tile to tile."""
    pk.require(A.cols == B.cols and C.shape == (A.rows, B.rows), "A is m x k, B n x k, C m x n")
    tasks = pk.persistent(C.tiles(128, 256))
    steps = pk.cdiv(A.cols, 64)
    inputs = pk.pipeline(3, a=pk.st(bf16, 128, 64), b=pk.st(bf16, 256, 64))
    outputs = pk.pipeline(1, c=pk.st(bf16, 128, 256))

    with pk.producer():  # goes on with the next tile while this one is finished
        for row, col in tasks:
            for k in pk.range(steps):
                with inputs.fill() as s:
                    pk.load_async(s.a, A[row, k])
                    pk.load_async(s.b, B[col, k])

    with pk.consumers(2) as w:
        for row, col in tasks:
            acc = pk.zeros(f32, 64, 256)
            for k in pk.range(steps):
                with inputs.drain() as s:
                    acc = pk.mma_ABt(s.a.tiles(64, 64)[w], s.b, acc)
            with outputs.fill() as s:  # waits until the tile before has been stored
                pk.store(s.c.tiles(64, 256)[w], acc.to(bf16))

    with pk.storer():  # one warp that starts the copies back
        for row, col in tasks:
            with outputs.drain() as s:
                pk.store_async(C[row, col], s.c)


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
