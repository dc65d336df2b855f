"""Epilogues of products: each operand alone, with the others, and functions of the user."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens.kernels.gemm import gemm
from pykittens.kernels.gemm.config import Config
from pykittens.kernels.gemm.reference import reference
from tests.gemm_bounds import expected
from tests.gemm_problems import BLOCK_SCALES, Problem, results
from tests.gemm_random import drawn, fault_of
from tests.kernels.host_functions import tensor_of
from tests.runtime.c_programs import needs_compiler
from tests.tiers import halved

CONFIGS = {
    "plain": Config(64, 64, stages=2, consumers=1, out_cols=32),
    "two": Config(128, 32, stages=2, out_cols=16),
    "swap": Config(64, 48, stages=2, consumers=1, out_cols=16, swap=True),
    "splits": Config(128, 32, stages=2, out_cols=32, splits=3),
}
PLAIN = Problem(100, 90, 70, multiprocessors=5)
GATE = replace(PLAIN, extras={"gate": "bf16"}, activation="silu")
FP8 = replace(PLAIN, k=300, dtypes=("e4m3", "e4m3"))
EVERY = dict.fromkeys(("row_scale", "column_scale", "bias", "residual"), "f32")

PROBLEMS = {
    **{name: replace(PLAIN, extras={name: "f32"}) for name in EVERY},
    **{f"{name}-f16": replace(PLAIN, extras={name: "f16"}) for name in EVERY},
    "alpha": replace(PLAIN, numbers={"alpha": -1.25}),
    "alpha-0": replace(PLAIN, numbers={"alpha": 0.0}),
    "alpha-array": replace(PLAIN, numbers={"alpha": -1.25}, arrays=("alpha",)),
    "beta": replace(PLAIN, out=True, numbers={"beta": 0.5}),
    "beta-f32": replace(PLAIN, out=True, numbers={"beta": 1.0}, out_dtype="f32"),
    **{a: replace(PLAIN, activation=a) for a in ("relu", "gelu", "silu")},
    "gate": GATE,
    **{
        f"gate-{name}": replace(GATE, extras={"gate": "bf16", name: "f32"})
        for name in (*EVERY, "gate_bias", "gate_column_scale")
    },
    "gate-alphas": replace(GATE, numbers={"alpha": 2.0, "gate_alpha": 0.75}),
    "gate-alpha-array": replace(GATE, numbers={"gate_alpha": 0.75}, arrays=("gate_alpha",)),
    "gate-beta": replace(GATE, out=True, numbers={"beta": 0.5}),
    "all": replace(
        PLAIN,
        extras=EVERY | {"gate": "bf16", "gate_bias": "f16", "gate_column_scale": "bf16"},
        numbers={"alpha": 0.5, "beta": 2.0, "gate_alpha": -0.5},
        out=True,
        activation="gelu",
    ),
    "blocks": replace(FP8, extras=BLOCK_SCALES),
    "blocks-all": replace(FP8, extras=BLOCK_SCALES | EVERY, activation="relu", out_dtype="e5m2"),
    "gated-blocks": replace(FP8, extras=BLOCK_SCALES | {"gate": "e4m3", "gate_blocks": "f32"}),
    "wide": replace(PLAIN, leads=((2,), (2,)), extras=EVERY, wide=True),
}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_an_operand_does_what_its_name_says(name, config):
    assert fault_of(replace(PROBLEMS[name], config=CONFIGS[config])) == ""


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_reference_of_the_library_says_the_same(name):
    problem = PROBLEMS[name]
    arrays = {name: x.view() for name, x in problem.stored().items()}
    given = problem.given(arrays)
    options = "row_sums column_sums epilogue operands config out_dtype accumulate".split()
    found = reference(**{n: x for n, x in given.items() if n not in options})
    exact = expected(replace(problem, out_dtype="f32"), arrays)[0].value
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-12)


def test_numbers_may_be_whole_and_arrays_of_any_dtype():
    a, b = (np.random.default_rng(i).standard_normal((40, 50)).astype(np.float16) for i in (0, 1))
    once, out = gemm(a, b, out_dtype=pk.f32), np.ones((40, 40), np.float32)
    assert (gemm(a, b, out_dtype=pk.f32, alpha=2) == 2 * once).all()
    assert (gemm(a, b, out, beta=1) == once + 1).all()
    for dtype in (ml_dtypes.bfloat16, np.float16, np.float32, np.int32):
        for alpha in (np.array(2, dtype), np.array([2], dtype)):
            assert (gemm(a, b, out_dtype=pk.f32, alpha=alpha) == 2 * once).all()


@pk.function
def scaled(x, at, factor):
    """x * factor."""
    return x * factor


def test_an_operand_of_the_users_function_may_be_a_number():
    a, b = (np.random.default_rng(i).standard_normal((40, 50)).astype(np.float16) for i in (0, 1))
    once = gemm(a, b, out_dtype=pk.f32)
    for factor in (2.0, -0.5):
        found = gemm(a, b, out_dtype=pk.f32, epilogue=scaled, operands=(factor,))
        assert (found == factor * once).all()


@pytest.mark.parametrize(("stages", "turns"), halved([2, 3, 4, 5], [False, True]))
def test_operands_that_come_through_the_stages(stages, turns):
    """Parts of 64 columns of 16 bits fit a stage; with turns there must be stages for all of them."""
    problem = Problem(200, 300, 150, out=True, numbers={"beta": 0.5}, extras={"residual": "bf16"})
    config = Config(128, 128, stages=stages, turns=turns)
    for seed, splits in ((0, 1), (1, 2), (5, 1), (9, 3)):
        one = replace(config, splits=splits)
        assert fault_of(replace(problem, config=one, schedule=seed)) == ""
        plain = replace(problem, out=False, numbers={}, config=one, leads=((2,), (2,)))
        assert fault_of(replace(plain, schedule=seed)) == ""


FURTHER = {
    "sums": replace(PLAIN, row_sums=True, column_sums=True, extras={"bias": "f32"}),
    "sums-batch": replace(PLAIN, leads=((2, 1, 2), ()), row_sums=True),
    "function": replace(
        PLAIN, function="shifted", extras=dict.fromkeys(("row", "column", "tile"), "bf16")
    ),
}
ON_GPU = [(name, "splits") for name in (*PROBLEMS, *FURTHER)]
ON_GPU += [(name, config) for name in ("all", "beta") for config in ("plain", "swap")]


@needs_compiler
@pytest.mark.parametrize(("name", "config"), ON_GPU)
def test_calls_of_a_form_launch_with_their_own_operands_and_numbers(name, config, emulated):
    pytest.importorskip("torch")
    for seed in (0, 1):
        problem = replace((PROBLEMS | FURTHER)[name], config=CONFIGS[config], seed=seed)
        numbers = {n: x * (1 + seed / 2) for n, x in problem.numbers.items()}
        problem = replace(problem, numbers=numbers)
        expected = results(problem, {n: x.view() for n, x in problem.stored().items()})
        on_gpu = {n: x.view(tensor_of(x.memory)) for n, x in problem.stored().items()}
        found = results(problem, on_gpu)
        assert len(found) == len(expected)
        for x, y in zip(found, expected, strict=True):
            assert x.tolist() == tensor_of(y).tolist()
    assert len(emulated) == 1 + problem.row_sums + problem.column_sums


# -- sums ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [c for c in CONFIGS if c != "swap"])
@pytest.mark.parametrize("leads", [((), ()), ((2,), ()), ((2, 1, 2), (1,))])
def test_sums_of_rows_and_columns_are_of_what_is_stored(leads, config):
    problem = replace(PLAIN, leads=leads, config=CONFIGS[config], extras={"bias": "f32"})
    for rows, columns in ((True, False), (False, True), (True, True)):
        asked = replace(problem, row_sums=rows, column_sums=columns, activation="gelu")
        assert fault_of(asked) == ""


@pytest.mark.parametrize("extents", [(0, 70, 30), (70, 0, 30), (70, 30, 0), (1, 1, 1)])
def test_sums_of_little(extents):
    m, n, k = extents
    assert fault_of(Problem(m, n, k, row_sums=True, column_sums=True)) == ""


# -- functions of a user's -------------------------------------------------------------------------


@pytest.mark.parametrize("config", [c for c in CONFIGS if c != "swap"])
@pytest.mark.parametrize("function", ["shifted", "upper", "centred"])
def test_a_function_of_the_users_is_done_last(function, config):
    extras = {"bias": "f32"}
    if function == "shifted":
        extras |= dict.fromkeys(("row", "column", "tile"), "bf16")
    problem = replace(PLAIN, m=200, extras=extras, function=function, config=CONFIGS[config])
    assert fault_of(replace(problem, activation="relu")) == ""
    if function != "upper":
        batch = replace(problem, m=40, leads=((2, 1, 2), ()), row_sums=True)
        assert fault_of(batch) == ""


def test_a_wrong_result_is_noticed():
    """The bounds are none that anything passes."""
    problem = drawn(0)
    stored = problem.stored()
    exact = expected(problem, {name: x.view() for name, x in stored.items()})[0]
    assert (exact.error < 0.02 * (1 + abs(exact.value))).all()
