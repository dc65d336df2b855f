"""A report as plain values, for programs. A field keeps its name and meaning as long as `schema` is the same.

schema      number of this description, 1
kernel      name of the kernel; file, line: where it begins
arguments   what it was called with, in words, by name; constants: its compile-time constants likewise
ok          whether there is no error; errors, warnings, notes: how many findings of each level
schedules   seeds of the schedules that were tried
findings    errors first, each with
            kind, level     names, as `--ignore` and `--fail-on` take them
            message         what is wrong; operands: what it is about, in words, by name
            steps           the places: who, what, file, line, function, source (the text of the line), columns
                            (first and behind the last, from 0; null where unknown)
            missing         what is not there between the steps; help: what to change
            scope           "always", "every_schedule" or "tried"; holds: the same as a sentence
            seed            the first schedule that showed it, null where none is needed; replay: how to see it again
            seen_in         how many of the schedules showed it
proved      sentences that hold for all arguments
holds       one sentence: for what the rest holds
ignored     how many findings of which kind were left out
tables      title, columns, rows (cells, file, line), note
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pykittens.checker.report.text import scope
from pykittens.emulate.finding import Finding, FindingStep

if TYPE_CHECKING:
    from pykittens.checker.report.report import Report, Table
    from pykittens.errors import Loc

SCHEMA = 1


def data(report: Report) -> dict[str, Any]:
    """One report."""
    file, _, line = report.source.place.rpartition(":")
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
        "findings": [_finding(report, f) for f in report.findings],
        "proved": list(report.proved),
        "holds": report.holds,
        "ignored": dict(report.ignored),
        "tables": [_table(t) for t in report.tables],
    }


def all_data(reports: Sequence[Report]) -> dict[str, Any]:
    """Several reports, as `pykittens check --format json` prints them: schema, ok (of all), reports."""
    return {
        "schema": SCHEMA,
        "ok": all(r.ok for r in reports),
        "reports": [data(r) for r in reports],
    }


def json_text(values: dict[str, Any]) -> str:
    """Plain values as a file of JSON."""
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def _finding(report: Report, finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind.value,
        "level": finding.level.value,
        "message": finding.message,
        "operands": {name: str(value) for name, value in finding.operands.items()},
        "steps": [_step(step) for step in finding.steps],
        "missing": finding.missing,
        "help": finding.help,
        "scope": finding.scope.name.lower(),
        "holds": scope(report, finding),
        "seed": finding.seed,
        "replay": report.replay(finding) or None,
        "seen_in": finding.schedules,
    }


def _step(step: FindingStep) -> dict[str, Any]:
    found: dict[str, Any] = {"who": step.who, "what": step.what, **_place(step.loc)}
    loc = step.loc
    found["function"] = None if loc is None else loc.function
    found["source"] = None if loc is None else loc.text
    columns = None if loc is None else loc.columns
    found["columns"] = None if columns is None else list(columns)
    return found


def _place(loc: Loc | None) -> dict[str, Any]:
    """The file as errors show it, and the line."""
    if loc is None:
        return {"file": None, "line": None}
    return {"file": str(loc).rpartition(":")[0], "line": loc.line}


def _table(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "columns": list(table.columns),
        "rows": [{"cells": list(r.cells), **_place(r.loc)} for r in table.rows],
        "note": table.note,
    }
