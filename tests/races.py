"""What the race detector finds in small kernels: findings, faults for sure, and tiles of ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens import f32
from pykittens.checker.runs import run_schedules
from pykittens.emulate.finding import Finding, Kind, Level
from pykittens.runtime.arguments import check as check_arguments


def findings(kernel: Any, *args: Any, seeds: Any = range(4), **constants: Any) -> list[Finding]:
    """What is found in some schedules."""
    return run_schedules(kernel, check_arguments(kernel.parameters, args, constants), seeds)


def faults(kernel: Any, *args: Any, seeds: Any = range(4), **constants: Any) -> set[Kind]:
    """The kinds of the errors, without those for outputs that are not wholly written."""
    found = findings(kernel, *args, seeds=seeds, **constants)
    return {f.kind for f in found if f.level is Level.ERROR and f.kind is not Kind.UNWRITTEN_MEMORY}


def tile(*shape: int, dtype: Any = f32) -> Any:
    """Ones, by default 64 x 64."""
    return np.ones(shape or (64, 64), dtype.numpy)


def told_of(kernel: Any, *args: Any, **constants: Any) -> set[tuple[Level, Kind]]:
    """The levels and kinds of the findings, without those for outputs that are not wholly written."""
    found = findings(kernel, *args, **constants)
    return {(f.level, f.kind) for f in found if f.kind is not Kind.UNWRITTEN_MEMORY}
