"""The result of a check: findings, guarantees and their scope, and cost tables."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pykittens.analysis.timeline.spans import Timeline
from pykittens.checker.report.advice import ADVICE
from pykittens.checker.report.causes import causes
from pykittens.checker.report.data import data, json_text
from pykittens.checker.report.page import page, report_in_notebook, table_in_notebook
from pykittens.checker.report.text import text
from pykittens.checker.report.trace import chrome
from pykittens.emulate.finding import Finding, Kind, Level
from pykittens.errors import ArgumentError, Loc
from pykittens.pictures import steps
from pykittens.pictures.timeline import draw

# The formats of a report and their file extensions; the first that matches counts.
FORMATS = {
    "trace": ".trace.json",
    "json": ".json",
    "html": ".html",
    "steps": ".steps.svg",
    "svg": ".svg",
    "text": ".txt",
}
# The options of pk.check. Constants of a kernel with these names are passed in the last.
OPTIONS = (
    *("schedules", "seed", "ignore", "undefined", "kept", "device", "costs", "compile"),
    "constants",
)
_WORST_FIRST = (Level.ERROR, Level.WARNING, Level.NOTE)


@dataclass(frozen=True)
class Row:
    """One row of a table; `loc` is the line of the kernel that it describes."""

    cells: tuple[str, ...]
    loc: Loc | None = None


@dataclass(frozen=True)
class Table:
    """The result of an analysis, in words and numbers; `note` says how to read it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""

    def _repr_html_(self) -> str:
        return table_in_notebook(self)


@dataclass(frozen=True)
class KernelText:
    """The text of a kernel: its file, the number of its first line, and its lines."""

    file: str
    first: int
    lines: tuple[str, ...] = ()

    @staticmethod
    def of(function: Callable[..., Any]) -> KernelText:
        """The text of a function; without lines if it cannot be read."""
        code = function.__code__
        try:
            lines, first = inspect.getsourcelines(function)
        except (OSError, TypeError):
            return KernelText(code.co_filename, code.co_firstlineno)
        return KernelText(code.co_filename, first, tuple(line.rstrip() for line in lines))

    @property
    def location(self) -> str:
        """The file and the first line, as errors show them."""
        return str(Loc(self.file, self.first, ""))


