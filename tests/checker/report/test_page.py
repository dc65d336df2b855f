"""A report as one page: it stands alone, marks the lines of the kernel, and shows texts as they are."""

from __future__ import annotations

import dataclasses
import re

import pytest

from pykittens.analysis.timeline.spans import Timeline
from pykittens.checker.report.listing import listings
from pykittens.checker.report.page import page, report_in_notebook
from pykittens.checker.report.report import Row, Table
from pykittens.emulate.finding import Finding, FindingStep, Kind
from pykittens.errors import Loc
from pykittens.pictures.steps import draw
from tests.checker.report.sample import (
    COPY,
    READ,
    full_report,
    many_threads,
    moments,
    place,
    report,
    tables,
    unlanded,
)
from tests.parsed import Parsed
from tests.timelines import two_blocks


def test_a_page_is_whole_and_loads_and_runs_nothing() -> None:
    text = full_report().html()
    parsed = Parsed(text)
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in parsed.found}
    # The name of the language of pictures is no address that is loaded.
    addresses = re.sub(r"http://www\.w3\.org/2000/svg", "", text)
    assert not re.search(r"https?:|url\(|@import| on\w+=", addresses)
    assert "prefers-color-scheme: dark" in text


def test_a_page_says_all_that_the_text_says() -> None:
    made = full_report()
    shown = " ".join(Parsed(made.html()).text.split())
    for finding in made.findings:
        for told in (finding.message, finding.help, finding.missing, finding.kind.value):
            assert told in shown
        assert all(str(step).strip() in shown for step in finding.steps)
    for part in (
        made.replay(unlanded()),
        made.holds,
        *made.proved,
        "2 of race",
        "1,024",
        "f32[64, 64]",
    ):
        assert part in shown
    assert Parsed(report().html()).text.count("no fault found") == 1


def test_links_from_marked_lines_lead_to_their_findings() -> None:
    parsed = Parsed(page([full_report(), full_report()]))
    names = parsed.attributes("id")
    assert len(names) == len(set(names))
    links = [h.removeprefix("#") for h in parsed.attributes("href")]
    assert len(links) == 8
    assert set(links) <= set(names)


def test_a_page_of_several_reports_begins_with_an_index() -> None:
    text = page([full_report(), report()])
    index = Parsed(text[text.index("<nav>") : text.index("</nav>") + len("</nav>")])
    assert index.attributes("href") == ["#r1", "#r2"]
    assert full_report().verdict in index.text
    assert "no fault found" in index.text
    assert text.index("</nav>") < text.index('<section class="report" id="r1">')
    assert "<nav>" not in report().html()


def test_wide_tables_can_be_scrolled_and_the_last_remarks_have_a_heading() -> None:
    text = full_report().html()
    assert text.count("<table") == text.count('<div class="wide"><table')
    assert ".wide { margin: 0; overflow-x: auto; }" in text
    remarks = text.index('<p class="ignored">')
    heading = text.rindex("<h2>", 0, remarks)
    assert text[heading:remarks] == "<h2>How far the report holds</h2>\n"


def test_a_finding_has_the_number_that_marks_and_remarks_use() -> None:
    text = full_report().html()
    assert (
        '<article class="finding is-error" id="r1-1">\n<h2><span class="badge">error 1</span>'
        in text
    )


def test_texts_are_no_markup() -> None:
    evil = "<script>alert('&amp;')</script>"
    step = FindingStep(evil, evil, Loc(evil, 3, evil))
    finding = Finding(
        Kind.RACE, evil, (step,), missing=evil, help=evil, seed=1, operands={evil: evil}
    )
    table = Table(evil, (evil,), (Row((evil,), step.loc),), note=evil)
    made = report(
        finding, arguments={evil: evil}, proved=(evil,), holds=evil, ignored={evil: 1},
        tables=(table,), command=evil,
    )  # fmt: skip
    text = made.html()
    assert "<script" not in text
    assert Parsed(text).text.count(evil) >= 15


