"""The result of a check: findings, guarantees and their scope, and cost tables."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pykittens.analysis.timeline.spans import Timeline
from pykittens.checker.report.advice import ADVICE
from pykittens.checker.report.data import data, json_text
from pykittens.checker.report.page import page
from pykittens.checker.report.text import text
from pykittens.checker.report.trace import chrome
from pykittens.emulate.finding import Finding, Kind, Level
from pykittens.errors import ArgumentError, Loc
from pykittens.pictures.timeline import draw

# The forms of a report, and how the names of their files end; the first that fits counts.
FORMATS = {
    "trace": ".trace.json",
    "json": ".json",
    "html": ".html",
    "svg": ".svg",
    "text": ".txt",
}
# What pk.check takes by name for itself: a kernel's constants of these names stand in the last.
OPTIONS = ("schedules", "seed", "ignore", "undefined", "device", "costs", "constants")
_WORST_FIRST = (Level.ERROR, Level.WARNING, Level.NOTE)


@dataclass(frozen=True)
class Row:
    """One line of a table; `loc` is the line of the kernel it speaks of."""

    cells: tuple[str, ...]
    loc: Loc | None = None


@dataclass(frozen=True)
class Table:
    """What an analysis found, in words and numbers; `note` says how to read it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""


@dataclass(frozen=True)
class Source:
    """The text of a kernel: its file, the number of its first line, and its lines."""

    file: str
    first: int
    lines: tuple[str, ...] = ()

    @staticmethod
    def of(function: Callable[..., Any]) -> Source:
        """The text of a function; without lines where it cannot be read."""
        code = function.__code__
        try:
            lines, first = inspect.getsourcelines(function)
        except (OSError, TypeError):
            return Source(code.co_filename, code.co_firstlineno)
        return Source(code.co_filename, first, tuple(line.rstrip() for line in lines))

    @property
    def place(self) -> str:
        """The file and the first line, as errors show them."""
        return str(Loc(self.file, self.first, ""))


@dataclass(frozen=True)
class Report:
    """Everything a check says about one call of a kernel.

    arguments and constants: what it was called with, in words. seeds: the schedules that were tried. proved:
    sentences that hold for all arguments. holds: one sentence that says for what the rest holds. ignored: how many
    findings of which kind were left out. timeline: the first schedule. command: the command line that made the report.
    """

    kernel: str
    source: Source
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

    def __post_init__(self) -> None:
        """Put the findings in order, errors first; one that has no advice of its own gets that of its kind."""
        advised = (
            f if f.help else dataclasses.replace(f, help=ADVICE[f.kind]) for f in self.findings
        )
        ordered = sorted(advised, key=lambda f: _WORST_FIRST.index(f.level))
        object.__setattr__(self, "findings", tuple(ordered))

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings and notes there may be."""
        return not self.errors

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are wrong on a GPU."""
        return self._of(Level.ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that may be meant."""
        return self._of(Level.WARNING)

    @property
    def notes(self) -> tuple[Finding, ...]:
        """The findings that cost time only."""
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
        return ", ".join(counts) or "no fault found"

    def replay(self, finding: Finding) -> str:
        """What to write or type to see a finding again; empty where it needs no schedule."""
        if finding.seed is None:
            return ""
        # That results differ is seen of two, the first of which is that of an earlier seed.
        differs = finding.kind is Kind.SCHEDULE_DEPENDENT and not finding.missing
        compares = differs and finding.seed > 0 and len(self.seeds) > 1
        option, number = ("schedules", finding.seed + 1) if compares else ("seed", finding.seed)
        if self.command:
            return f"{self.command} --{option} {number}"
        named = [f"{n}={v}" for n, v in self.constants.items() if n not in OPTIONS]
        if apart := [f'"{n}": {v}' for n, v in self.constants.items() if n in OPTIONS]:
            named.append(f"constants={{{', '.join(apart)}}}")
        words = (self.kernel, *self.arguments, *named, f"{option}={number}")
        return f"pk.check({', '.join(words)})"

    def __str__(self) -> str:
        return text(self)

    def data(self) -> dict[str, Any]:
        """The report as plain values, with the fields that `pykittens.checker.report.data` describes."""
        return data(self)

    def json(self) -> str:
        """The report as JSON."""
        return json_text(self.data())

    def html(self) -> str:
        """The report as one page, with the lines of the kernel marked."""
        return page([self])

    def svg(self) -> str:
        """The timeline as a picture."""
        return draw(self._timed()).svg()

    def trace(self) -> str:
        """The timeline in the Chrome trace event format, which Perfetto opens."""
        return json_text(chrome(self._timed()))

    def _timed(self) -> Timeline:
        if self.timeline is not None and self.timeline.spans:
            return self.timeline
        why = (
            "no schedule was run"
            if not self.seeds
            else "it was made with costs=False"
            if self.timeline is None
            else "no block did anything"
        )
        raise ArgumentError(f"the report on {self.kernel} has no timeline, as {why}")

    def save(self, path: str | Path) -> None:
        """Write what the end of the name says: .txt, .json, .html, .svg or .trace.json, the last two the timeline."""
        path = Path(path)
        form = next((f for f, ending in FORMATS.items() if path.name.endswith(ending)), None)
        if form is None:
            raise ArgumentError(
                f"a report cannot be written as `{path.name}`",
                help=f"let the name end in {', '.join(FORMATS.values())}",
            )
        path.write_text(self.as_text(form), encoding="utf-8", newline="\n")

    def as_text(self, form: str) -> str:
        """The report in one of FORMATS."""
        makers = {"trace": self.trace, "svg": self.svg, "html": self.html, "json": self.json}
        return makers[form]() if form in makers else f"{self}\n"

    def _of(self, level: Level) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.level is level)
