"""The code of docs/mega.md and docs/instruction.md runs; the first draws the picture of its page."""

from __future__ import annotations

from pathlib import Path

from pykittens.cli.arguments import load

PAGES = load(Path(__file__).parents[2] / "tools" / "pictures.py")


def test_the_code_of_the_page_runs():
    found = PAGES.two_layers()
    assert found["report"].ok
    assert found["svg"] == (PAGES.FOLDER / PAGES.TWO_LAYERS).read_text(encoding="utf-8")


def test_an_instruction_is_written_as_the_page_says():
    assert PAGES.of_page("instruction")["report"].ok