@dataclass(frozen=True, repr=False)
class CheckReport:
    """The result of a check of one call of a kernel.

    arguments and constants: those of the call, in words. seeds: the schedules that were tried. proved: sentences that
    hold for all arguments. holds: one sentence that says how far the other findings hold. ignored: the number of
    findings left out, by kind. timeline: that of the first schedule. command: the command line of the check. causes:
    for each finding the index of the one from which it probably follows, or None.
    """

    kernel: str
    source: KernelText
    arguments: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    seeds: tuple[int, ...] = ()
    proved: tuple[str, ...] = ()
    holds: str = ""
    tables: tuple[Table, ...] = ()
    timeline: Timeline | None = None
    ignored: Mapping[str, int] = field(default_factory=dict)
    command: str = ""
    causes: tuple[int | None, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        """Sort the findings, errors first, consequences after their cause; add advice if there is none."""
        advised = [
            f if f.help else dataclasses.replace(f, help=ADVICE[f.kind]) for f in self.findings
        ]
        found = causes(advised)

        def place(i: int) -> tuple[int, int, bool, int]:
            cause = found[i]
            root = i if cause is None else cause
            return _WORST_FIRST.index(advised[i].level), root, i != root, i

        order = sorted(range(len(advised)), key=place)
        object.__setattr__(self, "findings", tuple(advised[i] for i in order))
        numbers = {i: number for number, i in enumerate(order)}
        follows = (found[i] for i in order)
        object.__setattr__(
            self, "causes", tuple(None if c is None else numbers[c] for c in follows)
        )

    @property
    def ok(self) -> bool:
        """Whether there is no error; there may be warnings and notes."""
        return not self.errors

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are wrong on a GPU."""
        return self._of(Level.ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that may be intended."""
        return self._of(Level.WARNING)

    @property
    def notes(self) -> tuple[Finding, ...]:
        """The findings that cost time only, or are about values."""
        return self._of(Level.NOTE)

    def found(self, kind: Kind) -> tuple[Finding, ...]:
        """The findings of one kind."""
        return tuple(f for f in self.findings if f.kind is kind)

    def fails(self, fail_on: Level | None = Level.ERROR) -> bool:
        """Whether there is a finding as bad as this or worse; with None, never."""
        if fail_on is None:
            return False
        enough = _WORST_FIRST[: _WORST_FIRST.index(fail_on) + 1]
        return any(f.level in enough for f in self.findings)

    @property
    def verdict(self) -> str:
        """How many findings of each level there are, in words."""
        counts = [
            f"{len(found)} {level.value}{'s' * (len(found) > 1)}"
            for level in _WORST_FIRST
            if (found := self._of(level))
        ]
        follow = sum(cause is not None for cause in self.causes)
        more = f" ({follow} probably follow{'s' * (follow == 1)} from another)" if follow else ""
        return ", ".join(counts) + more if counts else "no fault found"

    def replay(self, finding: Finding) -> str:
        """The call or command that shows a finding again; empty if the finding needs no schedule."""
        if finding.seed is None:
            return ""
        # Two schedules are needed to see that results differ; the first has a smaller seed.
        differs = finding.kind is Kind.SCHEDULE_DEPENDENT and not finding.missing
        compares = differs and finding.seed > 0 and len(self.seeds) > 1
        option, number = ("schedules", finding.seed + 1) if compares else ("seed", finding.seed)
        if self.command:
            return f"{self.command} --{option} {number}"
        named = [f"{n}={v}" for n, v in self.constants.items() if n not in OPTIONS]
        if quoted := [f'"{n}": {v}' for n, v in self.constants.items() if n in OPTIONS]:
            named.append(f"constants={{{', '.join(quoted)}}}")
        # An argument with parts, such as weights.q, is passed as a whole.
        passed = dict.fromkeys(re.split(r"[.[]", name)[0] for name in self.arguments)
        words = (self.kernel, *passed, *named, f"{option}={number}")
        return f"pk.check({', '.join(words)})"

    def __repr__(self) -> str:
        """The verdict and the worst finding; the whole report is its text."""
        lines = [f"<check of {self.kernel}, {self.source.location}: {self.verdict}>"]
        if self.findings:
            worst = self.findings[0]
            lines.append(f"{worst.level.value}[{worst.kind.value}]: {worst.message}")
        return "\n".join([*lines, "print(report) shows the whole report"])

    def __str__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        return report_in_notebook(self)

    def data(self) -> dict[str, Any]:
        """The report as plain values, with the fields that `pykittens.checker.report.data` describes."""
        return data(self)

    def json(self) -> str:
        """The report as JSON."""
        return json_text(self.data())

    def html(self) -> str:
        """The report as one HTML page, with the lines of the kernel marked."""
        return page([self])

    def svg(self) -> str:
        """The timeline as a picture."""
        return draw(self._timed()).svg()

    def steps(self) -> str:
        """The picture of what led to the worst conflict: who used the tile, and what the other group had seen."""
        for finding in self.findings:
            if finding.moments:
                return steps.draw(finding).svg()
        raise ArgumentError(
            f"the report on {self.kernel} has no steps to show: no finding is about two accesses to shared memory",
            help="an .svg shows the timeline",
        )

    def trace(self) -> str:
        """The timeline in the Chrome trace event format, which Perfetto opens."""
        return json_text(chrome(self._timed()))

    def _timed(self) -> Timeline:
        if self.timeline is not None and self.timeline.spans:
            return self.timeline
        why = (
            "no schedule was run"
            if not self.seeds
            else "the check had costs=False or --no-costs"
            if self.timeline is None
            else "no block did any work"
        )
        raise ArgumentError(f"the report on {self.kernel} has no timeline: {why}")

    def save(self, path: str | Path) -> None:
        """Write a file in the format of its extension: .txt, .json, .html, the timeline as .svg or .trace.json, or the
        steps of the worst conflict as .steps.svg.
        """
        path = Path(path)
        form = next((f for f, ending in FORMATS.items() if path.name.endswith(ending)), None)
        if form is None:
            raise ArgumentError(
                f"`{path.name}` has none of the extensions of a report",
                help=f"use one of {', '.join(FORMATS.values())}",
            )
        path.write_text(self.as_text(form), encoding="utf-8", newline="\n")

    def as_text(self, form: str) -> str:
        """The report in one of FORMATS."""
        return f"{self}\n" if form == "text" else str(getattr(self, form)())

    def _of(self, level: Level) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.level is level)
