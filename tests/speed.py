"""How long code takes, whatever else the machine does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

LOOP = 25e-3  # seconds that `loop` takes on the machine that bounds are for, a core of 2023 with nothing else to do


def loop() -> float:
    """Seconds that a loop of Python takes now."""
    begin, total = time.perf_counter(), 0
    for i in range(300_000):
        total += i
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
