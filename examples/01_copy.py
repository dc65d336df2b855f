"""Copying a matrix. The idea: a kernel moves tiles named by coordinates, and edges need no code."""

import numpy as np

import pykittens as pk


@pk.kernel
def copy(x, y):
    """y = x, a 64x64 tile a block."""
    row, col = pk.grid(pk.cdiv(x.rows, 64), pk.cdiv(x.cols, 64))
    tile = pk.load(x[row, col], rows=64, cols=64)  # outside the matrix reads as zero
    pk.store(y[row, col], tile)  # outside the matrix is not written


def reference(x):
    """X itself, in float64."""
    return x.astype(np.float64)


def main():
    """Copy a matrix whose sides are no multiples of 64 and compare."""
    x = np.random.default_rng(0).standard_normal((100, 130)).astype(np.float32)
    y = np.full_like(x, np.nan)
    copy(x, y)
    print("largest error:", np.abs(y - reference(x)).max())


if __name__ == "__main__":
    main()
