"""Products of groups that share out the axis of the sum, in the emulator, against float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import ArgumentError
from pykittens.kernels.gemm.config import Config
from pykittens.kernels.grouped_gemm import ends
from pykittens.kernels.grouped_gemm_k import grouped_gemm_k, reference
from tests import tolerance
from tests.kernels.test_grouped_gemm import offsets_of, parts

BF16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
CONFIGS = {
    "128x128": Config(128, 128, stages=3),
    "64x64": Config(64, 64, stages=2, consumers=1, out_cols=32, band=2),
    "128x64": Config(128, 64, stages=4, out_cols=16, out_stages=2, band=1),
    "alone": Config(64, 64, depth=64, stages=2, consumers=1, out_cols=32, warpgroups=False),
}
# Lengths of groups: random, empty ones, whole steps of 64, single elements, one that has all.
LENGTHS = {
    "random": (37, 130, 64, 5, 71),
    "empty": (0, 100, 0, 0, 130, 0),
    "steps": (64, 192, 128),
    "single": (1, 1, 1),
    "one": (0, 0, 300),
    "none": (0, 0),
}


def normal(*shape, dtype=BF16, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def assert_grouped(found, a, b, offsets):
    """Every element is a sum rounded once; a is m x k, b is k x n."""
    exact = reference(a, b, offsets)
    magnitude = reference(*(np.abs(x.astype(np.float64)) for x in (a, b)), offsets)
    inner = np.diff(offsets, prepend=0)[:, None, None]
    bound = tolerance.rounding(found.dtype, exact)
    bound = bound + 2 * (inner + 1) * tolerance.unit(F32) * magnitude
    tolerance.assert_within(found, exact, bound)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_group_sums_over_its_own_part(config, lengths):
    offsets = offsets_of(lengths)
    a, b = normal(offsets[-1] + 9, 150), normal(offsets[-1] + 9, 140, seed=1)
    out = np.full((len(lengths), 150, 140), np.nan, BF16)
    assert grouped_gemm_k(a.T, b, offsets, out, config=config) is out
    assert_grouped(out, a.T, b, offsets)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_order_in_which_roles_run_does_not_matter(config, seed, monkeypatch):
    monkeypatch.setenv("PYKITTENS_SEED", str(seed))
    offsets = ends(np.random.default_rng(seed), 5, 400)
    a, b = normal(410, 70), normal(410, 130, seed=1)
    assert_grouped(grouped_gemm_k(a.T, b, offsets, config=config), a.T, b, offsets)


@pytest.mark.parametrize("seed", range(6))
def test_random_groups_of_any_extents(seed):
    rng = np.random.default_rng(seed)
    groups, k, m, n = (int(x) for x in rng.integers(1, (10, 600, 200, 200)))
    offsets = ends(rng, groups, k)
    a, b = normal(k, m, seed=seed), normal(k, n, seed=seed + 1)
    assert_grouped(grouped_gemm_k(a.T, b, offsets), a.T, b, offsets)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_elements_of_other_groups_do_not_reach_a_result(config, poison):
    offsets = offsets_of(LENGTHS["random"])
    a, b = normal(320, 70), normal(320, 90, seed=1)
    for group, part in enumerate(parts(offsets)):
        lone_a, lone_b = np.full_like(a, poison), np.full_like(b, poison)
        lone_a[part], lone_b[part] = a[part], b[part]
        found = grouped_gemm_k(lone_a.T, lone_b, offsets, config=config)[group : group + 1]
        assert_grouped(found, a[part].T, b[part], np.array([part.stop - part.start]))


@pytest.mark.parametrize("b_lies", ["k x n", "n x k"])
@pytest.mark.parametrize("a_lies", ["k x m", "m x k"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_operands_may_lie_in_any_way(dtype, transposed, a_lies, b_lies):
    offsets = offsets_of(LENGTHS["random"])
    a = normal(77, 311, dtype=dtype) if a_lies == "m x k" else normal(311, 77, dtype=dtype).T
    b = normal(90, 311, dtype=dtype).T if b_lies == "n x k" else normal(311, 90, dtype=dtype)
    if transposed:
        found = grouped_gemm_k(a.T, b.T, offsets, transpose_a=True, transpose_b=True)
    else:
        found = grouped_gemm_k(a, b, offsets)
    assert found.dtype == dtype
    assert_grouped(found, a, b, offsets)


def test_views_out_of_the_copy_engines_reach():
    offsets = offsets_of(LENGTHS["random"])
    a, b = normal(320, 101)[:, 1:], normal(320, 61, seed=1)[:, 1:]
    whole = np.full((7, 102, 80), np.nan, BF16)
    out = whole[1:6, 1:101, 3:63]
    grouped_gemm_k(a.T, b, offsets, out)
    assert_grouped(out, a.T, b, offsets)
    out[:] = np.nan
    assert np.isnan(whole.astype(F32)).all()


def test_sums_in_f32_and_an_output_that_lies_the_other_way():
    offsets = offsets_of(LENGTHS["empty"])
    a, b = normal(240, 60), normal(240, 50, seed=1)
    assert_grouped(grouped_gemm_k(a.T, b, offsets, out_dtype=pk.f32), a.T, b, offsets)
    out = np.full((6, 50, 60), np.nan, BF16).swapaxes(1, 2)
    assert grouped_gemm_k(a.T, b, offsets, out) is out
    assert_grouped(out, a.T, b, offsets)


def test_offsets_beyond_the_elements_and_back():
    a, b = normal(150, 60), normal(150, 40, seed=1)
    found = grouped_gemm_k(a.T, b, np.array([30, 100, 60, 9999], np.int32))
    assert_grouped(found[:2], a.T, b, np.array([30, 100]))
    assert (found[2] == 0).all()
    assert_grouped(found[3:], a[60:].T, b[60:], np.array([90]))


def test_nothing_to_sum_is_zero_and_no_groups_give_nothing():
    found = grouped_gemm_k(normal(50, 0), normal(0, 40), np.zeros(3, np.int32))
    assert (found == np.zeros((3, 50, 40))).all()
    assert grouped_gemm_k(normal(50, 9), normal(9, 40), np.zeros(0, np.int32)).shape == (0, 50, 40)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": normal(30)}, "`a` must have rank 2, not 1"),
        ({"b": normal(31, 50)}, r"`b` must have the shape \(30, n\), not \(31, 50\)"),
        ({"b": normal(30, 50, dtype=F16)}, "`b` must have the dtype of `a`"),
        ({"b": normal(30, 50, dtype=F32)}, "`b` must be bf16 or f16, not f32"),
        ({"offsets": np.zeros(2, np.int64)}, "`offsets` must be int32, not int64"),
        ({"out": normal(3, 40, 50)}, r"`out` must have the shape \(2, 40, 50\)"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    given = {"a": normal(40, 30), "b": normal(30, 50), "offsets": offsets_of((20, 10))}
    with pytest.raises(ArgumentError, match=f"grouped_gemm_k: {message}"):
        grouped_gemm_k(**(given | change))
