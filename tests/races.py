"""What the race detector finds in small kernels: findings, faults for sure, and tiles of ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from pykittens import f32
from pykittens.checker.runs import run_schedules
from pykittens.emulate.finding import Finding, Kind, Level
from pykittens.emulate.group import Group
from pykittens.emulate.races.detector import Races
from pykittens.ir.nodes import Call, Node, WaitProducts, WaitStores
from pykittens.ir.stages import Acquire, GiveBack, Leave
from pykittens.runtime.arguments import check as check_arguments

# The methods that do what the compiler inserted.
INSERTED = {
    (Acquire, "wait"): (Group, "wait_for_stage"),
    (WaitProducts, "wait"): (Group, "finish"),
    (WaitStores, "wait"): (Group, "wait_for_stores"),
    (Leave, "fence"): (Races, "fences"),
    (Leave, "arrival"): (Group, "arrive"),
    (GiveBack, "release"): (Group, "release"),
}


@contextmanager
def left_out(node: Node, what: str) -> Iterator[None]:
    """Runs do all that the compiler inserted but this wait, arrival, fence or release."""
    owner, name = INSERTED[type(node), what]
    method = getattr(owner, name)

    def without(self: Any, *args: Any) -> Any:
        group = self if owner is Group else args[0]
        return () if group.node is node else method(self, *args)

    # The emulator asserts that the compiler waits for every managed product.
    with mock.patch.object(owner, name, without), mock.patch.object(Call, "managed", False):
        yield


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
