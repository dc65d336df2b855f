"""Products of groups of rows in the emulator, against float64, and what they compile to."""

from __future__ import annotations

import math
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import ArgumentError, ResourceError
from pykittens.kernels.gemm.config import Config, GemmShape
from pykittens.kernels.gemm.grouped_choose import pick_rows
from pykittens.kernels.grouped_gemm import ends, grouped_gemm
from pykittens.kernels.limits import Limits
from pykittens.targets.architectures import TARGETS
from tests import tolerance
from tests.kernels.host_functions import tensor_of
from tests.runtime.c_programs import needs_compiler

BF16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
# Tiles of the sides that warpgroups have, and smaller ones with several bands of rows and parts of the output.
CONFIGS = {
    "128x128": Config(128, 128, stages=3),
    "64x64": Config(64, 64, stages=2, consumers=1, out_cols=32, band=2),
    "128x32": Config(128, 32, stages=4, out_cols=16, out_stages=2, band=1),
    "alone": Config(64, 64, depth=64, stages=2, consumers=1, out_cols=32, warpgroups=False),
}
# Sizes of groups: random, empty ones at the start, between and at the end, of single rows, one that has all.
SIZES = {
    "random": (37, 130, 64, 5, 71),
    "empty": (0, 100, 0, 0, 130, 0),
    "single": (1, 1, 1, 1, 1),
    "one": (0, 0, 300),
    "whole": (128, 64, 256),
    "alone": (200,),
    "none": (0, 0),
}


