"""A report as text: in the style of errors, the same on every machine, in colours on a terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from pykittens.checker.report import terminal
from pykittens.checker.report.report import CheckReport, Row, Table
from pykittens.checker.report.text import aligned
from tests.checker.report.sample import full_report, report, tables, unlanded

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("everything", full_report()),
        ("no_fault", report(holds="nothing was found in the 20 schedules tried")),
        ("command", report(unlanded(), command="pykittens check early.py")),
    ],
    ids=["everything", "no_fault", "command"],
)
def test_a_report_reads_as_agreed(
    name: str, made: CheckReport, golden: Callable[[str, str], None]
) -> None:
    golden(f"checker/{name}.txt", f"{made}\n")


def test_both_places_have_carets_below_the_expression() -> None:
    lines = str(report(unlanded())).splitlines()
    carets = [n for n, line in enumerate(lines) if re.fullmatch(r" +\^+", line)]
    assert len(carets) == 2
    for n in carets:
        start = lines[n].index("^")
        below = lines[n - 1][start : start + lines[n].count("^")]
        assert below in ("pk.load_async(tile, x[0, 0], signal=full)", "pk.load(tile)")


def test_a_table_without_rows_is_its_title_and_note() -> None:
    table = Table("Registers", ("role", "used"), (), note="no spills")
    assert [line.text for line in aligned(table)] == ["Registers", "  no spills"]
    console = Console(file=io.StringIO(), width=60)
    terminal.show(report(tables=(table,)), console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Registers\n  no spills\n" in shown
    assert "role" not in shown
    page = report(tables=(table,)).html()
    assert "<h2>Registers</h2>" in page
    assert "<th>role" not in page


def test_columns_of_numbers_end_below_each_other() -> None:
    table = Table("T", ("name", "n"), (Row(("a", "5")), Row(("long name", "1,024"))))
    assert [line.text for line in aligned(table)] == [
        "T",
        "  name           n",
        "  ---------  -----",
        "  a              5",
        "  long name  1,024",
    ]


def test_places_are_a_column_unless_the_cells_show_them() -> None:
    (conflicts, _), loc = tables(), tables()[0].rows[0].loc
    shown = [line.text for line in aligned(conflicts)]
    assert shown[1].split() == ["line", "operation", "wavefronts", "least"]
    assert shown[3].startswith(f"  {loc}  load tile")
    own = Table("T", ("where", "n"), (Row((str(loc), "5"), loc),))
    assert [line.text for line in aligned(own)][1].split() == ["where", "n"]


def test_a_row_of_another_length_is_our_own_fault() -> None:
    with pytest.raises(AssertionError, match="T: "):
        list(aligned(Table("T", ("a", "b"), (Row(("1",)),))))


def printed(made: CheckReport, width: int, **options) -> str:
    page = io.StringIO()
    terminal.show(made, Console(file=page, width=width, **options))
    return page.getvalue()


def test_a_terminal_shows_the_same_lines_and_draws_tables() -> None:
    shown = printed(full_report(), 100)
    without_tables = str(report(*full_report().findings)).partition("\nholds: nothing")[0]
    assert without_tables in shown
    assert "│" in shown
    assert "16384" in shown


def test_a_narrow_terminal_wraps_no_line_of_source() -> None:
    shown = printed(report(unlanded()), 20)
    assert "    pk.load_async(tile, x[0, 0], signal=full)\n" in shown
    assert f"    {'^' * 41}\n" in shown


def test_a_terminal_gets_colours_and_texts_are_no_markup() -> None:
    shown = printed(full_report(), 100, force_terminal=True, color_system="standard")
    assert "\x1b[1;31merror[unlanded-copy]: `tile` is read" in shown
    assert "x[0, 0]" in re.sub(r"\x1b\[[\d;]*m", "", shown)
