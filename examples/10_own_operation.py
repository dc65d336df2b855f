"""A custom operation. The idea: a type rule, a meaning in NumPy, and equivalent CUDA C++."""

from typing import Any

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens import f32
from pykittens.targets.simt.target import SIMT
from pykittens.types.tiles import RT


@pk.op()
def two_of_four(tile) -> Any:
    """The tile with 0 for the two smaller of each four neighbours in a row, as sparse tensor cores require."""


@two_of_four.type
def _type(tile):
    if not isinstance(tile.type, RT) or tile.dtype != f32:
        raise pk.Mismatch(f"`tile` must be a register tile of f32, not {tile.type}")
    return tile.type


@two_of_four.numpy
def _numpy(tile):
    fours = np.abs(tile).reshape(len(tile), -1, 4)
    one, other = fours[..., :, None], fours[..., None, :]
    # Of equal values the first is kept, so it counts as larger than the later ones.
    larger = (other > one) | ((other == one) & np.tri(4, k=-1, dtype=bool))
    kept = larger.sum(axis=-1) < 2
    return np.where(kept.reshape(tile.shape), tile, np.float32(0))


# A lane holds two neighbours, and the next lane the other two: `pykittens show layout 'rt<f32, 64x64>'`.
FUNCTION = """
template <int N> DEVICE void two_of_four(float (&to)[N], const float (&from)[N], int lane) {
    const bool second = lane % 2;  // holds the third and the fourth of four
    UNROLL for (int i = 0; i < N; i += 2) {
        const float a = fabsf(from[i]), b = fabsf(from[i + 1]);
        const float c = __shfl_xor_sync(~0u, a, 1), d = __shfl_xor_sync(~0u, b, 1);
        const int larger = second ? (c >= a) + (d >= a) : (c > a) + (d > a);
        const int larger_b = second ? (c >= b) + (d >= b) : (c > b) + (d > b);
        to[i] = larger + (b > a) < 2 ? from[i] : 0.0f;
        to[i + 1] = larger_b + (a >= b) < 2 ? from[i + 1] : 0.0f;
    }
}
"""


@SIMT.lower("two_of_four")
def _lower(e, call):
    (result,) = call.results
    e.instructions["two_of_four"] = FUNCTION
    e.declare(result)
    e.line(f"two_of_four({e.array(result)}, {e.array(call.args['tile'])}, lane);")


@pk.kernel
def prune(x, y):
    """y = x with 0 for the two smaller of each four neighbours in a row, 64x64 a block."""
    pk.require(x.shape == y.shape, "x and y must have one shape")
    row, col = pk.grid(*x.tiles(64, 64))
    tile = pk.load(x[row, col], rows=64, cols=64).to(f32)
    pk.store(y[row, col], two_of_four(tile).to(y.dtype))


def reference(x):
    """The same by sorting, in float64."""
    x = x.astype(np.float64)
    padded = np.pad(x, ((0, 0), (0, -x.shape[1] % 4)))
    fours = padded.reshape(len(x), -1, 4)
    order = np.argsort(-np.abs(fours), axis=-1, kind="stable")
    np.put_along_axis(fours, order[..., 2:], 0.0, axis=-1)
    return padded[:, : x.shape[1]]


def main():
    """Prune a ragged matrix and compare."""
    x = np.random.default_rng(0).standard_normal((100, 130)).astype(ml_dtypes.bfloat16)
    y = np.full_like(x, np.nan)
    prune(x, y)
    print("largest error:", np.abs(y.astype(np.float64) - reference(x)).max())


if __name__ == "__main__":
    main()
