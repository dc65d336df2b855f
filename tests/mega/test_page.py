"""The code of docs/mega.md runs, and draws the picture of the page."""

from __future__ import annotations

from pathlib import Path

from pykittens.cli.arguments import load

DRAWN = load(Path(__file__).parents[2] / "tools" / "pictures.py")


def test_the_code_of_the_page_runs():
    found = DRAWN.two_layers()
    assert found["report"].ok
    assert found["svg"] == (DRAWN.FOLDER / DRAWN.TWO_LAYERS).read_text(encoding="utf-8")
