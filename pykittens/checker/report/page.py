"""Reports as HTML, in a page or in a notebook: findings, annotated source, tables, the timeline.

A page loads nothing, runs no script, and follows the reader's choice of light or dark. In a notebook only the findings
are unfolded.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from pykittens.checker.report.listing import LineMark, Listing, SourceLine, listings
from pykittens.checker.report.page_style import PAGE_STYLE, STYLE
from pykittens.checker.report.text import closing, laid_out, remarks
from pykittens.emulate.finding import Finding, FindingStep
from pykittens.pictures import markup, steps
from pykittens.pictures.timeline import draw

if TYPE_CHECKING:
    from pykittens.checker.report.report import CheckReport, Table


def page(reports: Sequence[CheckReport]) -> str:
    """One page for one or several reports."""
    title = ", ".join(dict.fromkeys(r.kernel for r in reports)) or "no kernel"
    named = [(report, f"r{number}") for number, report in enumerate(reports, 1)]
    body = "\n".join([*_index(named), *(line for r, name in named for line in _report(r, name))])
    return document(f"pykittens check: {title}", body)


def document(title: str, body: str) -> str:
    """A whole page."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{PAGE_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def report_in_notebook(report: CheckReport) -> str:
    """The report as HTML inside another page."""
    # A name of its own, so that links lead to this report and not to another of the notebook.
    name = f"r{zlib.crc32(str(report).encode()):08x}"
    return markup.fragment("\n".join(_report(report, name, is_page=False)), STYLE)


def table_in_notebook(table: Table) -> str:
    """One table as HTML inside another page."""
    return markup.fragment("\n".join((_heading("p.part", escape(table.title)), *_table(table))))


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


def _report(report: CheckReport, name: str, is_page: bool = True) -> Iterator[str]:
    level = _worst(report)
    yield f'<section class="report" id="{name}">'
    place = f"<small>{escape(report.source.location)}</small>"
    yield _heading("h1" if is_page else "p.title", f"{escape(report.kernel)} {place}")
    yield f'<p class="verdict is-{level}">{escape(report.verdict)}</p>'
    yield from _named({**report.arguments, **report.constants})
    for number, finding in enumerate(report.findings, 1):
        yield from _finding(report, finding, number, name, "h2" if is_page else "p.part")
    for title, lines in _parts(report, name):
        if is_page:
            yield from (f"<h2>{escape(title)}</h2>", *lines)
        else:
            yield from (f"<details><summary>{escape(title)}</summary>", *lines, "</details>")
    yield "</section>"


def _heading(element: str, text: str) -> str:
    """An element such as `h1`, or `p.title` with its class."""
    tag, _, style = element.partition(".")
    return f'<{tag} class="{style}">{text}</{tag}>' if style else f"<{tag}>{text}</{tag}>"


def _parts(report: CheckReport, name: str) -> Iterator[tuple[str, Iterable[str]]]:
    """What stands below the findings, by its title."""
    for listing in listings(report):
        yield listing.title, _listing(listing, name)
    for table in report.tables:
        yield table.title, _table(table)
    if report.timeline is not None and report.timeline.spans:
        yield "Timeline", (f"<figure>\n{draw(report.timeline).svg()}</figure>",)
    if report.proved:
        sentences = "".join(f"<li>{escape(s)}</li>" for s in report.proved)
        yield "Proved for all arguments", (f"<ul>{sentences}</ul>",)
    yield "How far the report holds", _remarks(closing(report))


def _named(values: Mapping[str, object]) -> Iterator[str]:
    if values:
        rows = "".join(f"<dt>{escape(n)}</dt><dd>{escape(str(v))}</dd>" for n, v in values.items())
        yield f"<dl>{rows}</dl>"


def _remarks(labelled: Iterable[tuple[str, str]]) -> Iterator[str]:
    for label, said in labelled:
        shown = f"<code>{escape(said)}</code>" if label == "replay" else escape(said)
        yield f'<p class="{label}"><b>{label}</b> {shown}</p>'


# -- findings --------------------------------------------------------------------------------------


def _finding(
    report: CheckReport, finding: Finding, number: int, name: str, heading: str
) -> Iterator[str]:
    level, kind = finding.level.value, finding.kind
    yield f'<article class="finding is-{level}" id="{name}-{number}">'
    yield _heading(
        heading,
        f'<span class="badge">{level} {number}</span> {escape(finding.message)} '
        f'<small title="{escape(kind.meaning)}">{escape(kind.value)}</small>',
    )
    yield from _named(finding.operands)
    for step in (*finding.steps, *finding.history):
        yield from _step(step)
    yield from _remarks(remarks(report, finding))
    if finding.moments:
        yield f'<figure class="steps">\n{steps.draw(finding).svg()}</figure>'
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


def _listing(listing: Listing, name: str) -> Iterator[str]:
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
    if rows:
        yield markup.table(columns, rows, right)
    if table.note:
        yield f'<p class="hint">{escape(table.note)}</p>'
