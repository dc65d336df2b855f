"""The emulator is fast enough to work with."""

import time

import ml_dtypes
import numpy as np
import pytest

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
