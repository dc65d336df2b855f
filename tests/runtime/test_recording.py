"""Launches are kept with their recording: calls in any order launch what a first call would."""

from __future__ import annotations

import random
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

import pykittens as pk
from pykittens.runtime import nvrtc
from tests.runtime.c_programs import needs_compiler
from tests.runtime.calling import fresh
from tests.runtime.tuned_calls import COLS, TunedGpu, tuned

torch = pytest.importorskip("torch")
pytestmark = [
    needs_compiler,
    pytest.mark.skipif(nvrtc.available() is not None, reason="needs NVRTC"),
]
BIAS = 0.0


class Counted(NamedTuple):
    x: Any
    count: int


@pk.kernel
def summed(given, y, more, factor, *, cols=32):
    """y = factor x + BIAS + count + more: a number that is passed, one from outside, and one in the program."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, cols))
    t = pk.load(given.x[row, col], rows=64, cols=cols) * factor + BIAS
    for _ in range(pk.static(given.count)):
        t = t + 1.0
    if more is not None:
        t = t + pk.load(more[row, col], rows=64, cols=cols)
    pk.store(y[row, col], t)


KERNELS = {
    "plain": lambda: fresh(summed),
    "tuned": lambda: tuned(summed, COLS),
    "with a key": lambda: tuned(summed, COLS, key=lambda given, y, more, factor: factor > 2),
    "pruned": lambda: tuned(
        summed, COLS, prune=lambda all_, given, y, more, factor: all_[: 1 + (factor > 2)]
    ),
}


@pytest.mark.parametrize("how", KERNELS)
def test_calls_in_any_order_launch_what_a_first_call_would(
    tuned_gpu: TunedGpu, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, chosen = KERNELS[how](), random.Random(0)
    x, more = torch.randn(70, 64), torch.full((70, 64), 7.0)
    for _ in range(60):
        bias, rows = chosen.choice((0.0, 0.5)), chosen.choice((70, 10))
        monkeypatch.setattr(sys.modules[__name__], "BIAS", bias)
        count, factor = chosen.choice((1, np.int64(2))), chosen.choice((1.0, -0.0, 2.5, 4.0))
        y, added = torch.zeros(rows, 64), chosen.choice((None, more[:rows]))
        kernel(Counted(x[:rows], count), y, added, factor)
        expected = x[:rows] * factor + bias + int(count)
        assert torch.allclose(y, expected + (0 if added is None else 7), atol=1e-5)
