"""The emulator is fast enough to work with."""

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens.checker.runs import run_schedules
from pykittens.runtime.arguments import check as check_arguments
from tests.speed import least_seconds

# Alone on the machine: `make speed`.
pytestmark = pytest.mark.slow


WITHIN = 2 * 1024**3 / 5e9  # seconds of a product of 1024 at 5 GFLOP/s


def normal(*shape: int) -> np.ndarray:
    made = np.random.default_rng(0).standard_normal(shape, np.float32)
    return made.astype(ml_dtypes.bfloat16)


def test_a_product_of_1024_runs_at_5_gflops(example):
    a, b = normal(1024, 1024), normal(1024, 1024)
    c = np.full_like(a, np.nan)
    took = least_seconds(lambda: example("06_matmul").matmul(a, b, c), WITHIN)
    assert not np.isnan(c.astype(np.float32)).any()
    assert took <= WITHIN


def test_a_product_of_1024_runs_at_5_gflops_with_the_race_detector(example):
    kernel = example("06_matmul").matmul
    args = normal(1024, 1024), normal(1024, 1024), normal(1024, 1024)
    arguments = check_arguments(kernel.parameters, args, {})
    found = []
    took = least_seconds(lambda: found.extend(run_schedules(kernel, arguments, [0])), WITHIN)
    assert found == []
    assert took <= WITHIN


def test_attention_is_checked_in_50_schedules_within_20_seconds(example):
    kernel = example("07_attention").attention
    q, k, v = (normal(1, 2, 512, 64) for _ in range(3))
    o = np.full_like(q, np.nan)
    reports = []
    took = least_seconds(
        lambda: reports.append(pk.check(kernel, q, k, v, o, schedules=50, causal=True)), 20, tries=5
    )
    for report in reports:
        assert report.ok, str(report)
        assert len(report.seeds) == 50
    assert took <= 20
