"""Functions of floats: numbers of Python, special numbers, and what is refused. Their accuracy is in the cases."""

from __future__ import annotations

import math

import numpy as np
import pytest

import pykittens as pk
from tests.ops.kernels import BF16, F32, normal, on_tiles
from tests.running import recorded
from tests.tolerance import assert_within, rounding

ODD = ("sin", "tanh", "erf", "expm1", "log1p", "sqrt")
FLOAT_ONLY = (
    *ODD,
    *("cos", "exp", "exp2", "gelu", "log", "log2", "relu", "rsqrt", "sigmoid", "silu", "softplus"),
)


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("exp", 2.0, math.exp(2)),
        ("exp2", 3, 8.0),
        ("expm1", 1e-9, math.expm1(1e-9)),
        ("log", 2.0, math.log(2)),
        ("log2", 8, 3.0),
        ("log1p", 1e-9, math.log1p(1e-9)),
        ("sqrt", 2.0, math.sqrt(2)),
        ("sin", 1e22, math.sin(1e22)),
        ("cos", 2.0, math.cos(2)),
        ("tanh", 0.5, math.tanh(0.5)),
        ("erf", 0.5, math.erf(0.5)),
        ("sigmoid", -1.0, 1 / (1 + math.e)),
        ("silu", 2.0, 2 / (1 + math.exp(-2))),
        ("softplus", -40.0, math.log1p(math.exp(-40))),
        ("relu", -2.0, 0.0),
        ("gelu", -3.0, -1.5 * math.erfc(3 / math.sqrt(2))),
    ],
)
def test_on_numbers_of_python_they_are_done_at_once(name, at, value):
    found = getattr(pk, name)(at)
    assert math.isclose(found, value, rel_tol=1e-12)
    assert type(found) is float


@pytest.mark.parametrize("name", ODD)
def test_zero_keeps_its_sign(name):
    a = np.zeros((64, 48), np.float32)
    a[1] = -0.0
    found = on_tiles(getattr(pk, name), a)
    assert np.array_equal(found, np.zeros_like(a))
    assert np.array_equal(np.signbit(found), np.signbit(a))


@pytest.mark.parametrize("name", FLOAT_ONLY)
def test_an_integer_is_refused_with_the_way_out(name):
    with pytest.raises(pk.KernelError, match="`a` must be float, not int32") as caught:
        on_tiles(lambda t: getattr(pk, name)(t.to(pk.int32)), normal(0))
    assert ".to(pk.f32)" in str(caught.value)


def test_near_zero_nothing_cancels():
    a = np.full((64, 48), 1e-20, np.float32)
    for function in (pk.expm1, pk.log1p, pk.sin, pk.tanh):
        assert np.array_equal(on_tiles(function, a), a)


def test_gelu_has_the_forms_of_pytorch():
    a = normal(0)
    wide = a.astype(float)
    erf = np.vectorize(math.erf)(wide / math.sqrt(2))
    tanh = np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))
    for approximate, inner in (("none", erf), ("tanh", tanh)):
        found = on_tiles(lambda t, form=approximate: pk.gelu(t, approximate=form), a)
        wanted = wide * (1 + inner) / 2
        assert_within(found, wanted, rounding(F32, wanted) + np.abs(wide) * 2.0**-50)
    with pytest.raises(pk.KernelError, match="`approximate` must be"):
        on_tiles(lambda t: pk.gelu(t, approximate="fast"), a)


def test_an_activation_is_rounded_once():
    a = normal(0, dtype=BF16)
    wide = a.astype(float)
    exact = (wide / (1 + np.exp(-wide))).astype(np.float32).astype(BF16)
    assert np.array_equal(on_tiles(pk.silu, a), exact)
    assert not np.array_equal(on_tiles(lambda t: t * pk.sigmoid(t), a), exact)


def test_a_function_is_one_operation():
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.gelu(pk.load(x[0], cols=32), approximate="tanh"))

    x = np.zeros((1, 32), np.float32)
    names = [
        n.op.name for n in recorded(kernel, x, x.copy()).roles[0].body.nodes if hasattr(n, "op")
    ]
    assert names == ["load", "gelu_tanh", "store"]
