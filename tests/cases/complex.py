"""Complex tiles: their arithmetic, their memory and their products, beside complex numbers of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pykittens as pk
from pykittens.lang.std.complex_tile import real_form_mma_AB, real_form_mma_ABh, side_by_side
from pykittens.types.dtypes import DType, bf16, f16, f32
from tests.cases.core import Array, Case

SHAPE = (64, 32)
OPERATIONS: dict[str, tuple[tuple[str, ...], Callable[[Any, Any], Any]]] = {
    "add": (("add",), lambda a, b: a + b),
    "sub": (("sub",), lambda a, b: a - b),
    "neg": (("neg",), lambda a, b: -a),
    "mul": (("mul", "add", "sub"), lambda a, b: a * b),
    "mul_real": (("mul",), lambda a, b: a * (b.re if isinstance(b, pk.ComplexTile) else b.real)),
    "mul_number": (("mul",), lambda a, b: 3.0 * a),
    "conj": (("neg",), lambda a, b: a.conj()),
    "times_conj": (
        ("mul", "add", "sub"),
        lambda a, b: a.times_conj(b) if isinstance(a, pk.ComplexTile) else a * b.conj(),
    ),
}


def parts_of(z: Array) -> Array:
    """The real and the imaginary parts of complex numbers, on a first axis."""
    return np.stack([z.real, z.imag])


def whole(x: Array) -> Array:
    """Complex numbers of parts."""
    found: Array = x[0].astype(np.float64) + 1j * x[1].astype(np.float64)
    return found


def normal(rng: np.random.Generator, *shapes: tuple[int, int], dtype: DType = f32) -> list[Array]:
    """Random complex matrices as parts."""
    return [rng.standard_normal((2, *shape)).astype(dtype.numpy) for shape in shapes]


@pk.function
def _loaded(x: Any, rows: int, cols: int) -> Any:
    return pk.ComplexTile(*(pk.load(x[i, 0, 0], rows=rows, cols=cols) for i in range(2)))


@pk.function
def _stored(x: Any, z: Any) -> None:
    pk.store(x[0, 0, 0], z.re)
    pk.store(x[1, 0, 0], z.im)


def _by_element(word: str) -> Case:
    ops, operation = OPERATIONS[word]

    @pk.kernel(warps=4)
    def kernel(x, y, out):
        pk.grid(1)
        _stored(out, operation(_loaded(x, *SHAPE), _loaded(y, *SHAPE)))

    def bound(_: Any, x: Array, y: Array) -> list[Array]:
        x, y = np.abs(whole(x)), np.abs(whole(y))
        return [np.broadcast_to(2.0**-22 * (x * y + x + y + 1), (2, *SHAPE))]

    return Case(
        f"complex-{word}-f32-64x32",
        ops,
        kernel,
        lambda rng: normal(rng, SHAPE, SHAPE),
        (((2, *SHAPE), f32),),
        lambda x, y: [parts_of(operation(whole(x), whole(y)))],
        bound,
    )


def _memory(dtype: DType) -> Case:
    """Rounded to shared memory and back: the halves of the columns of one tile."""

    @pk.kernel(warps=4)
    def kernel(x, out):
        pk.grid(1)
        both = pk.shared(pk.st(dtype, 64, 64)), pk.shared(pk.st(dtype, 64, 64))
        held = pk.ComplexTile(*both)
        held.store(_loaded(x, 64, 64).to(dtype))
        pk.sync()
        z = held.loaded()
        _stored(out, side_by_side(pk.concat(z.re, z.im, axis=1)))

    return Case(
        f"complex-store_loaded_to-{dtype}-64x64",
        ("store", "load", "to", "concat"),
        kernel,
        lambda rng: normal(rng, (64, 64)),
        (((2, 64, 64), dtype),),
        lambda x: [x.astype(dtype.numpy)],
    )


def _product(
    word: str, dtype: DType, multiply: Callable[..., Any], exact: Callable[..., Any]
) -> Case:
    """A product of a matrix in registers and another in shared memory, whole or in its real form."""
    # A row of 128 columns has several swizzled lines.
    depth, cols = 64, 128 if dtype is bf16 else 64
    size = (64, depth), (depth, cols)
    conjugate = word == "real_form_mma_ABh"

    @pk.kernel(warps=4)
    def kernel(A, B, form, out):
        pk.grid(1)
        b = pk.ComplexTile(*(pk.shared(pk.st(dtype, depth, cols)) for _ in range(2)))
        real = pk.shared(pk.st(dtype, pk.static(form.rows), pk.static(form.cols)))
        b.store(_loaded(B, depth, cols))
        pk.store(real, pk.load(form[0, 0], rows=real.rows, cols=real.cols))
        pk.fence_async()
        pk.sync()
        _stored(out, multiply(_loaded(A, 64, depth), b, real))

    def inputs(rng: np.random.Generator) -> list[Array]:
        a, b = normal(rng, *size, dtype=dtype)
        z = whole(b).conj().T if conjugate else whole(b)
        form = np.block([[z.real, z.imag], [-z.imag, z.real]])
        return [a, b, np.ascontiguousarray(form).astype(dtype.numpy)]

    def bound(_: Any, a: Array, b: Array, form: Array) -> list[Array]:
        size = np.abs(whole(a)) @ np.abs(whole(b))
        return [np.broadcast_to(2.0**-18 * size, (2, 64, cols))]

    return Case(
        f"complex-{word}-{dtype}-64x{cols}x{depth}",
        ("mma_ABt" if conjugate else "mma_AB",),
        kernel,
        inputs,
        (((2, 64, cols), f32),),
        lambda a, b, form: [parts_of(exact(whole(a), whole(b)))],
        bound,
    )


_mma = pk.complex_mma_AB
CASES = [
    *(_by_element(word) for word in OPERATIONS),
    *(_memory(dtype) for dtype in (bf16, f16)),
    *(
        _product("complex_mma_AB", dtype, lambda a, b, _: _mma(a, b), lambda a, b: a @ b)
        for dtype in (bf16, f16)
    ),
    _product(
        "complex_mma_AB_of_real_a", f16, lambda a, b, _: _mma(a.re, b), lambda a, b: a.real @ b
    ),
    _product(
        "complex_mma_AB_of_real_b", f16, lambda a, b, _: _mma(a, b.im), lambda a, b: a @ b.imag
    ),
    _product(
        "complex_mma_AB_onto",
        f16,
        lambda a, b, _: _mma(a, b, _mma(a.conj(), b)),
        lambda a, b: 2 * a.real @ b,
    ),
    _product("real_form_mma_AB", f16, lambda a, _, b: real_form_mma_AB(a, b), lambda a, b: a @ b),
    _product("real_form_mma_ABh", f16, lambda a, _, b: real_form_mma_ABh(a, b), lambda a, b: a @ b),
]
