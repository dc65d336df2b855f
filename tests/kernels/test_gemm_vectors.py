"""Products of few rows by vectors: results against float64, the epilogue, the checker, and which calls take them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pykittens as pk
from pykittens.checker.runs import run_schedules
from pykittens.emulate import machine
from pykittens.errors import ArgumentError
from pykittens.kernels.gemm import gemm, gemm_vectors
from pykittens.kernels.gemm.choose import candidates
from pykittens.kernels.gemm.config import UNIT, Config, GemmShape
from pykittens.kernels.gemm.tune import contenders
from pykittens.kernels.limits import Limits
from pykittens.targets.architectures import TARGETS
from tests.gemm_problems import Layout, Problem, arguments_of, results
from tests.gemm_random import fault_of
from tests.launches import BLOCKS, Launch

HOPPER = Limits("sm_90a", TARGETS["sm_90a"].shared_bytes, warpgroups=True)
ODD = Layout(lines="odd")


def by_vectors(each=1, depth=1024, stages=3):
    """Warps with `each` rows of b at a time, in parts of `depth` bytes."""
    return Config(
        16 * each, UNIT, depth, stages, consumers=each, out_cols=UNIT, swap=True, vectors=16
    )


CONFIGS = {
    "plain": by_vectors(),
    "short": by_vectors(depth=512, stages=2),
    "two-rows": by_vectors(2),
    "four-rows": by_vectors(4, 512),
    "fewer-warps": replace(by_vectors(2, 512), rows=16, consumers=1, vectors=8),
    "long": by_vectors(2, 2048),
}


@pytest.mark.parametrize("k", [0, 1, 7, 63, 256, 937, 1024, 4097])
@pytest.mark.parametrize("m", [1, 2, 3, 5, 8])
def test_any_number_of_rows_and_any_length(m, k):
    for n, config in zip((1, 15, 33, 70), (*CONFIGS.values(),), strict=False):
        assert fault_of(Problem(m, n, k, config=config)) == ""


@pytest.mark.parametrize("name", CONFIGS)
def test_every_configuration_with_several_tasks_of_a_block(name, monkeypatch):
    monkeypatch.setattr(machine, "BLOCKS", BLOCKS)
    for m, n, k in ((4, 201, 700), (1, 130, 2100)):
        problem = Problem(m, n, k, config=CONFIGS[name], schedule=1)
        assert fault_of(problem) == ""
        assert fault_of(replace(problem, dtypes=("f16", "f16"), accumulate="f16")) == ""


@pytest.mark.parametrize("lines", ["odd", "padded"])
@pytest.mark.parametrize("names", ["a", "b", "ab"])
def test_operands_at_any_address(names, lines):
    layouts = dict.fromkeys(names, Layout(lines=lines))
    for m, n, k in ((1, 40, 937), (3, 40, 1000), (8, 17, 520)):
        problem = Problem(m, n, k, layouts=layouts, config=CONFIGS["plain"])
        assert fault_of(problem) == ""
        assert fault_of(replace(problem, config=CONFIGS["two-rows"])) == ""


@pytest.mark.parametrize("name", "ab")
@pytest.mark.parametrize(
    "layout", [Layout(repeated=True), Layout(backwards=True), Layout(step=2)], ids=str
)
def test_other_strides(name, layout):
    problem = Problem(4, 50, 600, layouts={name: layout}, config=CONFIGS["plain"])
    assert fault_of(problem) == ""


EPILOGUES = {
    "bias": {"extras": {"bias": "bf16"}, "activation": "relu"},
    "scales": {"extras": {"row_scale": "f32", "column_scale": "f32"}, "activation": "silu"},
    "residual": {"extras": {"residual": "f32"}, "activation": "gelu"},
    "beta": {"out": True, "numbers": {"alpha": 0.5, "beta": 2.0}, "layouts": {"out": ODD}},
    "alpha-array": {"numbers": {"alpha": 2.0}, "arrays": ("alpha",), "out_dtype": "f32"},
    "fp8": {"out_dtype": "e4m3"},
    "gate": {
        "extras": {
            "gate": "bf16",
            "bias": "f32",
            "gate_bias": "bf16",
            "gate_column_scale": "f32",
            "residual": "bf16",
        },
        "numbers": {"gate_alpha": 0.75},
        "layouts": {"gate": ODD},
        "activation": "silu",
    },
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_the_epilogue(name):
    for m, config in ((1, CONFIGS["plain"]), (7, CONFIGS["plain"]), (2, CONFIGS["two-rows"])):
        assert fault_of(Problem(m, 45, 300, **EPILOGUES[name], config=config)) == ""


@pytest.mark.parametrize("leads", [((3,), (3,)), ((2, 2), (2, 2)), ((4,), ())], ids=str)
def test_batches(leads):
    """Of which those with a single b have few rows together."""
    problem = Problem(2, 37, 300, leads=leads, config=CONFIGS["plain"])
    assert fault_of(problem) == ""
    assert fault_of(replace(problem, extras={"gate": "bf16", "bias": "f32"}, wide=True)) == ""


@pytest.mark.parametrize("name", [name for name in EPILOGUES if name != "gate"])
def test_few_rows_of_b(name):
    for m, n, k in ((45, 1, 300), (100, 7, 937)):
        config = replace(CONFIGS["two-rows"], swap=False)
        assert fault_of(Problem(m, n, k, **EPILOGUES[name], config=config)) == ""
        assert fault_of(Problem(m, n, k, leads=((2,), (2,)), config=config)) == ""


def test_elements_that_are_infinite_are_counted_once():
    """The last part of a row has elements of the part before: neither are they added again, nor 0 times them."""
    a, b = (np.ones((rows, 600), pk.bf16.numpy) for rows in (2, 20))
    b[3, 400], b[4, 599], a[1, 401] = -np.inf, np.inf, np.inf
    found = gemm(a, b, config=CONFIGS["plain"]).astype(np.float64)
    wanted = np.full((2, 20), 600.0)
    wanted[:, 3], wanted[:, 4], wanted[1] = -np.inf, np.inf, np.inf
    wanted[1, 3] = np.nan
    assert np.array_equal(found, wanted, equal_nan=True)


@pytest.mark.parametrize("name", CONFIGS)
def test_results_are_the_same_in_every_schedule(name):
    problem = Problem(3, 100, 1111, config=CONFIGS[name], out_dtype="f32")
    arrays = {n: x.view() for n, x in problem.stored().items()}
    first, *others = (results(replace(problem, schedule=i), arrays)[0] for i in range(4))
    assert all(np.array_equal(first, other) for other in others)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("plain", {}),
        ("plain", EPILOGUES["gate"]),
        ("two-rows", {"layouts": {"a": ODD, "b": ODD}}),
        ("long", {"layouts": {"b": ODD}}),
    ],
)
def test_the_checker_finds_nothing(name, more, monkeypatch):
    monkeypatch.setattr(machine, "BLOCKS", BLOCKS)
    problem = Problem(2, 75, 1100, **more, config=replace(CONFIGS[name], stages=2))

    def make():
        return arguments_of(problem.call(), problem.config)

    launch = Launch("", gemm_vectors, lambda: make()[0], make()[1])
    found = run_schedules(gemm_vectors, launch.arguments(), range(3))
    assert [f.message for f in launch.faults(found)] == []


# -- the choice ------------------------------------------------------------------------------------


def shape_of(m, n, k, **more):
    step = np.gcd(128, 2 * k)
    return GemmShape(m, n, k, a_step=step, b_step=step, **more)


def test_one_row_at_any_address_is_multiplied_by_vectors():
    for m, n, k in ((1, 4096, 4097), (1, 10833, 937), (4096, 1, 4097)):
        assert candidates(shape_of(m, n, k), HOPPER)[0].vectors
    assert any(c.vectors for c in contenders(shape_of(1, 4096, 4097), HOPPER))
    assert not any(c.vectors for c in candidates(shape_of(1, 4096, 4096), HOPPER))
    problem = Problem(1, 200, 301)
    assert fault_of(problem) == ""
    assert candidates(problem.call().shape, HOPPER)[0].vectors


@pytest.mark.parametrize("m", [2, 3, 8])
def test_some_more_rows_may_be_multiplied_by_vectors(m):
    assert any(c.vectors for c in candidates(shape_of(m, 4096, 4097), HOPPER))


@pytest.mark.parametrize(
    "shape",
    [
        shape_of(9, 4096, 4097),
        shape_of(0, 4096, 4097),
        shape_of(4096, 4, 4097, gated=True),
        shape_of(1, 4096, 4097, bytes=1),
        shape_of(1, 4096, 4097, b_by_rows=False),
        shape_of(2, 4096, 4097, a_by_columns=True),
        shape_of(1, 4096, 4097, may_swap=False),
    ],
    ids=str,
)
def test_other_products_are_not_offered_and_not_taken(shape):
    assert not any(c.vectors for c in candidates(shape, HOPPER))
    alone = Limits("sm_80", TARGETS["sm_80"].shared_bytes, warpgroups=False)
    assert not candidates(shape_of(1, 4096, 4097), alone)[0].vectors


def test_configurations_that_do_not_fit_are_refused():
    a, b = (np.ones((rows, 70), pk.bf16.numpy) for rows in (2, 40))
    plain = CONFIGS["plain"]
    for wrong in (
        replace(plain, splits=2),
        replace(plain, cluster=2),
        replace(plain, cols=32),
        replace(plain, consumers=2),
        replace(plain, vectors=6),
        replace(plain, vectors=12),
        replace(plain, depth=128),
        replace(plain, vectors=-1),
        replace(plain, vectors=True),
    ):
        with pytest.raises(ArgumentError, match="vectors"):
            gemm(a, b, config=wrong)
    for wrong in (replace(plain, swap=False), replace(plain, swap=False, rows=32)):
        with pytest.raises(ArgumentError, match="`vectors` is for 1 to 8 rows"):
            gemm(a, b, config=wrong)
    with pytest.raises(ArgumentError, match="`vectors` is for 1 to 8 rows"):
        gemm(a, b[:3], gate=b[:3], config=replace(plain, swap=False))
    with pytest.raises(ArgumentError, match="`vectors` is for 1 to 8 rows"):
        gemm(np.ones((9, 70), pk.bf16.numpy), b, config=plain)
    with pytest.raises(ArgumentError, match="`vectors` is for 1 to 8 rows"):
        gemm(a, np.ones((70, 40), pk.bf16.numpy), transpose_b=False, config=plain)
