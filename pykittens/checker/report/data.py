"""A report as plain values, for programs. A field keeps its name and meaning as long as `schema` is the same.

schema      number of this description, 1
kernel      name of the kernel; file, line: its first line
arguments   the arguments of the call, in words, by name; constants: the compile-time constants likewise
ok          whether there is no error; errors, warnings, notes: the number of findings of each level
schedules   seeds of the schedules that were tried
findings    errors first, each with
            kind, level     names, as `--ignore` and `--fail-on` take them
            message         what is wrong; operands: the types of the operands, as text, by name
            steps           the accesses: who, what, file, line, function, source (the text of the line), columns
                            (the first and the one past the last, from 0; null if unknown); for a line of a helper,
                            calls: the lines by which the kernel calls it, the innermost first, with the same fields
            history         what led to the fault, like the steps: the last signals, what each group has done
            missing         what is missing between the steps; help: what to change
            scope           "always", "every_schedule" or "tried"; holds: the same as a sentence
            seed            the first schedule that showed it, null if none is needed; replay: how to see it again
            seen_in         the number of schedules that showed it
            follows         the number of the finding, from 1, from which it probably follows, or null
proved      sentences that hold for all arguments
holds       one sentence: how far the other findings hold
ignored     the number of findings left out, by kind
tables      title, columns, rows (cells, file, line), note
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pykittens.checker.report.text import scope
from pykittens.emulate.finding import Finding, FindingStep

if TYPE_CHECKING:
    from pykittens.checker.report.report import CheckReport, Table
    from pykittens.errors import Loc

SCHEMA = 1


def data(report: CheckReport) -> dict[str, Any]:
    """One report."""
    file, _, line = report.source.location.rpartition(":")
    return {
        "schema": SCHEMA,
        "kernel": report.kernel,
        "file": file,
        "line": int(line),
        "arguments": dict(report.arguments),
        "constants": dict(report.constants),
        "ok": report.ok,
        "errors": len(report.errors),
        "warnings": len(report.warnings),
        "notes": len(report.notes),
        "schedules": list(report.seeds),
        "findings": [
            _finding(report, f) | {"follows": None if cause is None else cause + 1}
            for f, cause in zip(report.findings, report.causes, strict=True)
        ],
        "proved": list(report.proved),
        "holds": report.holds,
        "ignored": dict(report.ignored),
        "tables": [_table(t) for t in report.tables],
    }


def all_data(reports: Sequence[CheckReport]) -> dict[str, Any]:
    """Several reports, as `pykittens check --format json` prints them: schema, ok (of all), reports."""
    return {
        "schema": SCHEMA,
        "ok": all(r.ok for r in reports),
        "reports": [data(r) for r in reports],
    }


def json_text(values: dict[str, Any]) -> str:
    """Plain values as a file of JSON."""
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def _finding(report: CheckReport, finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind.value,
        "level": finding.level.value,
        "message": finding.message,
        "operands": {name: str(value) for name, value in finding.operands.items()},
        "steps": [_step(step) for step in finding.steps],
        "history": [_step(step) for step in finding.history],
        "missing": finding.missing,
        "help": finding.help,
        "scope": finding.scope.name.lower(),
        "holds": scope(report, finding),
        "seed": finding.seed,
        "replay": report.replay(finding) or None,
        "seen_in": finding.schedules,
    }


def _step(step: FindingStep) -> dict[str, Any]:
    return {
        "who": step.who,
        "what": step.what,
        **_place(step.loc),
        "calls": [_place(caller) for caller in step.loc.callers] if step.loc else [],
    }


def _place(loc: Loc | None) -> dict[str, Any]:
    """The location with its line of source."""
    return {
        **_location(loc),
        "function": loc and loc.function,
        "source": loc and loc.text,
        "columns": list(loc.columns) if loc and loc.columns else None,
    }


def _location(loc: Loc | None) -> dict[str, Any]:
    """The file as errors show it, and the line."""
    return {"file": loc and str(loc).rpartition(":")[0], "line": loc and loc.line}


def _table(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "columns": list(table.columns),
        "rows": [{"cells": list(r.cells), **_location(r.loc)} for r in table.rows],
        "note": table.note,
    }
