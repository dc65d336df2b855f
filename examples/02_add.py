"""Adding two matrices. The idea: a tile in registers is a value, and arithmetic on it gives new values."""

import numpy as np

import pykittens as pk


@pk.kernel
def add(a, b, out):
    """out = a + b, a 64x64 tile a block."""
    pk.require(a.shape == b.shape == out.shape, "a, b and out must have one shape")
    row, col = pk.grid(pk.cdiv(out.rows, 64), pk.cdiv(out.cols, 64))
    x = pk.load(a[row, col], rows=64, cols=64)  # outside the matrix reads as zero
    y = pk.load(b[row, col], rows=64, cols=64)
    pk.store(out[row, col], x + y)  # outside the matrix is not written


def reference(a, b):
    """a + b in float64."""
    return a.astype(np.float64) + b.astype(np.float64)


def main():
    """Add two ragged matrices and compare."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 100, 130)).astype(np.float32)
    out = np.full_like(a, np.nan)
    add(a, b, out)
    print("largest error:", np.abs(out - reference(a, b)).max())


if __name__ == "__main__":
    main()
