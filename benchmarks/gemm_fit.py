"""Fits the rates of gemm's estimate to measured candidates: benchmarks/gemm_fit.py FILES of gemm_shapes.py.

Every rate is changed by some percent as long as that brings the picks closer to the fastest candidates, or estimates
closer to times. Folds of the shapes are left out in turn, and the rates fitted to the others are judged on them: what
is printed for them is what shapes that nobody measured may expect. Last, each cost is left out alone.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402

from pykittens.kernels.gemm.config import Config, GemmShape  # noqa: E402
from pykittens.kernels.gemm.estimate import RATES, Rates, estimate  # noqa: E402
from pykittens.kernels.limits import Limits, limits_of  # noqa: E402

NAMES = [f.name for f in fields(Rates)]
DIVISORS = NAMES[: NAMES.index("outside") + 1]  # rates, which no estimate can leave out
CHANGES = (1.3, 1.1, 1.03, 1 / 1.03, 1 / 1.1, 1 / 1.3)
CLOSE = 1.2  # of candidates that are at most so much slower than the fastest, the estimate should be right
EXACT = 0.1  # the weight of errors of estimates beside that of picks
LEAST = 1e-5  # what a change must gain
SHORTEST = 0.1  # microseconds of an estimate without one of its costs


@dataclass(frozen=True)
class Measured:
    """A shape, and the microseconds of its candidates."""

    shape: GemmShape
    times: tuple[tuple[Config, float], ...]

    @property
    def best(self) -> float:
        """The time of the fastest."""
        return min(us for _, us in self.times)

    def losses(self, rates: Rates, limits: Limits) -> tuple[float, float]:
        """How much slower the pick is than the fastest, and the error of the estimate, both as logarithms."""
        found = [(estimate(c, self.shape, limits, rates), us) for c, us in self.times]
        picked = min(found)[1]
        errors = [
            math.log(max(e, SHORTEST) / us) ** 2 for e, us in found if us <= CLOSE * self.best
        ]
        return math.log(picked / self.best), math.sqrt(statistics.fmean(errors))


def read(paths: Sequence[Path]) -> list[Measured]:
    """The shapes of some files that have several candidates."""
    found = []
    for row in (r for path in paths for r in json.loads(path.read_text())["rows"]):
        configs = {
            n: Config(**c | {"copied": tuple(c.get("copied", ()))})
            for n, c in row["configs"].items()
        }
        times = tuple((configs[name], us) for name, us in row["us"].items())
        if len(times) > 1:
            found.append(Measured(GemmShape(**row["shape"]), times))
    return found


def loss(shapes: Sequence[Measured], rates: Rates, limits: Limits) -> float:
    """The mean of what picks lose, and a part of the mean error."""
    each = [x.losses(rates, limits) for x in shapes]
    return statistics.fmean(picked + EXACT * error for picked, error in each)


def fitted(shapes: Sequence[Measured], limits: Limits, rates: Rates = RATES) -> Rates:
    """The rates that no single change improves."""
    least, improved = loss(shapes, rates, limits), True
    while improved:
        improved = False
        for name in NAMES:
            for change in CHANGES:
                tried = replace(rates, **{name: getattr(rates, name) * change})
                if (found := loss(shapes, tried, limits)) < least - LEAST:
                    rates, least, improved = tried, found, True
    return rates


def told(shapes: Sequence[Measured], rates: Rates, limits: Limits) -> str:
    """What picks reach of the fastest: the geometric mean and the least; and the mean error of estimates."""
    each = [x.losses(rates, limits) for x in shapes]
    picks, errors = zip(*each, strict=True)
    mean, least = math.exp(-statistics.fmean(picks)), math.exp(-max(picks))
    return f"{mean:.3f} of the fastest, the least {least:.3f}, error {statistics.fmean(errors):.3f}"


def main(arguments: Sequence[str] | None = None) -> Rates:
    """Fit, judge and print; returns the rates that fit all shapes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--folds", type=int, default=4)
    options = parser.parse_args(arguments)
    shapes, limits = read(options.files), limits_of(np.zeros(1))
    print(f"{len(shapes)} shapes, as it is: {told(shapes, RATES, limits)}", flush=True)
    for i in range(options.folds):
        rates = fitted([x for j, x in enumerate(shapes) if j % options.folds != i], limits)
        print(f"fold {i}, judged: {told(shapes[i :: options.folds], rates, limits)}", flush=True)
        print(f"fold {i}, as it is: {told(shapes[i :: options.folds], RATES, limits)}", flush=True)
    rates = fitted(shapes, limits)
    print(f"fitted to all: {told(shapes, rates, limits)}")
    for name, was in asdict(RATES).items():
        left_out: dict[str, Any] = {name: 0.0}
        now, without = getattr(rates, name), "-"
        if name not in DIVISORS:
            without = told(shapes, replace(rates, **left_out), limits)
        print(f"{name:10} {was:12.5g} -> {now:12.5g}   without: {without}")
    return rates


if __name__ == "__main__":
    main()
