"""The emulator is fast enough to work with."""

import time

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens.checker.runs import run_schedules
from pykittens.runtime.arguments import check as check_arguments

# Alone on the machine: `make speed`.
pytestmark = pytest.mark.slow


def test_a_product_of_1024_runs_at_5_gflops(example):
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal((1024, 1024), np.float32).astype(ml_dtypes.bfloat16) for _ in range(2)
    )
    c = np.full_like(a, np.nan)
    rate = 0.0
    for _ in range(20):  # the best of several: another program may take a core for a while
        begin = time.perf_counter()
        example("06_matmul").matmul(a, b, c)
        rate = max(rate, 2 * 1024**3 / (time.perf_counter() - begin))
        if rate >= 5e9:
            break
    assert not np.isnan(c.astype(np.float32)).any()
    assert rate >= 5e9


def normal(*shape: int) -> np.ndarray:
    made = np.random.default_rng(0).standard_normal(shape, np.float32)
    return made.astype(ml_dtypes.bfloat16)


def test_a_product_of_1024_runs_at_5_gflops_with_the_race_detector(example):
    kernel = example("06_matmul").matmul
    args = normal(1024, 1024), normal(1024, 1024), normal(1024, 1024)
    arguments = check_arguments(kernel.parameters, args, {})
    rate = 0.0
    for _ in range(20):
        begin = time.perf_counter()
        found = run_schedules(kernel, arguments, [0])
        rate = max(rate, 2 * 1024**3 / (time.perf_counter() - begin))
        assert found == []
        if rate >= 5e9:
            break
    assert rate >= 5e9


def test_attention_is_checked_in_50_schedules_within_20_seconds(example):
    kernel = example("07_attention").attention
    q, k, v = (normal(1, 2, 512, 64) for _ in range(3))
    o = np.full_like(q, np.nan)
    least = np.inf
    for _ in range(5):
        begin = time.perf_counter()
        report = pk.check(kernel, q, k, v, o, schedules=50, causal=True)
        least = min(least, time.perf_counter() - begin)
        assert report.ok, str(report)
        assert len(report.seeds) == 50
        if least <= 20:
            break
    assert least <= 20
