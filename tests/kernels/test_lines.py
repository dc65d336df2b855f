"""Copies of matrices whose rows start at lines, and products that take them."""

from dataclasses import replace

import numpy as np
import pytest

from pykittens.checker.runs import run_schedules
from pykittens.errors import ArgumentError
from pykittens.kernels.arrays import Arrays
from pykittens.kernels.gemm import gemm
from pykittens.kernels.gemm.choose import candidates
from pykittens.kernels.gemm.config import Config, GemmShape
from pykittens.kernels.gemm.estimate import estimate
from pykittens.kernels.limits import limits_of
from pykittens.kernels.lines import in_lines
from pykittens.kernels.plan import Plan
from pykittens.runtime.arguments import check
from pykittens.types.dtypes import DTYPES
from tests.gemm_problems import Layout, Problem
from tests.gemm_random import fault_of

LIMITS = limits_of(np.zeros(1, np.float32))


def random(shape, dtype, skew=1):
    """Random bytes as an array whose rows start `skew` elements past any alignment."""
    size = DTYPES[dtype].bytes
    wide = (*shape[:-1], shape[-1] + skew)
    bits = np.random.default_rng(0).integers(0, 256, (*wide[:-1], wide[-1] * size), np.uint8)
    return bits.view(DTYPES[dtype].numpy)[..., skew:]


def bits(x):
    return np.ascontiguousarray(x).view(np.uint8)


SHAPES = {
    "bf16": ((70, 33), (3, 40, 1100)),
    "e4m3": ((33, 2100), (65, 17)),
    "f32": ((1, 1), (2, 2, 35, 300)),
    "f16": ((100, 512), (31, 513)),
}


@pytest.mark.parametrize("dtype", SHAPES)
def test_copies_have_the_same_elements_in_rows_that_start_at_lines(dtype):
    first, second = (random(shape, dtype) for shape in SHAPES[dtype])
    arrays = Arrays("copies", first=first, second=second)
    scratch, steps = in_lines(arrays, ["first", "second"])
    memory = Plan(arrays, steps, scratch).memory()
    (step,) = steps
    step.kernel(*(memory[name] for name in step.args), **step.constants)
    for name, x in (("first", first), ("second", second)):
        copy = memory[f"{name}_lines"]
        assert all(stride % 128 == 0 for stride in copy.strides[:-1])
        assert np.array_equal(bits(copy), bits(x))
    arguments = check(step.kernel.parameters, tuple(memory[n] for n in step.args), step.constants)
    found = run_schedules(step.kernel, arguments, range(2))
    assert [f.message for f in found if f.level.name != "NOTE"] == []


def test_an_empty_array_is_not_copied():
    arrays = Arrays("copies", a=np.zeros((0, 5), np.float32), b=np.zeros((3, 5), np.float32))
    scratch, steps = in_lines(arrays, ["a"])
    assert (scratch, steps) == ({}, [])
    assert list(in_lines(arrays, ["a", "b"])[0]) == ["b_lines"]


@pytest.mark.parametrize(
    ("layout", "step"),
    [
        (np.zeros((4, 64), np.float16), 128),
        (np.zeros((4, 72), np.float16), 16),
        (np.zeros((4, 96), np.float16), 64),
        (np.zeros((4, 65), np.float16), 2),
        (np.zeros((4, 66), np.float16), 4),
        (np.zeros((4, 68), np.float16), 8),
        (np.zeros((4, 65), np.int8), 1),
        (np.zeros((4, 72), np.float16)[:, 1:65], 2),
        (np.zeros((4, 72), np.float16)[:, 2:65], 4),
        (np.zeros((3, 5, 64), np.float16)[:, :, :40], 128),
        (np.zeros((1, 65), np.float16)[:, :64], 128),
    ],
)
def test_the_places_of_rows_are_multiples_of_a_step(layout, step):
    assert Arrays("steps", x=layout).row_step("x") == step


PROBLEMS = {
    "plain": Problem(130, 70, 200),
    "k x n": Problem(70, 130, 90, transpose_b=False),
    "batch": Problem(40, 50, 130, leads=((2,), (2,))),
    "gate": Problem(70, 90, 130, extras={"gate": "bf16", "bias": "bf16"}, activation="silu"),
    "fp8": Problem(70, 90, 170, dtypes=("e4m3", "e5m2")),
    "by columns": Problem(70, 90, 130, layouts={"a": Layout(columns=True, lines="odd")}),
    "no steps": Problem(70, 90, 0),
}


@pytest.mark.parametrize("copied", [("a",), ("b",), ("a", "b")], ids="".join)
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_product_of_copies_is_right(name, copied):
    odd = dict.fromkeys(("a", "b", "gate"), Layout(lines="odd"))
    problem = PROBLEMS[name]
    for way in ({}, {"swap": True}, {"splits": 2, "out_cols": 32}):
        config = Config(64, 64, stages=3, consumers=1, copied=copied, **way)
        case = replace(problem, layouts={**odd, **problem.layouts}, config=config)
        assert fault_of(case) == "", config


def test_only_operands_are_copied():
    a = np.zeros((8, 8), np.float16)
    for copied in (("out",), ["a"], "a"):
        with pytest.raises(ArgumentError, match="`copied` of `config` must be a tuple"):
            gemm(a, a, config=Config(64, 64, copied=copied))


@pytest.mark.parametrize("seed", range(20))
def test_rows_at_lines_are_never_copied_and_others_cost_no_less(seed):
    rng = np.random.default_rng(seed)
    m, n, k = (int(2 ** rng.uniform(low, 13)) for low in (0, 6, 6))
    shape = GemmShape(m, n, k)
    aligned, *_ = candidates(shape, LIMITS)
    assert aligned.copied == ()
    assert aligned.sharing == 1
    for steps in ((16, 16), (1, 128), (128, 1), (1, 1)):
        apart = GemmShape(m, n, k, a_step=steps[0], b_step=steps[1])
        chosen, *_ = candidates(apart, LIMITS)
        assert estimate(chosen, apart, LIMITS) >= estimate(aligned, shape, LIMITS)
