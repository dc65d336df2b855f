"""The checker finds nothing in any configuration that may be picked for a product."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pykittens.checker.runs import run_schedules
from pykittens.emulate import machine
from pykittens.kernels.gemm import gemm_tiles
from pykittens.kernels.gemm.choose import candidates
from pykittens.kernels.gemm.config import Config
from pykittens.kernels.limits import Limits
from pykittens.targets.architectures import TARGETS
from tests.gemm_problems import BLOCK_SCALES, Layout, Problem, arguments_of
from tests.launches import BLOCKS, Launch

HOPPER = Limits("sm_90a", TARGETS["sm_90a"].shared_bytes, warpgroups=True)
FP8 = ("e4m3", "e4m3")

PROBLEMS = {
    "square": Problem(200, 210, 200),
    "skinny": Problem(20, 300, 330, transpose_b=False, extras={"bias": "bf16"}),
    "wide-out": Problem(140, 70, 130, out=True, numbers={"beta": 0.5}, out_dtype="f32"),
    "gated": Problem(70, 150, 130, extras={"gate": "bf16", "residual": "bf16"}, activation="silu"),
    "blocks": Problem(70, 150, 400, dtypes=FP8, extras=BLOCK_SCALES),
    "sums": Problem(70, 150, 130, leads=((2,), (2,)), row_sums=True, column_sums=True),
    "unaligned": Problem(70, 150, 130, layouts=dict.fromkeys(("a", "b"), Layout(lines="odd"))),
}


@pytest.fixture(autouse=True)
def few_blocks(monkeypatch):
    monkeypatch.setattr(machine, "BLOCKS", BLOCKS)


def configs_of(name):
    return candidates(PROBLEMS[name].call().shape, HOPPER)


def told(problem, schedules):
    """The checker's report of a problem, without the rows of sums that no block stores."""

    def make():
        return arguments_of(problem.call(), problem.config)

    constants = make()[1]
    launch = Launch("", gemm_tiles, lambda: make()[0], constants)
    found = run_schedules(launch.kernel, launch.arguments(), schedules)
    return [f.message for f in launch.faults(found)]


@pytest.mark.parametrize("name", PROBLEMS)
def test_nothing_is_found_in_some_of_the_candidates(name):
    configs = configs_of(name)
    for config in (configs[0], *random.Random(name).sample(configs, 3)):
        problem = replace(PROBLEMS[name], config=config)
        assert told(problem, range(3)) == [], config


@pytest.mark.parametrize(
    "config",
    [
        Config(192, 64, stages=3, consumers=3),
        Config(128, 256, stages=2),
        Config(128, 128, stages=2, splits=3, out_cols=32),
        Config(128, 192, stages=2),
    ],
    ids=str,
)
def test_nothing_is_found_where_products_are_scaled_apart(config):
    problem = replace(PROBLEMS["blocks"], config=config)
    assert told(problem, range(3)) == []


@pytest.mark.soak
@pytest.mark.parametrize("name", PROBLEMS)
def test_nothing_is_found_in_any_candidate(name):
    for config in configs_of(name):
        problem = replace(PROBLEMS[name], config=config)
        assert told(problem, range(10)) == [], config
