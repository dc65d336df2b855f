"""Products that are scaled before they are added: their registers, and when their scales are loaded."""

import re

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.ir.nodes import Kernel
from pykittens.runtime import cubin
from pykittens.targets.emit import emit
from tests.running import recorded
from tests.targets.compiling import matrix

F32 = np.dtype(np.float32)


@pk.kernel
def scaled_products(A, B, S, C, *, both):
    """Two products with the halves of a tile of B, each scaled by row; `both`: both products precede the scaling."""
    ring = pk.pipeline(3, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 256, 64), scales=pk.sv(f32, 64))
    tasks = pk.persistent((A.shape[0] // 64,))
    with pk.producer():
        for (i,) in tasks:
            for k in pk.range(A.shape[1] // 64):
                with ring.fill() as s:
                    pk.load_async(s.a, A[i, k])
                    pk.load_async(s.b, B[0, k])
                    pk.load_async(s.scales, S[k, i])
    with pk.warpgroups(1):
        for (i,) in tasks:
            left, right = (pk.zeros(f32, 64, 128) for _ in range(2))
            for _ in pk.range(A.shape[1] // 64):
                with ring.drain() as s:
                    first = pk.mma_ABt(s.a, s.b.tiles(128, 64)[0])
                    scales = pk.load(s.scales, spread=pk.per_row)
                    if both:
                        second = pk.mma_ABt(s.a, s.b.tiles(128, 64)[1])
                    left = left + first * scales
                    if not both:
                        second = pk.mma_ABt(s.a, s.b.tiles(128, 64)[1])
                right = right + second * scales
            pk.store(C[i, 0], left)
            pk.store(C[i, 1], right)


ARGS = matrix(64, 128), matrix(256, 128), matrix(2, 64, dtype=F32), matrix(64, 256, dtype=F32)


def arrays(kernel: Kernel) -> list[str]:
    """The arrays that products are written to, each as often as an instruction writes it."""
    return re.findall(r"mma_ABt_bf16_shared_n128<\d, 0>\((\w+),", emit(kernel, "sm_90a").program)


def test_a_product_takes_the_array_of_one_that_is_not_needed_any_more():
    found = arrays(recorded(scaled_products, *ARGS, both=False))
    assert len(found) == 8
    assert len(set(found)) == 1


def test_products_that_are_needed_together_have_arrays_of_their_own():
    found = arrays(recorded(scaled_products, *ARGS, both=True))
    assert len(set(found[:4])) == len(set(found[4:])) == 1
    assert found[0] != found[4]


@pytest.mark.skipif(cubin.disassembler() is None, reason="nvdisasm was not found")
def test_what_is_loaded_behind_a_product_does_not_hold_it_up():
    sass = scaled_products.compile(*ARGS, both=False).sass
    loop = sass[sass.index("HGMMA") :]
    product = loop[: loop.index("gsb0")]  # the last instruction of the first product says so
    assert product.count("HGMMA") == 4
    assert "LDS" not in product
    assert "LDS" in loop[: loop.index("WARPGROUP.DEPBAR")]


def test_both_orders_give_what_numpy_gives():
    rng = np.random.default_rng(0)
    a, b, s, _ = (rng.standard_normal(x.shape).astype(x.dtype) for x in ARGS)
    expected = sum(
        (a[:, 64 * k : 64 * k + 64].astype(np.float64) * s[k][:, None])
        @ b[:, 64 * k : 64 * k + 64].astype(np.float64).T
        for k in range(2)
    )
    for both in (False, True):
        c = np.zeros((64, 256), F32)
        scaled_products(a, b, s, c, both=both)
        np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-4)
