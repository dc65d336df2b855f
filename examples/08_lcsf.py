"""A matrix product as four functions. The idea: a template runs the roles and the pipelines."""

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens import bf16, f32
from pykittens.templates.lcsf import lcsf


@pk.kernel
def lcsf_matmul(A, B, C):
    """C = A @ B.T in bf16; 128x256 tiles of C, persistent blocks, three stages in flight."""
    pk.require(A.cols == B.cols and C.shape == (A.rows, B.rows), "A is m x k, B n x k, C m x n")

    def setup():  # what a task starts from: two warpgroups, 64 rows each
        return pk.zeros(f32, 64, 256)

    def load(task, step, input):  # one warp that issues bulk copies
        row, col = task
        pk.load_async(input.a, A[row, step])
        pk.load_async(input.b, B[col, step])

    def compute(input, state, worker):
        return pk.mma_ABt(input.a.tiles(64, 64)[worker], input.b, state)

    def finish(output, state, worker):  # once a task: the consumers fill the output ...
        pk.store(output.c.tiles(64, 256)[worker], state.to(bf16))

    def store(task, output):  # ... which another warp copies to C
        pk.store_async(C[task], output.c)

    lcsf(
        load=load, compute=compute, store=store, finish=finish, setup=setup,
        tasks=pk.persistent(C.tiles(128, 256), order=pk.supergroup(8)),
        steps=pk.cdiv(A.cols, 64),
        inputs=pk.pipeline(3, a=pk.st(bf16, 128, 64), b=pk.st(bf16, 256, 64)),
        outputs=pk.pipeline(1, c=pk.st(bf16, 128, 256)),
        consumers=pk.consumers(2),
    )  # fmt: skip


def reference(A, B):
    """A @ B.T in float64."""
    return A.astype(np.float64) @ B.astype(np.float64).T


def main():
    """Multiply two ragged matrices and compare."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((300, 200)).astype(ml_dtypes.bfloat16)
    B = rng.standard_normal((500, 200)).astype(ml_dtypes.bfloat16)
    C = np.full((300, 500), np.nan, ml_dtypes.bfloat16)
    lcsf_matmul(A, B, C)
    expected = reference(A, B)
    print(
        "relative error:",
        np.linalg.norm(C.astype(np.float64) - expected) / np.linalg.norm(expected),
    )


if __name__ == "__main__":
    main()