def test_the_lines_of_the_kernel_are_all_there_with_marks_and_costs() -> None:
    made = full_report()
    (listing,) = listings(made)
    assert [line.text for line in listing.lines] == [*made.source.lines]
    assert listing.lines[0].number == made.source.first
    marked = {line.number: line for line in listing.lines if line.marks}
    assert marked.keys() == {place(COPY).line, place(READ).line}
    read = marked[place(READ).line]
    assert [(m.number, m.text) for m in read.marks] == [
        (1, f"warpgroups reads `tile`: {unlanded().message}"),
        (2, made.findings[1].message),
    ]
    assert [(c.text, c.title) for c in read.costs] == [
        (
            "load tile · 1,024 · 512",
            "Bank conflicts: operation: load tile; wavefronts: 1,024; least: 512",
        )
    ]


def test_a_marked_line_outside_the_kernel_is_shown_with_those_around_it() -> None:
    made = report()
    here = Loc(made.source.file, 3, "<module>")
    (own, other) = listings(report(Finding(Kind.FAULT, "wrong", (FindingStep("", "", here),))))
    assert len(own.lines) == len(made.source.lines)
    assert other.title.startswith("elsewhere in ")
    assert [line.number for line in other.lines] == [1, 2, 3, 4, 5, 6]
    assert [line.number for line in other.lines if line.marks] == [3]


def test_excerpts_repeat_no_line_of_the_kernel() -> None:
    source = report().source
    above = Loc(source.file, source.first - 1, "<module>")
    (_, other) = listings(report(Finding(Kind.FAULT, "wrong", (FindingStep("", "", above),))))
    numbers = [line.number for line in other.lines]
    assert numbers == [source.first - n for n in (4, 3, 2, 1)]


@pytest.mark.parametrize("timeline", [None, two_blocks(), Timeline("nothing", "", "ns", (), ())])
def test_a_timeline_stands_in_the_page_where_there_is_one(timeline: Timeline | None) -> None:
    text = report(many_threads(), timeline=timeline).html()
    assert ("<figure>" in text) == bool(timeline is not None and timeline.spans)
    assert "<?xml" not in full_report().html()


def test_the_steps_of_a_conflict_stand_below_its_finding() -> None:
    with_steps = dataclasses.replace(unlanded(), moments=moments("tile"))
    text = report(many_threads(), with_steps).html()
    of_finding = text[text.index('id="r1-1"') : text.index('id="r1-2"')]
    assert f'<figure class="steps">\n{draw(with_steps).svg()}</figure>\n</article>' in of_finding
    assert text.count("<figure") == 1


def test_in_a_notebook_a_report_says_what_its_page_says() -> None:
    made = full_report()
    shown = report_in_notebook(made)
    (body,) = re.findall("<main>.*</main>", page([made]), re.S)
    assert Parsed(shown).text.split() == Parsed(body).text.split()
    assert made._repr_html_() == shown


def test_in_a_notebook_only_findings_are_unfolded() -> None:
    text = report_in_notebook(full_report())
    before, _, after = text.partition("<details>")
    assert before.count("<article") == len(full_report().findings)
    assert "<pre>" in before
    assert "<table" not in before
    assert after.count("<details>") + 1 == text.count("</details>") == 6
    assert "<article" not in after


def test_in_a_notebook_a_report_is_no_page_and_has_no_headings() -> None:
    tags = {tag for tag, _ in Parsed(report_in_notebook(full_report())).found}
    assert not tags & {"html", "head", "body", "main", "h1", "h2", "script", "link", "img"}


def test_reports_of_a_notebook_have_links_of_their_own() -> None:
    both = report_in_notebook(full_report()) + report_in_notebook(report(unlanded()))
    names = Parsed(both).attributes("id")
    assert len(names) == len(set(names)) == 2 + 3 + 1
    assert {h.removeprefix("#") for h in Parsed(both).attributes("href")} <= set(names)
    assert report_in_notebook(full_report()) in both  # the same each time


def test_in_a_notebook_a_table_is_shown_by_itself() -> None:
    for table in tables():
        shown = Parsed(table._repr_html_()).text
        assert table.title in shown
        assert table.note in shown
        assert all(cell in shown for row in table.rows for cell in row.cells)
