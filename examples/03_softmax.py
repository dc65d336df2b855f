"""A softmax along rows. The idea: a row is a vector in the registers of a warp, and a reduction combines its lanes."""

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens import f32


@pk.kernel
def softmax(x, y):
    """Softmax along the rows, a row a warp."""
    pk.require(x.shape == y.shape, "x and y must have one shape")
    (block,) = pk.grid(pk.cdiv(x.rows, 8))
    n = pk.static(x.cols)  # the kernel is specialised on the width of x
    with pk.warps(8) as w:
        # a vector, spread over the lanes, any length
        t = pk.load(x[block * 8 + w], cols=n, fill=-pk.inf).to(f32)
        t = pk.exp(t - pk.max(t))
        pk.store(y[block * 8 + w], (t / pk.sum(t)).to(y.dtype))


def reference(x):
    """Softmax along the rows in float64."""
    e = np.exp(x.astype(np.float64) - x.astype(np.float64).max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def main():
    """Run it on a ragged bf16 matrix and compare."""
    x = np.random.default_rng(0).standard_normal((100, 1000)).astype(ml_dtypes.bfloat16)
    y = np.full_like(x, np.nan)
    softmax(x, y)
    print("largest error:", np.abs(y.astype(np.float64) - reference(x)).max())


if __name__ == "__main__":
    main()
