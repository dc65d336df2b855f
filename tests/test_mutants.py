"""Every wait, arrival, fence and release that the compiler places is needed: without it the checker finds a fault.

Where one is not, `REDUNDANT` says why, and nothing changes without it. docs/mutants.md has them all.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pykittens.checker.runs import run_schedules
from pykittens.emulate import machine
from tests.mutants import (
    BLOCKS,
    MORE_SEEDS,
    REDUNDANT,
    SEEDS,
    faults_in,
    mutants,
    output,
    page,
    subjects,
)
from tests.tiers import sampled

PAGE = Path(__file__).resolve().parent.parent / "docs" / "mutants.md"


@pytest.fixture(autouse=True)
def few_blocks(monkeypatch):
    monkeypatch.setattr(machine, "BLOCKS", BLOCKS)


BY_KERNEL = sampled(subjects(), lambda name: subjects()[name].kernel)


@pytest.mark.parametrize("name", BY_KERNEL)
def test_nothing_is_found_where_nothing_is_left_out(name):
    subject = subjects()[name]
    for arguments in subject.launches():
        assert faults_in(run_schedules(subject.kernel, arguments, SEEDS)) == []


@pytest.mark.parametrize("name", BY_KERNEL)
def test_what_the_compiler_places_is_needed_or_said_to_be_redundant(name):
    assert mutants(name), "nothing is placed"
    unnoticed = [m for m in mutants(name) if not m.kinds]
    assert [m.told for m in unnoticed if m.placed.description not in REDUNDANT] == []


@pytest.mark.parametrize("name", BY_KERNEL)
def test_nothing_changes_without_what_is_redundant(name):
    subject = subjects()[name]
    unnoticed = [(m.placed.node, m.placed.what) for m in mutants(name) if not m.kinds]
    for arguments in subject.launches():
        whole = output(subject, arguments)
        for without in unnoticed:
            # Among the schedules bits that differ are a finding.
            found = run_schedules(subject.kernel, arguments, MORE_SEEDS, without=without)
            assert faults_in(found) == []
            assert output(subject, arguments, without) == whole


@pytest.mark.units
def test_every_reason_is_used():
    used = {m.placed.description for n in subjects() for m in mutants(n) if not m.kinds}
    assert used == set(REDUNDANT)


@pytest.mark.units
def test_the_page_of_mutants_is_what_is_found(request):
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), "`make golden` writes it anew"
