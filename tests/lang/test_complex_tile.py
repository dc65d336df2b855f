"""Complex tiles beside complex numbers of NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.lang.std.complex_tile import (
    ComplexTile,
    complex_mma_AB,
    real_form_mma_AB,
    real_form_mma_ABh,
    side_by_side,
)
from tests.ops.kernels import normal, poisoned

OPERATIONS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "times_conj": lambda a, b: a.times_conj(b) if isinstance(a, ComplexTile) else a * b.conj(),
    "conj": lambda a, b: (a * b).conj(),
    "neg": lambda a, b: -a,
    "real": lambda a, b: a * b.re if isinstance(a, ComplexTile) else a * b.real,
    "number": lambda a, b: a * 3.0,
}


def parts(x, dtype=np.float32):
    return np.stack([x.real, x.imag]).astype(dtype)


def whole(x):
    return x[0].astype(np.float64) + 1j * x[1]


def matrix(seed, rows, cols, dtype=np.float32):
    """A random complex matrix whose parts are numbers of a dtype."""
    x, y = (normal(seed + i, (rows, cols)) for i in range(2))
    return whole(parts(x + 1j * y, dtype))


@pk.function
def loaded(x, rows, cols):
    return ComplexTile(*(pk.load(x[i, 0, 0], rows=rows, cols=cols) for i in range(2)))


@pk.kernel
def by_element(x, y, out, *, operation):
    pk.grid(1)
    result = operation(loaded(x, 64, 32), loaded(y, 64, 32))
    pk.store(out[0, 0, 0], result.re)
    pk.store(out[1, 0, 0], result.im)


@pytest.mark.parametrize("name", OPERATIONS)
def test_arithmetic_is_that_of_complex_numbers(name):
    x, y, out = matrix(0, 64, 32), matrix(2, 64, 32), poisoned((2, 64, 32), np.float32)
    by_element(parts(x), parts(y), out, operation=OPERATIONS[name])
    np.testing.assert_allclose(whole(out), OPERATIONS[name](x, y), rtol=1e-5, atol=1e-5)


@pk.kernel
def products(A, B, real, out, *, kind):
    """One of the products of a 64 x 64 matrix and a 64 x 128 one, of which one may be real."""
    pk.grid(1)
    shared = [pk.shared(pk.st(pk.f16, 64, 128)) for _ in range(2)]
    form = pk.shared(pk.st(pk.f16, pk.static(real.rows), pk.static(real.cols)))
    a, b = loaded(A, 64, 64), ComplexTile(*shared)
    b.store(loaded(B, 64, 128))
    pk.store(form, pk.load(real[0, 0], rows=form.rows, cols=form.cols))
    pk.fence_async()
    pk.sync()
    result = kind(a, b, form)
    pk.store(out[0, 0, 0], result.re)
    pk.store(out[1, 0, 0], result.im)


def real_form(b):
    blocks = np.block([[b.real, b.imag], [-b.imag, b.real]])
    return np.ascontiguousarray(blocks.astype(np.float16))


A, B = matrix(0, 64, 64, np.float16), matrix(2, 64, 128, np.float16)
PRODUCTS = {
    "complex": (lambda a, b, _: complex_mma_AB(a, b), A @ B),
    "real_a": (lambda a, b, _: complex_mma_AB(a.re, b), A.real @ B),
    "real_b": (lambda a, b, _: complex_mma_AB(a, b.im), A @ B.imag),
    "added": (lambda a, b, _: complex_mma_AB(a, b, complex_mma_AB(a.conj(), b)), 2 * A.real @ B),
    "real_form": (lambda a, _, form: real_form_mma_AB(a, form), A @ B),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_those_of_complex_matrices(name):
    kind, wanted = PRODUCTS[name]
    out = poisoned((2, 64, 128), np.float32)
    products(parts(A, np.float16), parts(B, np.float16), real_form(B), out, kind=kind)
    np.testing.assert_allclose(whole(out), wanted, rtol=1e-4, atol=1e-4)


def test_a_product_with_a_conjugate_transpose():
    out = poisoned((2, 64, 128), np.float32)
    of = real_form(B.conj().T)
    products(
        parts(A, np.float16),
        parts(B, np.float16),
        of,
        out,
        kind=lambda a, _, f: real_form_mma_ABh(a, f),
    )
    np.testing.assert_allclose(whole(out), A @ B, rtol=1e-4, atol=1e-4)


def test_halves_of_columns_are_a_complex_tile():
    @pk.kernel
    def halves(x, out):
        pk.grid(1)
        z = side_by_side(pk.load(x[0, 0], rows=64, cols=64))
        pk.store(out[0, 0], (z * z).re)

    x, out = normal(0, (64, 64)), poisoned((64, 32), np.float32)
    halves(x, out)
    np.testing.assert_allclose(out, ((x[:, :32] + 1j * x[:, 32:]) ** 2).real, rtol=1e-4, atol=1e-5)
