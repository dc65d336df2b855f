"""Products of many shapes of tile compile clean and are right in the emulator."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from pykittens.runtime import nvrtc
from tests import kernels_flight, kernels_pipeline
from tests.kernels_matmul import VARIANTS, tiled_matmul
from tests.targets.clean import frame, spills
from tests.targets.compiling import matrix
from tests.tiers import sampled


def operands(tiles, m=200, n=300, k=136):
    """Random operands, the poisoned output and the expected output."""
    dtype = np.float16 if tiles.half else ml_dtypes.bfloat16
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k)).astype(dtype)
    b = rng.standard_normal((n, k) if tiles.transposed else (k, n)).astype(dtype)
    right = b.astype(np.float64).T if tiles.transposed else b.astype(np.float64)
    return a, b, np.full((m, n), np.nan, dtype), a.astype(np.float64) @ right


def way_of_multiplying(name):
    """A variant without its extents."""
    return replace(VARIANTS[name], groups=0, rows=0, cols=0, depth=0, stages=0)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_shape_of_tile_is_right_in_the_emulator(name):
    a, b, c, expected = operands(VARIANTS[name])
    tiled_matmul(a, b, c, tiles=VARIANTS[name])
    assert np.linalg.norm(c.astype(np.float64) - expected) <= 2.0**-8 * np.linalg.norm(expected)


@pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
@pytest.mark.parametrize("name", sampled(VARIANTS, way_of_multiplying))
def test_a_shape_of_tile_compiles_clean(name):
    a, b, c, _ = operands(VARIANTS[name])
    compiled = tiled_matmul.compile(a, b, c, tiles=VARIANTS[name])
    assert (spills(compiled), frame(compiled)) == ([], 0)


BF16 = ml_dtypes.bfloat16
MOVING = {
    "interleaved": (kernels_pipeline.interleaved, [(128, 64)] * 3, np.float32, {}),
    "by_parts": (kernels_pipeline.by_parts, [(128, 128)] * 2, BF16, {}),
    "two_fillers": (kernels_pipeline.two_fillers, [(128, 64), (128, 128)], np.float32, {}),
    "mixed_fill": (kernels_pipeline.mixed_fill, [(128, 16), (128, 32)], BF16, {}),
    "taken_over": (kernels_pipeline.taken_over, [(64, 256), (64, 128)], BF16, {}),
} | {
    f"batched_{name}": (
        kernels_pipeline.batched,
        [(2, 3, 2, 64, 32)] * 2,
        np.int32,
        {"order": order},
    )
    for name, order in kernels_pipeline.ORDERS.items()
}


@pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
@pytest.mark.parametrize("name", MOVING)
@pytest.mark.parametrize("aligned", [True, False])
def test_a_way_of_moving_tiles_compiles_clean(name, aligned):
    kernel, shapes, dtype, constants = MOVING[name]
    args = [matrix(*shape, dtype=np.dtype(dtype), aligned=aligned) for shape in shapes]
    compiled = kernel.compile(*args, **constants)
    assert (spills(compiled), frame(compiled)) == ([], 0)


@pytest.mark.parametrize("way", kernels_flight.WAYS)
def test_products_carried_round_a_loop_are_never_copied_in_flight(way):
    a, b = (np.random.default_rng(i).standard_normal((100, 300)).astype(BF16) for i in (0, 1))
    c = np.full((100, 100), np.nan, np.float32)
    kernels_flight.carried_products(a, b, c, way=way)
    exact = kernels_flight.expected(a.astype(np.float64), b.astype(np.float64), way)
    assert np.abs(c - exact).max() <= 1e-4
    if nvrtc.available() is None:
        compiled = kernels_flight.carried_products.compile(a, b, c, way=way)
        assert spills(compiled) == []
