"""How long code takes, whatever else the machine does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

# Seconds that `loop` takes on the machine that bounds are for: a core of a Xeon of 2023 (Sapphire Rapids).
LOOP = 14e-3


def loop() -> float:
    """Seconds that some work takes now: steps of Python and products of tiles, about half each, as in the emulator."""
    a, b = np.ones((16, 64), np.float32), np.ones((256, 64), ml_dtypes.bfloat16)
    begin, total = time.perf_counter(), 0
    for i in range(150_000):
        total += i
    for _ in range(240):
        a @ b.astype(np.float32).T
    return time.perf_counter() - begin


def least_seconds(run: Callable[[], Any], bound: float, tries: int = 20) -> float:
    """The least time that a call took, of so many or until it is within the bound.

    Seconds are those of the machine that bounds are for: on one that is slower, or busy with other programs before and
    after a call, they are longer.
    """
    least = float("inf")
    for _ in range(tries):
        before, begin = loop(), time.perf_counter()
        run()
        took = time.perf_counter() - begin
        least = min(least, took * min(LOOP / min(before, loop()), 1.0))
        if least <= bound:
            break
    return least
