"""Reports as one self-contained HTML page: findings, annotated source, tables, the timeline.

It loads nothing, runs no script, and follows the reader's choice of light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from pykittens.checker.report.listing import LineMark, SourceLine, listings
from pykittens.checker.report.page_style import STYLE
from pykittens.checker.report.text import closing, laid_out, remarks
from pykittens.emulate.finding import Finding, FindingStep
from pykittens.pictures.timeline import draw

if TYPE_CHECKING:
    from pykittens.checker.report.report import CheckReport, Table


def page(reports: Sequence[CheckReport]) -> str:
    """One page for one or several reports."""
    title = ", ".join(dict.fromkeys(r.kernel for r in reports)) or "no kernel"
    named = [(report, f"r{number}") for number, report in enumerate(reports, 1)]
    body = "\n".join([*_index(named), *(line for r, name in named for line in _report(r, name))])
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>pykittens check: {escape(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _index(named: Sequence[tuple[CheckReport, str]]) -> Iterator[str]:
    """Links to the reports of a page that has several, with their verdicts."""
    if len(named) < 2:
        return
    yield "<nav>\n<h1>Reports</h1>\n<ol>"
    for report, name in named:
        yield (
            f'<li><a href="#{name}">{escape(report.kernel)}</a> <small>{escape(report.source.location)}</small> '
            f'<span class="verdict is-{_worst(report)}">{escape(report.verdict)}</span></li>'
        )
    yield "</ol>\n</nav>"


def _worst(report: CheckReport) -> str:
    """The level of the worst finding."""
    return report.findings[0].level.value if report.findings else "fine"


def _report(report: CheckReport, name: str) -> Iterator[str]:
    level = _worst(report)
    yield f'<section class="report" id="{name}">'
    yield f"<h1>{escape(report.kernel)} <small>{escape(report.source.location)}</small></h1>"
    yield f'<p class="verdict is-{level}">{escape(report.verdict)}</p>'
    yield from _named({**report.arguments, **report.constants})
    for number, finding in enumerate(report.findings, 1):
        yield from _finding(report, finding, number, name)
    yield from _listings(report, name)
    for table in report.tables:
        yield from _table(table)
    if report.timeline is not None and report.timeline.spans:
        drawn = draw(report.timeline).svg()
        # A picture inside a page has no XML head.
        yield f"<h2>Timeline</h2>\n<figure>\n{drawn[drawn.find('<svg') :]}</figure>"
    if report.proved:
        sentences = "".join(f"<li>{escape(s)}</li>" for s in report.proved)
        yield f"<h2>Proved for all arguments</h2>\n<ul>{sentences}</ul>"
    yield "<h2>How far the report holds</h2>"
    yield from _remarks(closing(report))
    yield "</section>"


def _named(values: Mapping[str, object]) -> Iterator[str]:
    if values:
        rows = "".join(f"<dt>{escape(n)}</dt><dd>{escape(str(v))}</dd>" for n, v in values.items())
        yield f"<dl>{rows}</dl>"


def _remarks(labelled: Iterable[tuple[str, str]]) -> Iterator[str]:
    for label, said in labelled:
        shown = f"<code>{escape(said)}</code>" if label == "replay" else escape(said)
        yield f'<p class="{label}"><b>{label}</b> {shown}</p>'


# -- findings --------------------------------------------------------------------------------------


def _finding(report: CheckReport, finding: Finding, number: int, name: str) -> Iterator[str]:
    level, kind = finding.level.value, finding.kind
    yield f'<article class="finding is-{level}" id="{name}-{number}">'
    yield (
        f'<h2><span class="badge">{level} {number}</span> {escape(finding.message)} '
        f'<small title="{escape(kind.meaning)}">{escape(kind.value)}</small></h2>'
    )
    yield from _named(finding.operands)
    for step in (*finding.steps, *finding.history):
        yield from _step(step)
    yield from _remarks(remarks(report, finding))
    yield "</article>"


def _step(step: FindingStep) -> Iterator[str]:
    if caption := str(step).strip():
        yield f'<p class="step">{escape(caption)}</p>'
    for loc in () if step.loc is None else (step.loc, *step.loc.callers):
        where, *excerpt = loc.line_excerpt().splitlines()
        lines = "\n".join(line.removeprefix("    ") for line in excerpt)
        called = "" if loc is step.loc else "called at "
        yield f'<p class="where">{called}{escape(where.strip())}</p>'
        if lines:
            yield f"<pre>{escape(lines)}</pre>"


# -- the kernel, line by line ----------------------------------------------------------------------


def _listings(report: CheckReport, name: str) -> Iterator[str]:
    for listing in listings(report):
        yield f"<h2>{escape(listing.title)}</h2>"
        yield '<div class="wide"><table class="listing"><tbody>'
        before = None
        for line in listing.lines:
            if before is not None and line.number != before + 1:
                yield '<tr class="gap"><td>⋮</td><td></td><td></td></tr>'
            yield _line(line, name)
            before = line.number
        yield "</tbody></table></div>"


def _line(line: SourceLine, name: str) -> str:
    level = f' class="is-{line.marks[0].level.value}"' if line.marks else ""
    marks = "".join(_mark(mark, name) for mark in line.marks)
    costs = "".join(
        f'<span title="{escape(cost.title)}">{escape(cost.text)}</span>' for cost in line.costs
    )
    return (
        f"<tr{level}><td>{line.number}</td><td><pre>{escape(line.text) or ' '}</pre>{marks}</td>"
        f"<td>{costs}</td></tr>"
    )


def _mark(mark: LineMark, name: str) -> str:
    return (
        f'<a class="mark is-{mark.level.value}" href="#{name}-{mark.number}">'
        f"{mark.level.value} {mark.number}: {escape(mark.text)}</a>"
    )


# -- tables ----------------------------------------------------------------------------------------


def _table(table: Table) -> Iterator[str]:
    columns, rows, right = laid_out(table)

    def cells(tag: str, row: Sequence[str]) -> str:
        styles = (' class="number"' if is_right else "" for is_right in right)
        shown = (f"<{tag}{style}>{escape(c)}</{tag}>" for c, style in zip(row, styles, strict=True))
        return f"<tr>{''.join(shown)}</tr>"

    yield f"<h2>{escape(table.title)}</h2>"
    if rows:
        yield f'<div class="wide"><table class="numbers"><thead>{cells("th", columns)}</thead><tbody>'
        yield from (cells("td", row) for row in rows)
        yield "</tbody></table></div>"
    if table.note:
        yield f'<p class="hint">{escape(table.note)}</p>'
