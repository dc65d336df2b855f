"""Every wait, arrival, fence and release that the compiler places is needed: without it the checker finds a fault.

For the exceptions, `REDUNDANT` says why nothing changes without them. docs/mutants.md has all.
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
from tests.races import left_out
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
def test_what_the_compiler_inserts_is_needed_or_said_to_be_redundant(name):
    assert mutants(name), "nothing is inserted"
    unnoticed = [m for m in mutants(name) if not m.kinds]
    assert [m.told for m in unnoticed if m.inserted.description not in REDUNDANT] == []


@pytest.mark.parametrize("name", BY_KERNEL)
def test_nothing_changes_without_what_is_redundant(name):
    subject = subjects()[name]
    unnoticed = [(m.inserted.node, m.inserted.what) for m in mutants(name) if not m.kinds]
    for arguments in subject.launches():
        whole = output(subject, arguments)
        for node, what in unnoticed:
            with left_out(node, what):
                # Bits that differ among the schedules are a finding.
                assert faults_in(run_schedules(subject.kernel, arguments, MORE_SEEDS)) == []
                assert output(subject, arguments) == whole


@pytest.mark.units
def test_every_reason_is_used():
    used = {m.inserted.description for n in subjects() for m in mutants(n) if not m.kinds}
    assert used == set(REDUNDANT)


@pytest.mark.units
def test_the_page_of_mutants_is_what_is_found(request):
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), "`make golden` writes it anew"
