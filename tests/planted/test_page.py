"""docs/planted.md and a table in docs/checking.md show what the checker reports for each planted bug."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from pykittens.emulate.finding import Finding, Kind, Level, Scope
from tests.planted.core import Planted
from tests.planted.test_planted import PLANTED, report_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, CHECKING = DOCS / "planted.md", DOCS / "checking.md"
BEGIN, END = "<!-- kinds: written by a test -->\n", "<!-- end of kinds -->\n"

HEAD = """# Planted bugs

Small kernels that do one thing wrong, by the kind of the fault, and how the checker finds each. They are in
tests/planted, {all} of them. {repaired} a twin in which the bug is fixed and the checker finds no fault. A test writes
this page from the reports (`make golden`). [checking.md](checking.md) explains how to read a report.

*Proved*: for all arguments, from the recorded program. *Before the launch*: from the arguments of the call. *Seed 0,
every schedule*: the schedule of seed 0 was the first to show it, and what it shows holds for every schedule with these
arguments. *Seed 4, 5 of 20*: 5 of the 20 schedules tried showed it, that of seed 4 first. *Warning, not judged*: the
checker names the line, but does not know whether it is wrong.
"""
# The widest scope first: it is shown if several findings report one bug.
SCOPES = (Scope.ALWAYS, Scope.EVERY_SCHEDULE, Scope.TRIED)


def finding_of(case: Planted) -> Finding:
    """The checker's finding for a planted bug."""
    findings = [f for f in report_of(case.name).found(case.kind) if f.level is case.level]
    assert findings, f"{case.name} is not found, so there is no page"
    return min(findings, key=lambda f: SCOPES.index(f.scope))


def is_judged(finding: Finding) -> bool:
    """Whether the checker knows that there is a bug; a warning about a barrier only names its line."""
    return finding.kind is not Kind.NAMED_BARRIER


def how(case: Planted) -> str:
    """How a planted bug was found."""
    found = finding_of(case)
    if not is_judged(found):
        return "warning, not judged"
    level = "" if found.level is Level.ERROR else f"{found.level.value}; "
    if found.scope is Scope.ALWAYS:
        return f"{level}proved"
    if found.seed is None:
        return f"{level}before the launch"
    if found.scope is Scope.EVERY_SCHEDULE:
        return f"{level}seed {found.seed}, every schedule"
    return f"{level}seed {found.seed}, {found.schedules} of {len(report_of(case.name).seeds)}"


def wrong(case: Planted) -> str:
    """The description of a planted bug, as a cell of a table."""
    text = " ".join((inspect.getdoc(case.kernel.function) or "").split())
    text = text.removeprefix("Broken: ").replace("|", "\\|")
    return text[0].upper() + text[1:]


def of_kind(kind: Kind) -> list[Planted]:
    return [case for case in PLANTED if case.kind is kind]


def page() -> str:
    """The text of docs/planted.md."""
    twins = sum(case.repaired is not None for case in PLANTED)
    repaired = "Each has" if twins == len(PLANTED) else f"{twins} have"
    lines = [HEAD.format(all=len(PLANTED), repaired=repaired)]
    for kind in Kind:
        if cases := of_kind(kind):
            meaning = kind.meaning[0].upper() + kind.meaning[1:]
            lines += [f"## {kind.value}", "", f"{meaning}.", ""]
            lines += ["| Kernel | Bug | Found |", "|---|---|---|"]
            lines += [f"| `{case.name}` | {wrong(case)} | {how(case)} |" for case in cases]
            lines.append("")
    return "\n".join(lines)


def table() -> str:
    """The table of the kinds in docs/checking.md."""
    lines = [
        "| Kind | Meaning | Planted and found | proved | every schedule | some tried |",
        "|---|---|---|---|---|---|",
    ]
    for kind in Kind:
        cases = of_kind(kind)
        scopes = [f.scope for f in map(finding_of, cases) if is_judged(f)]
        counts = [str(n or "") for n in (len(cases), *map(scopes.count, SCOPES))]
        lines.append(f"| `{kind.value}` | {kind.meaning} | {' | '.join(counts)} |")
    return "\n".join(lines) + "\n"


def test_the_page_of_the_planted_bugs_is_what_the_checker_says(
    request: pytest.FixtureRequest,
) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), "`make golden` updates it"


def test_the_table_of_the_kinds_is_what_the_checker_says(request: pytest.FixtureRequest) -> None:
    before, begin, rest = CHECKING.read_text(encoding="utf-8").partition(BEGIN)
    kept, end, after = rest.partition(END)
    assert begin
    assert end
    if request.config.getoption("--update-golden") and kept != table():
        CHECKING.write_text(f"{before}{begin}{table()}{end}{after}", encoding="utf-8")
        kept = table()
    assert kept == table(), "`make golden` updates it"


def test_every_kind_but_refusals_has_a_planted_bug() -> None:
    assert [kind for kind in Kind if not of_kind(kind)] == [Kind.FAULT]
