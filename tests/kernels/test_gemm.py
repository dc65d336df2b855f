"""Matrix products of the library in the emulator, in every configuration, against float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pykittens.errors import ArgumentError, ResourceError
from pykittens.kernels.core import Limits
from pykittens.kernels.gemm import CONFIGS, config_for, gemm, gemm_tiles, inputs, reference
from pykittens.runtime.arguments import check
from pykittens.targets.target import TARGETS
from tests import tolerance

BF16, F16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
SIZES = [(1, 1, 1), (300, 290, 100), (257, 129, 65)]
IDS = [f"{c.rows}x{c.cols}x{c.depth}x{c.stages}" for c in CONFIGS]


def assert_product(found, a, b, transpose_b=True):
    """Every element is a product rounded once."""
    wide_a, wide_b = np.abs(a.astype(np.float64)), np.abs(b.astype(np.float64))
    magnitude = wide_a @ (wide_b.T if transpose_b else wide_b)
    exact = reference(a, b, transpose_b)
    tolerance.assert_within(
        found, exact, tolerance.product(found.dtype, exact, magnitude, a.shape[1])
    )


def normal(*shape, dtype=BF16, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("transpose_b", [True, False])
@pytest.mark.parametrize("sizes", SIZES, ids=lambda s: "x".join(map(str, s)))
@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_a_configuration_multiplies_at_any_size(config, sizes, transpose_b):
    given = inputs(np.random.default_rng(sum(sizes)), *sizes, transpose_b)
    assert_product(gemm(**given, config=config), given["a"], given["b"], transpose_b)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_the_order_in_which_roles_run_does_not_matter(config, seed, monkeypatch):
    monkeypatch.setenv("PYKITTENS_SEED", str(seed))
    a, b = normal(270, 150), normal(270, 150, seed=1)
    assert_product(gemm(a, b, config=config), a, b)


def test_f16_gives_f16():
    a, b = normal(100, 70, dtype=F16), normal(50, 70, dtype=F16, seed=1)
    found = gemm(a, b)
    assert found.dtype == F16
    assert_product(found, a, b)


@pytest.mark.parametrize("transpose_b", [True, False])
def test_views_out_of_the_copy_engines_reach(transpose_b):
    a, b = normal(90, 101)[:, 1:], normal(100, 101, seed=1)[:, 1:]
    whole = np.full((92, 130), np.nan, BF16)
    out = whole[1:91, 3:103]
    assert gemm(a, b, out, transpose_b=transpose_b) is out
    assert_product(out, a, b, transpose_b)
    out[:] = np.nan
    assert np.isnan(whole.astype(np.float32)).all()


def test_a_product_over_nothing_is_zero_and_one_of_no_rows_is_empty():
    assert (gemm(normal(130, 0), normal(70, 0)) == np.zeros((130, 70))).all()
    assert gemm(normal(0, 64), normal(70, 64)).shape == (0, 70)


@pytest.mark.parametrize(("target", "place"), [("sm_90a", 0), ("sm_80", 1), ("sm_89", 2)])
def test_each_target_has_its_configuration(target, place):
    t = TARGETS[target]
    assert config_for(Limits(target, t.shared_bytes, t.warpgroups)) == CONFIGS[place]


@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_a_configuration_knows_its_shared_memory(config):
    a = normal(16, 16)
    emitted = gemm_tiles.emitted(a, a.copy(), a.copy(), config=config, transpose_b=True)
    assert emitted.shared_bytes == config.shared_bytes


def test_a_gpu_with_too_little_shared_memory_is_told():
    with pytest.raises(
        ResourceError, match="no configuration fits sm_75: the smallest takes 90176"
    ):
        config_for(Limits("sm_75", 64 * 1024, warpgroups=False))


def test_a_configuration_is_part_of_the_specialisation():
    a = normal(16, 16)

    def recorded(config):
        constants = {"config": config, "transpose_b": True}
        return gemm_tiles.record(check(gemm_tiles.parameters, (a, a.copy(), a.copy()), constants))

    again = type(CONFIGS[0])(**vars(CONFIGS[0]))
    assert recorded(CONFIGS[0]) is recorded(again)
    assert recorded(CONFIGS[0]) is not recorded(CONFIGS[1])


def test_extents_that_do_not_fit_are_refused():
    with pytest.raises(ArgumentError, match="the inner extents of a and b must be equal"):
        gemm(normal(16, 32), normal(32, 16))
    with pytest.raises(ArgumentError, match="out must have the rows of a"):
        gemm(normal(16, 32), normal(48, 32), normal(16, 40))
    with pytest.raises(ArgumentError, match="gemm: `out` must have the dtype of `a`"):
        gemm(normal(16, 32), normal(48, 32), normal(16, 48, dtype=F16))
