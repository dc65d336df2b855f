"""Fits the rates of gemm's estimate to measured candidates: benchmarks/gemm_fit.py FILES of gemm_shapes.py.

Least squares of the logarithms of estimates and times, in which candidates count less the slower they are, and so do
times that are far off. Rates stay close to what they are unless the times say otherwise. Folds of the shapes are left
out in turn, and the rates fitted to the others are judged on them: what is printed for them is what shapes that nobody
measured may expect. Last, each cost is left out alone.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
from gemm_report import part_of_fastest  # noqa: E402

from pykittens.kernels.gemm.choose import candidates  # noqa: E402
from pykittens.kernels.gemm.config import Config, GemmShape  # noqa: E402
from pykittens.kernels.gemm.estimate import RATES, Rates, estimate  # noqa: E402
from pykittens.kernels.limits import Limits  # noqa: E402

# What other measurements tell: of the multiprocessor, of fp8 with scales, and of products by vectors.
KNOWN = ("reached", "copied", "clock", "products", "operand", "scales", "scaled", "later", "pieces")
BY_VECTORS = "row_"  # how rates of products by vectors begin
NAMES = [f.name for f in fields(Rates) if f.name not in KNOWN and not f.name.startswith(BY_VECTORS)]
DIVISORS = ("clock", "products", "power", "memory", "copies", "cache", "shared", "outside")
DIVISORS += ("row_slots", "row_loads")
CLOSE = 1.3  # of candidates that are at most so much slower than the fastest, errors are told
FAR = 0.1  # the error of an estimate, as a logarithm, from which on it counts less
PRIOR = (
    0.5  # the weight of a rate's change beside that of one candidate's error, both as logarithms
)
STEPS, LARGEST = 8, 0.5  # of the fit, and the most that a step changes a rate, as a logarithm
SHORTEST = 0.1  # microseconds of an estimate without one of its costs


@dataclass(frozen=True)
class Measured:
    """A shape, the limits of the GPU, and the microseconds of its candidates in each round."""

    shape: GemmShape
    limits: Limits
    rounds: dict[Config, Sequence[float]]

    @cached_property
    def times(self) -> tuple[tuple[Config, float], ...]:
        """The candidates with their medians."""
        return tuple((c, statistics.median(rounds)) for c, rounds in self.rounds.items())

    @property
    def best(self) -> float:
        """The time of the fastest."""
        return min(us for _, us in self.times)

    def errors(self, rates: Rates) -> list[float]:
        """The logarithm of each candidate's estimate as a part of its time."""
        found = [(estimate(c, self.shape, self.limits, rates), us) for c, us in self.times]
        return [math.log(max(e, SHORTEST) / us) for e, us in found]

    def losses(self, rates: Rates) -> tuple[float, float]:
        """How much slower the pick is than the fastest, and the error of the estimate, both as logarithms."""
        told = list(zip(self.errors(rates), self.times, strict=True))
        _, pick = min(((error + math.log(us), c) for error, (c, us) in told), key=lambda x: x[0])
        near = [error**2 for error, (_, us) in told if us <= CLOSE * self.best]
        return -math.log(part_of_fastest(self.rounds, pick)), math.sqrt(statistics.fmean(near))


def read(paths: Sequence[Path]) -> list[Measured]:
    """The shapes of some files that have several candidates."""
    names = {f.name for f in fields(Config)}
    found, files = [], [json.loads(path.read_text()) for path in paths]
    for row, limits in ((r, Limits(**f["limits"])) for f in files for r in f["rows"]):
        configs = {
            n: Config(**c | {"copied": tuple(c.get("copied", ()))})
            for n, c in row["configs"].items()
            if c.keys() <= names
        }
        shape = GemmShape(**row["shape"])
        rounds = row.get("rounds", {n: [us, us] for n, us in row["us"].items()})
        known = {configs[n]: rounds[n] for n in row["us"] if n in configs}
        tried = {c: known[c] for c in candidates(shape, limits) if c in known}
        if len(tried) > 1:
            found.append(Measured(shape, limits, tried))
    return found


def fitted(shapes: Sequence[Measured], rates: Rates = RATES) -> Rates:
    """The rates of least squares of errors and of changes of rates."""
    weights = np.array([(x.best / us) ** 2 for x in shapes for _, us in x.times])

    def errors(of: Rates) -> Any:
        return np.array([e for x in shapes for e in x.errors(of)])

    def changed(changes: Any) -> Rates:
        new = {n: getattr(rates, n) * math.exp(x) for n, x in zip(NAMES, changes, strict=True)}
        return replace(rates, **new)

    changes, little = np.zeros(len(NAMES)), 1e-3
    for _ in range(STEPS):
        now = errors(changed(changes))
        slopes = [
            (errors(changed(changes + x)) - now) / little for x in little * np.eye(len(NAMES))
        ]
        scale = weights / np.sqrt(np.sqrt(1 + (now / FAR) ** 2))
        left = np.vstack([np.stack(slopes, 1) * scale[:, None], PRIOR * np.eye(len(NAMES))])
        right = np.concatenate([-now * scale, -PRIOR * changes])
        step = np.linalg.lstsq(left, right, rcond=None)[0]
        changes = changes + np.clip(step, -LARGEST, LARGEST)
    return changed(changes)


def told(shapes: Sequence[Measured], rates: Rates) -> str:
    """What picks reach of the fastest: the geometric mean and the least; and the mean error of estimates."""
    each = [x.losses(rates) for x in shapes]
    picks, errors = zip(*each, strict=True)
    mean, least = math.exp(-statistics.fmean(picks)), math.exp(-max(picks))
    return f"{mean:.3f} of the fastest, the least {least:.3f}, error {statistics.fmean(errors):.3f}"


def main(arguments: Sequence[str] | None = None) -> Rates:
    """Fit, judge and print; returns the rates that fit all shapes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--folds", type=int, default=4)
    options = parser.parse_args(arguments)
    shapes = read(options.files)
    print(f"{len(shapes)} shapes, as it is: {told(shapes, RATES)}", flush=True)
    for i in range(options.folds):
        rates = fitted([x for j, x in enumerate(shapes) if j % options.folds != i])
        print(f"fold {i}, judged: {told(shapes[i :: options.folds], rates)}", flush=True)
        print(f"fold {i}, as it is: {told(shapes[i :: options.folds], RATES)}", flush=True)
    rates = fitted(shapes)
    print(f"fitted to all: {told(shapes, rates)}")
    for name, was in asdict(RATES).items():
        without: dict[str, Any] = {name: 0.0}
        alone = "-" if name in DIVISORS else told(shapes, replace(rates, **without))
        print(f"{name:10} {was:12.5g} -> {getattr(rates, name):12.5g}   without: {alone}")
    return rates


if __name__ == "__main__":
    main()
