"""A custom kernel: heads normalised and rotated. The idea: one pass over memory instead of several."""

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens import f32


@pk.kernel
def norm_rotary(x, weight, cos, sin, positions, y, *, eps: float = 1e-6):
    """y = rotary(x / sqrt(mean(x^2) + eps) * weight) for each token and head, 64 tokens of a head a block.

    x, y: heads x tokens x d. weight: d. cos, sin: positions x d, in f32. positions: of the tokens, int32.
    """
    heads, tokens, d = x.shape
    pk.require(x.shape == y.shape, "x and y must have one shape")
    pk.require(weight.shape == (d,) and cos.cols == d, "weight and cos must have the d of x")
    pk.require(cos.shape == sin.shape, "cos and sin must have one shape")
    pk.require(positions.shape == (tokens,), "each token must have a position")
    d = pk.static(d)
    # Heads vary fastest, so that the heads of the same tokens find the rows of the tables in the cache.
    block, head = pk.grid(pk.cdiv(tokens, 64), heads)

    # One value per column, for all rows; one value per row, the row of a table.
    w = pk.load(weight, cols=d, spread=pk.per_column).to(f32)
    place = pk.load(positions[block], cols=64, spread=pk.per_row)

    t = pk.load(x[head, block, 0], rows=64, cols=d).to(f32)
    t = t * pk.rsqrt(pk.row_sum(t * t) / d + eps) * w
    t = pk.rotary(t, pk.gather(cos, place, cols=d), pk.gather(sin, place, cols=d))
    pk.store(y[head, block, 0], t.to(y.dtype))


def tables(length, d, base=10000.0):
    """The cosines and sines of the angles by which position i turns each pair of columns j and j + d/2."""
    angles = np.arange(length)[:, None] * base ** (-2 * np.arange(d // 2) / d)
    angles = np.concatenate([angles, angles], axis=1)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def reference(x, weight, cos, sin, positions, eps=1e-6):
    """The same in float64."""
    x, weight, cos, sin = (a.astype(np.float64) for a in (x, weight, cos, sin))
    x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight
    left, right = np.split(x, 2, axis=-1)
    turned = np.concatenate([-right, left], axis=-1)
    return x * cos[positions] + turned * sin[positions]


def main():
    """Run it on the heads of one packed tensor, at positions that are not consecutive, and compare."""
    rng = np.random.default_rng(0)
    tokens, heads, d = 100, 3, 96
    packed = rng.standard_normal((tokens, heads, d)).astype(ml_dtypes.bfloat16)
    x = packed.swapaxes(0, 1)  # no copy: any strides will do
    weight = rng.standard_normal(d).astype(ml_dtypes.bfloat16)
    positions = rng.integers(0, 5000, tokens).astype(np.int32)
    y = np.full((heads, tokens, d), np.nan, ml_dtypes.bfloat16)
    given = (x, weight, *tables(5000, d), positions)
    norm_rotary(*given, y)
    expected = reference(*given)
    error = np.linalg.norm(y.astype(np.float64) - expected) / np.linalg.norm(expected)
    print("relative error:", error)


if __name__ == "__main__":
    main()
