"""The checker is silent about kernels that have no fault: the library's, the examples', the templates' and the tests'.

`make soak` runs the same in 1000 schedules.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import pykittens as pk
from pykittens.checker.runs import run_schedules
from pykittens.emulate import machine
from pykittens.emulate.group import Group
from pykittens.emulate.watch import Watcher
from pykittens.ir.stages import Acquire, Pipeline
from tests.launches import BLOCKS, larger, launches, of_cases

SCHEDULES = 2
# A ring of one launch that is not filled over and over: a second phase of its kernel that happens once.
ONCE = {"pipeline-taken_over": {"second"}}


@pytest.fixture(autouse=True)
def few_blocks(monkeypatch):
    monkeypatch.setattr(machine, "BLOCKS", BLOCKS)


@pytest.mark.parametrize("name", launches() | of_cases())
def test_nothing_is_found_in_a_kernel_without_a_fault(name):
    launch = (launches() | of_cases())[name]
    found = run_schedules(launch.kernel, launch.arguments(), range(SCHEDULES))
    assert [f.message for f in launch.faults(found)] == []


class Fills(Watcher):
    """Counts the fills of each ring, by the group that makes them."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[Group, Pipeline]] = Counter()

    def takes(self, group: Group, node: Acquire, barrier: Any, phase: int) -> None:
        if node.side == "fill":
            self.counts[group, node.pipeline] += 1


@pytest.mark.parametrize("name", launches() | larger())
def test_every_ring_of_these_launches_is_filled_more_often_than_it_has_stages(name):
    launch, fills = (launches() | larger())[name], Fills()
    run_schedules(launch.kernel, launch.arguments(), [0], watch=fills)
    counts = {
        p: max(fills.counts[g, q] for g, q in fills.counts if q is p) for _, p in fills.counts
    }
    few = {p.name for p, count in counts.items() if count <= p.stages}
    assert few == ONCE.get(name, set())


@pytest.mark.parametrize("name", ["gemm-ABt", "attention-128x128-128-2-causal"])
def test_a_report_on_the_same_seeds_says_the_same(name):
    launch = launches()[name]
    first, second = (
        pk.check(launch.kernel, *launch.make(), schedules=5, **launch.constants) for _ in range(2)
    )
    assert str(first) == str(second)
    assert first.json() == second.json()
