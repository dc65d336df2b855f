"""The checker finds each planted bug, names its lines, raises no false alarm, and reports the golden text."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import numpy as np
import pytest

import pykittens as pk
from pykittens.checker.report.report import CheckReport
from tests.planted.core import Planted, every

PLANTED = every()
CASES = pytest.mark.parametrize("case", PLANTED, ids=str)
FIXED = pytest.mark.parametrize("case", [p for p in PLANTED if p.repaired is not None], ids=str)


@functools.cache
def report_of(name: str) -> CheckReport:
    """The report on the broken kernel."""
    (case,) = (p for p in PLANTED if p.name == name)
    made = case.arguments(np.random.default_rng(0))
    return pk.check(case.kernel, *made, costs=False, compile=False, **case.constants)


@CASES
def test_a_planted_bug_is_found(case: Planted) -> None:
    report = report_of(case.name)
    assert case.level in {f.level for f in report.found(case.kind)}, str(report)


@CASES
def test_a_finding_names_the_lines_of_the_bug(case: Planted) -> None:
    report = report_of(case.name)
    named = [
        "\n".join(
            step.loc.text for step in (*finding.steps, *finding.history) if step.loc is not None
        )
        for finding in report.found(case.kind)
    ]
    assert any(all(line in text for line in case.lines) for text in named), str(report)


@CASES
def test_what_else_is_found_describes_the_same_bug(case: Planted) -> None:
    report = report_of(case.name)
    assert {f.kind for f in report.errors} <= {case.kind, *case.also}, str(report)


@FIXED
def test_no_fault_is_found_in_a_fixed_kernel(case: Planted) -> None:
    assert case.repaired is not None
    made = case.repaired_arguments or case.arguments
    given = made(np.random.default_rng(0))
    report = pk.check(case.repaired, *given, costs=False, compile=False, **case.repaired_constants)
    assert not report.errors, str(report)
    assert not report.warnings, str(report)


@CASES
def test_the_report_on_a_planted_bug(case: Planted, golden: Callable[[str, str], None]) -> None:
    text = re.sub(r"(tests/[\w/]+\.py):\d+", r"\1:LINE", str(report_of(case.name)))
    golden(f"planted/{case.name}.txt", f"{text}\n")
