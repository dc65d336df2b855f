"""A program of a user's that adds operations of its own: run by itself, it is no part of the package.

One is of a family, with a meaning on one element. The other has a type rule, a meaning and a lowering.
"""

from __future__ import annotations

import sys
from types import FunctionType

import numpy as np

import pykittens as pk
from pykittens.ops.map import FLOAT, MAP
from pykittens.targets.simt.map import write_elements
from pykittens.targets.simt.target import SIMT


@pk.op(family=MAP, scalar=pk.ScalarMeaning(np.arcsinh, "asinhf({0})", kinds=FLOAT))
def arcsinh(x):
    """The inverse hyperbolic sine of x."""


@pk.op()
def ramp(tile, step):
    """The tile plus `step` times the number of the column."""


@ramp.type
def _ramp_type(tile, step):
    if str(tile.type)[:2] != "rt":
        raise pk.Mismatch(f"`tile` must be a register tile, not {tile.type}")
    return tile.type


@ramp.numpy
def _ramp_numpy(tile, step):
    return tile + np.float32(step) * np.arange(tile.shape[1], dtype=np.float32)


@SIMT.lower("ramp")
def _lower_ramp(e, call):
    tile, step = call.args["tile"], call.args["step"]
    (result,) = call.results

    def element(i):
        col = f"tile_col<{tile.cols}>({i}, lane)"
        return f"{e.element(tile, i, result)} + {e.element(step, i, result)} * {col}"

    write_elements(e, result, element)


@pk.kernel
def kernel(x, y):
    pk.grid(1)
    t = pk.load(x[0], rows=64, cols=32)
    pk.store(y[0], ramp(arcsinh(t), 0.5))


@pk.kernel
def wrong(x, y):
    pk.grid(1)
    pk.store(y[0], ramp(pk.load(x[0], cols=32), 0.5))


def refusal(action):
    """What the user is told."""
    try:
        action()
    except pk.KernelError as error:
        return str(error)
    return "nothing was refused"


x = np.linspace(-3, 3, 64 * 32, dtype=np.float32).reshape(64, 32)
y = np.full_like(x, np.nan)
kernel(x, y)
assert np.array_equal(y, np.arcsinh(x) + np.float32(0.5) * np.arange(32, dtype=np.float32))
assert arcsinh(0.0) == 0.0
said = refusal(lambda: wrong(x, y))
assert "ramp: `tile` must be a register tile, not rv<f32, 32, plain>" in said
assert "ramp(pk.load(x[0], cols=32), 0.5)" in said
exp = FunctionType(kernel.function.__code__, {"__name__": "mine"}, "exp")
assert "an operation named `exp` exists already" in refusal(lambda: pk.op()(exp))
for arch in sys.argv[1:]:
    compiled = kernel.compile(x, y, arch=arch)
    assert compiled.resources.frame == 0
    assert "asinhf(" in kernel.source(x, y, arch=arch)
