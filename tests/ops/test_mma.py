"""Matrix products of shared and register operands against float64."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f16, f32
from pykittens.ops import mma
from tests import tolerance
from tests.ops.kernels import BF16, F16, F32, normal, poisoned
from tests.refusals import refused
from tests.tolerance import assert_within


@pytest.mark.parametrize("dtype", [bf16, f16], ids=str)
@pytest.mark.parametrize("transposed", [False, True], ids=["AB", "ABt"])
@pytest.mark.parametrize("registers", [False, True], ids=["shared", "registers"])
@pytest.mark.parametrize(("rows", "cols", "inner"), [(64, 16, 16), (128, 256, 32), (64, 80, 144)])
def test_a_product_with_an_accumulator(dtype, transposed, registers, rows, cols, inner):
    shape = (cols, inner) if transposed else (inner, cols)
    product = pk.mma_ABt if transposed else pk.mma_AB

    @pk.kernel
    def kernel(A, B, C, D):
        ring = pk.pipeline(1, a=pk.st(dtype, rows, inner), b=pk.st(dtype, *shape))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s.a, A[0])
            pk.load_async(s.b, B[0])
        acc = pk.load(C[0], rows=rows, cols=cols)
        a = pk.load(A[0], rows=rows, cols=inner)
        with ring.drain() as s:
            acc = product(a if registers else s.a, s.b, acc)
        pk.store(D[0], acc)

    A, B = normal(0, (rows, inner), dtype.numpy), normal(1, shape, dtype.numpy)
    C, D = normal(2, (rows, cols)), poisoned((rows, cols), F32)
    kernel(A, B, C, D)
    a, b = A.astype(np.float64), B.astype(np.float64)
    b = b.T if transposed else b
    exact = a @ b + C
    assert_within(
        D, exact, tolerance.product(F32, exact, np.abs(a) @ np.abs(b) + np.abs(C), inner + 1)
    )


def test_views_of_a_stage_are_operands():
    @pk.kernel
    def kernel(A, C):
        ring = pk.pipeline(1, pk.st(bf16, 128, 64))
        pk.grid(1)
        with pk.producer(), ring.fill() as s:
            pk.load_async(s, A[0])
        with pk.consumers(2) as w, ring.drain() as s:
            c = pk.mma_ABt(s.tiles(64, 64)[w], s.tiles(64, 64)[1])
            pk.store(C[w], c)

    A, C = normal(0, (128, 64), BF16), poisoned((128, 64), F32)
    kernel(A, C)
    a = A.astype(np.float64)
    assert_within(
        C, a @ a[64:].T, tolerance.product(F32, a @ a[64:].T, np.abs(a) @ np.abs(a[64:]).T, 64)
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s, t: pk.mma_AB(s, t), "`b` must be a shared tile"),
        (lambda s, t: pk.mma_AB(t, s), "takes bf16 or f16 operands|must have the same dtype"),
        (
            lambda s, t: pk.mma_AB(t.to(f16), s),
            "`a` and `b` must have the same dtype, not f16 and bf16",
        ),
        (lambda s, t: pk.mma_AB(s, s, t[:, 0:32]), "`acc` must be rt<f32, 64x64>"),
        (lambda s, t: pk.mma_AB(1.0, s), "`a` must be a shared or a register tile, not 1.0"),
        (
            lambda s, t: pk.mma_AB(s.tiles(64, 32)[0, 0], s),
            "`a` must have as many columns as `b` has rows, not 32 and 64",
        ),
        (
            lambda s, t: pk.mma_AB(s.tiles(32, 64)[0], s),
            "multiple of 64 rows for a group of 4 warps, not 32",
        ),
    ],
)
def test_operands_that_do_not_fit_are_refused(make, message):
    @pk.kernel
    def kernel(A, C):
        ring = pk.pipeline(1, pk.st(bf16, 64, 64))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s, A[0])
        with ring.drain() as s:
            make(s, pk.zeros(f32, 64, 64))

    with refused(message):
        kernel(np.ones((64, 64), BF16), np.ones((64, 64), F16))


@pytest.mark.parametrize(
    ("m", "k", "n"), [(64, 64, 64), (192, 64, 256), (64, 512, 128), (48, 200, 80)]
)
def test_a_product_in_slices_is_the_product(m, k, n):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 10, (m, k)), rng.integers(-9, 10, (k, n))
    assert np.array_equal(mma._times(a.astype(np.float32), b.astype(np.float32)), a @ b)