def normal(*shape, dtype=BF16, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def positive(*shape, seed=0):
    return np.random.default_rng(seed).uniform(0.5, 2, shape).astype(F32)


def offsets_of(sizes):
    return np.cumsum(sizes).astype(np.int32)


def parts(offsets):
    """The rows of each group."""
    return [slice(b, e) for b, e in zip((0, *offsets[:-1]), offsets, strict=True)]


def linear(a, b, offsets, scale=1.0, bias=0.0):
    """scale * (a @ b[g].T) + bias[g] in float64, and the bound of the error in f32; NaN and 0 past the last group."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    exact, magnitude = np.full((len(a), b.shape[1]), np.nan), np.zeros((len(a), b.shape[1]))
    for part, matrix in zip(parts(offsets), b, strict=True):
        exact[part] = a[part] @ matrix.T
        magnitude[part] = np.abs(a[part]) @ np.abs(matrix.T)
    unit, steps = tolerance.unit(F32), 2 * (a.shape[1] + 5)
    magnitude = np.abs(scale) * magnitude + np.abs(bias)
    return scale * exact + bias, steps * unit * magnitude


def assert_grouped(found, exact, error, offsets):
    """Rows of groups are within the bound of their float64 values, once rounded; other rows are still NaN."""
    bound = tolerance.rounding(found.dtype, exact) + error
    total = offsets[-1]
    tolerance.assert_within(found[:total], exact[:total], bound[:total])
    assert np.isnan(found[total:].astype(np.float32)).all()


def untouched(rows, cols, dtype=BF16):
    return np.full((rows, cols), np.nan, dtype)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_group_is_multiplied_by_its_own_matrix(config, sizes):
    offsets = offsets_of(sizes)
    rows = offsets[-1] + 9  # some that are in no group
    a, b = normal(rows, 100), normal(len(sizes), 150, 100, seed=1)
    out = untouched(rows, 150)
    assert grouped_gemm(a, b, offsets, out, config=config) is out
    assert_grouped(out, *linear(a, b, offsets), offsets)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_order_in_which_roles_run_does_not_matter(config, seed, monkeypatch):
    monkeypatch.setenv("PYKITTENS_SEED", str(seed))
    offsets = ends(np.random.default_rng(seed), 7, 400)
    a, b = normal(410, 70), normal(7, 130, 70, seed=1)
    out = untouched(410, 130)
    grouped_gemm(a, b, offsets, out, config=config)
    assert_grouped(out, *linear(a, b, offsets), offsets)


@pytest.mark.parametrize("seed", range(6))
def test_random_groups_of_any_extents(seed):
    rng = np.random.default_rng(seed)
    groups, rows, n, k = (int(x) for x in rng.integers(1, (12, 500, 200, 150)))
    offsets = ends(rng, groups, rows)
    a, b = normal(rows, k, seed=seed), normal(groups, n, k, seed=seed + 1)
    out = untouched(rows, n)
    grouped_gemm(a, b, offsets, out)
    assert_grouped(out, *linear(a, b, offsets), offsets)


@pytest.mark.parametrize("b_lies", ["n x k", "k x n"])
@pytest.mark.parametrize("a_lies", ["m x k", "k x m"])
@pytest.mark.parametrize("transpose_b", [True, False])
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_operands_may_lie_in_any_way(dtype, transpose_b, a_lies, b_lies):
    offsets = offsets_of(SIZES["random"])
    a = normal(320, 77, dtype=dtype) if a_lies == "m x k" else normal(77, 320, dtype=dtype).T
    b = normal(5, 90, 77, dtype=dtype, seed=1)
    if b_lies == "k x n":
        b = np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)
    out = untouched(320, 90, dtype)
    grouped_gemm(a, b if transpose_b else b.swapaxes(1, 2), offsets, out, transpose_b=transpose_b)
    assert_grouped(out, *linear(a, b, offsets), offsets)


def test_views_out_of_the_copy_engines_reach():
    offsets = offsets_of(SIZES["random"])
    a, b = normal(320, 101)[:, 1:], normal(5, 60, 101, seed=1)[..., 1:]
    whole = untouched(322, 80)
    out = whole[1:321, 3:63]
    grouped_gemm(a, b, offsets, out)
    assert_grouped(out, *linear(a, b, offsets), offsets)
    out[:] = np.nan
    assert np.isnan(whole.astype(F32)).all()


def test_an_output_that_lies_the_other_way_keeps_what_is_in_no_group():
    offsets = offsets_of(SIZES["random"])
    a, b = normal(320, 60), normal(5, 40, 60, seed=1)
    out = untouched(40, 320).T
    assert grouped_gemm(a, b, offsets, out) is out
    assert_grouped(out, *linear(a, b, offsets), offsets)


def test_offsets_that_are_a_view_and_that_go_beyond_the_rows():
    a, b = normal(150, 60), normal(3, 40, 60, seed=1)
    offsets = np.array([30, 0, 100, 0, 9999, 0], np.int32)[::2]
    found = grouped_gemm(a, b, offsets)
    exact, error = linear(a, b, offsets.clip(0, 150))
    tolerance.assert_within(found, exact, tolerance.rounding(BF16, exact) + error)


def test_rows_of_other_groups_do_not_reach_a_result():
    sizes = SIZES["random"]
    offsets = offsets_of(sizes)
    a, b = normal(320, 64), normal(5, 40, 64, seed=1)
    for group, part in enumerate(parts(offsets)):
        poisoned = np.full_like(a, np.nan)
        poisoned[part] = a[part]
        found = grouped_gemm(poisoned, b, offsets)
        exact, error = linear(a[part], b[group : group + 1], np.array([sizes[group]]))
        tolerance.assert_within(found[part], exact, tolerance.rounding(BF16, exact) + error)


def test_a_sum_over_nothing_is_zero_and_no_groups_write_nothing():
    offsets, out = offsets_of((50, 20)), untouched(80, 40)
    grouped_gemm(normal(80, 0), normal(2, 40, 0), offsets, out)
    assert (out[:70] == 0).all()
    assert np.isnan(out[70:].astype(F32)).all()
    grouped_gemm(normal(80, 8), normal(0, 40, 8), np.zeros(0, np.int32), untouched(80, 40))
    assert grouped_gemm(normal(0, 8), normal(2, 40, 8), offsets).shape == (0, 40)


# -- the epilogue ----------------------------------------------------------------------------------

ACTIVATIONS = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x / 2 * (1 + np.vectorize(math.erf)(x / np.sqrt(2))),
}
STEEPEST = 1.13  # the largest slope of these functions
FUNCTION = 2.0**-19  # their error in f32 relative to what they are given


def activated(name, exact, error):
    return ACTIVATIONS[name](exact), STEEPEST * error + FUNCTION * np.abs(exact)


def times(x, y):
    """The product of two numbers that have errors."""
    (x, dx), (y, dy) = x, y
    error = np.abs(x) * dy + np.abs(y) * dx + dx * dy + tolerance.unit(F32) * np.abs(x * y)
    return x * y, error


def of_rows(per_group, offsets, rows):
    """Numbers of each group as those of its rows."""
    out = np.zeros((rows, per_group.shape[-1]))
    for part, numbers in zip(parts(offsets), per_group, strict=True):
        out[part] = numbers
    return out


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_bias_and_an_activation(activation):
    offsets = offsets_of(SIZES["random"])
    a, b, bias = normal(312, 60), normal(5, 70, 60, seed=1), normal(5, 70, seed=2)
    out = untouched(312, 70, F32)
    grouped_gemm(a, b, offsets, out, bias=bias, activation=activation)
    x = linear(a, b, offsets, bias=of_rows(bias.astype(np.float64), offsets, 312))
    assert_grouped(out, *activated(activation, *x), offsets)


@pytest.mark.parametrize("config", [None, CONFIGS["128x32"]], ids=["picked", "128x32"])
def test_a_gate(config):
    offsets = offsets_of(SIZES["random"])
    a, b, gate = normal(310, 60), normal(5, 60, 70, seed=1), normal(5, 60, 70, seed=2)
    bias, gate_bias = normal(5, 70, seed=3), normal(5, 70, seed=4)
    out = untouched(310, 70)
    given = {"bias": bias, "gate": gate, "gate_bias": gate_bias, "activation": "silu"}
    grouped_gemm(a, b, offsets, out, transpose_b=False, config=config, **given)
    wide, narrow = (of_rows(x.astype(np.float64), offsets, 310) for x in (bias, gate_bias))
    x = activated("silu", *linear(a, b.swapaxes(1, 2), offsets, bias=wide))
    y = linear(a, gate.swapaxes(1, 2), offsets, bias=narrow)
    assert_grouped(out, *times(x, y), offsets)


@pytest.mark.parametrize("dtypes", [(E4M3, E4M3), (E4M3, E5M2)], ids=["e4m3", "e4m3-e5m2"])
@pytest.mark.parametrize("transpose_b", [True, False])
def test_fp8_with_scales_of_rows_and_columns(dtypes, transpose_b):
    offsets = offsets_of(SIZES["random"])
    a, b = normal(310, 150, dtype=dtypes[0]), normal(5, 70, 150, dtype=dtypes[1], seed=1)
    rows, cols = positive(310, seed=2), positive(5, 70, seed=3)
    right = b if transpose_b else np.ascontiguousarray(b.swapaxes(1, 2))
    out = untouched(310, 70)
    given = {"row_scale": rows, "column_scale": cols, "transpose_b": transpose_b}
    grouped_gemm(a, right, offsets, out, **given)
    scale = rows.astype(np.float64)[:, None] * of_rows(cols, offsets, 310)
    assert_grouped(out, *linear(a, b, offsets, scale), offsets)


def test_the_scales_of_rows_are_those_of_the_gate_too():
    offsets = offsets_of(SIZES["random"])
    a = normal(310, 130, dtype=E4M3)
    b, gate = normal(5, 70, 130, dtype=E4M3, seed=1), normal(5, 70, 130, dtype=E4M3, seed=2)
    rows, cols, gate_cols = positive(310), positive(5, 70, seed=3), positive(5, 70, seed=4)
    out = untouched(310, 70, F32)
    given = {"row_scale": rows, "column_scale": cols, "gate_column_scale": gate_cols}
    grouped_gemm(a, b, offsets, out, gate=gate, **given)
    scale, gate_scale = (rows[:, None] * of_rows(x, offsets, 310) for x in (cols, gate_cols))
    x, y = linear(a, b, offsets, scale), linear(a, gate, offsets, gate_scale)
    assert_grouped(out, *times(x, y), offsets)


def scaled_by_blocks(a, row_blocks, b, column_blocks):
    """Operands with their scales of blocks, as float64."""
    wide = np.repeat(row_blocks, 128, axis=1)[:, : a.shape[1]]
    tall = column_blocks.repeat(128, axis=1).repeat(128, axis=2)[:, : b.shape[1], : b.shape[2]]
    return a.astype(np.float64) * wide, b.astype(np.float64) * tall


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize(("n", "k"), [(256, 256), (200, 300), (64, 128)])
def test_fp8_with_scales_of_blocks(n, k, gated):
    offsets = offsets_of(SIZES["random"])
    blocks = -(-n // 128), -(-k // 128)
    a, b, gate = normal(310, k, dtype=E4M3), *(normal(5, n, k, dtype=E4M3, seed=i) for i in (1, 2))
    rows, cols = positive(310, blocks[1]), positive(5, *blocks, seed=3)
    gate_cols = positive(5, *blocks, seed=4)
    out = untouched(310, n)
    given = {"row_blocks": rows, "column_blocks": cols}
    given |= {"gate": gate, "gate_blocks": gate_cols} if gated else {}
    grouped_gemm(a, b, offsets, out, **given)
    x = linear(*scaled_by_blocks(a, rows, b, cols), offsets)
    if gated:
        x = times(x, linear(*scaled_by_blocks(a, rows, gate, gate_cols), offsets))
    assert_grouped(out, *x, offsets)


def test_the_dtype_of_the_result():
    offsets = offsets_of((20, 10))
    a, b = normal(30, 40), normal(2, 50, 40, seed=1)
    assert grouped_gemm(a, b, offsets).dtype == BF16
    assert grouped_gemm(a.astype(E4M3), b.astype(E4M3), offsets).dtype == BF16
    found = grouped_gemm(a, b, offsets, out_dtype=pk.f32)
    exact, error = linear(a, b, offsets)
    tolerance.assert_within(found, exact, tolerance.rounding(F32, exact) + error)


@needs_compiler
def test_a_call_like_one_before_is_launched_with_its_own_arrays(emulated):
    pytest.importorskip("torch")
    for seed, sizes in enumerate((SIZES["random"], (0, 300, 0, 7, 0))):
        offsets = offsets_of(sizes)
        a, b = normal(310, 60, seed=seed), normal(5, 70, 60, seed=seed + 1)
        bias, rows, out = normal(5, 70, seed=2), positive(310, seed=seed), untouched(310, 70, F32)
        tensors = [tensor_of(x) for x in (a, b, offsets, out)]
        given = {"bias": tensor_of(bias), "row_scale": tensor_of(rows)}
        assert grouped_gemm(*tensors, **given) is tensors[-1]
        scale, wide = rows[:, None].astype(np.float64), of_rows(bias.astype(float), offsets, 310)
        assert_grouped(out, *linear(a, b, offsets, scale, wide), offsets)
    assert len(emulated) == 1


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": normal(30)}, "`a` must have rank 2, not 1"),
        ({"b": normal(40, 50)}, r"`b` must have the shape \(groups, n, 40\), not \(40, 50\)"),
        ({"b": normal(2, 50, 41)}, r"`b` must have the shape \(groups, n, 40\), not \(2, 50, 41\)"),
        ({"transpose_b": False}, r"`b` must have the shape \(groups, 40, n\), not \(2, 50, 40\)"),
        ({"b": normal(2, 50, 40, dtype=F16)}, "`b` must have the dtype of `a`"),
        ({"a": normal(30, 40, dtype=F32)}, "`a` must be bf16, f16, e4m3 or e5m2, not f32"),
        ({"offsets": np.zeros(3, np.int32)}, r"`offsets` must have the shape \(2,\), not \(3,\)"),
        ({"offsets": np.zeros(2, np.int64)}, "`offsets` must be int32, not int64"),
        ({"offsets": [10, 30]}, "`offsets` must be an array, not list"),
        ({"out": normal(30, 51)}, r"`out` must have the shape \(30, 50\)"),
        ({"out": normal(30, 50), "out_dtype": pk.f32}, "`out` is bf16, and `out_dtype` says f32"),
        ({"out_dtype": pk.int32}, "the result can be bf16, f16, f32, e4m3 or e5m2, not int32"),
        ({"bias": normal(50)}, r"`bias` must have the shape \(2, 50\)"),
        ({"row_scale": positive(2)}, r"`row_scale` must have the shape \(30,\)"),
        ({"gate_bias": normal(2, 50)}, "`gate_bias` goes with `gate`, which is missing"),
        ({"row_blocks": positive(30, 1)}, "`row_blocks` goes with `column_blocks`"),
        ({"column_blocks": positive(2, 1, 1)}, "`column_blocks` goes with `row_blocks`"),
        (
            {"row_blocks": positive(30, 1), "column_blocks": positive(2, 1, 1)},
            "`row_blocks` scale blocks of fp8, and `a` is bf16",
        ),
        (
            {"gate": normal(2, 50, 40), "row_blocks": positive(30, 1)}
            | {"column_blocks": positive(2, 1, 1)},
            "`gate` goes with `gate_blocks`, which is missing",
        ),
        ({"gate_blocks": positive(2, 1, 1)}, "`gate_blocks` goes with `gate`, which is missing"),
        ({"gate": normal(2, 50, 40, dtype=F16)}, "`gate` must have the dtype of `b`"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    given = {"a": normal(30, 40), "b": normal(2, 50, 40), "offsets": offsets_of((20, 10))}
    with pytest.raises(ArgumentError, match=message):
        grouped_gemm(**(given | change))


# -- the configuration -----------------------------------------------------------------------------


def limits(target):
    t = TARGETS[target]
    return Limits(target, t.shared_bytes, t.warpgroups)


HOPPER = limits("sm_90a")


def test_groups_of_few_rows_have_smaller_tiles():
    few = pick_rows(GemmShape(512, 4096, 4096, may_swap=False), 64, HOPPER)
    many = pick_rows(GemmShape(16384, 4096, 4096, may_swap=False), 8, HOPPER)
    assert (few.rows, few.consumers) == (64, 1)
    assert (many.rows, many.cols, many.consumers) == (128, 256, 2)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("n", [24, 100, 4096])
def test_every_shape_has_a_configuration_that_fits(target, gated, blocks, n):
    for m in (64, 16384):
        for out_bytes in (1, 2, 4):
            bytes = 1 if blocks else 2
            shape = GemmShape(m, n, 4096, 1, bytes, out_bytes, gated, blocks, may_swap=False)
            config = pick_rows(shape, 8, limits(target))
            assert config.shared_bytes(out_bytes, gated) <= TARGETS[target].shared_bytes
            assert config.stages >= 2
            assert config.warpgroups == TARGETS[target].warpgroups


def test_a_gpu_with_too_little_shared_memory_is_told():
    with pytest.raises(ResourceError, match="grouped_gemm: no configuration fits sm_10"):
        pick_rows(
            GemmShape(512, 512, 512, may_swap=False), 2, Limits("sm_10", 16384, warpgroups=False)
        )


@pytest.mark.parametrize(("word", "value"), [("swap", True), ("splits", 2), ("turns", True)])
def test_a_configuration_that_groups_do_not_know_is_refused(word, value):
    given = normal(30, 40), normal(2, 50, 40), offsets_of((20, 10))
    with pytest.raises(ArgumentError, match=f"`config` must not have `{word}`"):
        grouped_gemm(*given, config=replace(CONFIGS["64x64"], **{word: value}))


@pytest.mark.parametrize(
    ("message", "given"),
    [
        ("grouped_gemm: `config` must be a Config, not str", {"config": "fast"}),
        ("cannot be stored in parts of 48", {"config": replace(CONFIGS["64x64"], out_cols=48)}),
        ("`activation` must be one of '', 'relu', 'gelu'", {"activation": None}),
        ("`out_dtype` must be a dtype such as pk.f32, not 'f32'", {"out_dtype": "f32"}),
    ],
    ids=["word", "parts", "activation", "dtype"],
)
def test_what_no_call_can_mean_is_refused(message, given):
    with pytest.raises(ArgumentError, match=message):
        grouped_gemm(normal(30, 40), normal(2, 50, 40), offsets_of((20, 10)), **given)


def test_tiles_of_several_blocks_are_refused():
    a, b = (normal(*s).astype(ml_dtypes.float8_e4m3fn) for s in ((30, 40), (2, 50, 40)))
    scales = {"row_blocks": np.ones((30, 1), np.float32)}
    scales |= {"column_blocks": np.ones((2, 1, 1), np.float32)}
    config = replace(CONFIGS["64x64"], cols=192)
    with pytest.raises(ArgumentError, match="tiles of 192 columns have scales of several blocks"):
        grouped_gemm(a, b, offsets_of((20, 10)), config=config, **scales)


def test_an_output_that_cannot_be_written_is_refused():
    out = normal(30, 50)
    out.flags.writeable = False
    with pytest.raises(ArgumentError, match="`out` is written and is read-only"):
        grouped_gemm(normal(30, 40), normal(2, 50, 40), offsets_of((20, 10)), out)


def test_a_configuration_does_not_change_the_result():
    offsets = offsets_of(SIZES["random"])
    a, b = normal(307, 96), normal(5, 80, 96, seed=1)
    first = grouped_gemm(a, b, offsets, config=CONFIGS["128x128"])
    one = replace(CONFIGS["64x64"], out_stages=3, band=8)
    for config in (CONFIGS["64x64"], one, replace(one, out_cols=64)):
        assert (grouped_gemm(a, b, offsets, config=config) == first).all()
