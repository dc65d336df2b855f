"""docs/architecture.md lists every folder and file of the package with its first sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykittens.cli.arguments import load

ROOT = Path(__file__).resolve().parent.parent
TOOL = load(ROOT / "tools" / "inventory.py")
PACKAGE = ROOT / "pykittens"
FILES = [p for folder in PACKAGE.rglob("__init__.py") for p in TOOL.sources(folder.parent)]


def test_the_lists_are_those_of_the_package(request: pytest.FixtureRequest) -> None:
    found = TOOL.DOCUMENT.read_text(encoding="utf-8")
    expected = TOOL.written(found)
    if request.config.getoption("--update-golden"):
        TOOL.DOCUMENT.write_text(expected, encoding="utf-8")
    else:
        assert found == expected, "`make inventory` writes the lists anew"
    for file in FILES:
        path = file.parent if file.name == "__init__.py" and file.parent != PACKAGE else file
        assert path.name in expected


def test_every_source_file_is_in_a_folder_that_is_listed() -> None:
    suffixes = {".py", ".cuh", ".c", ".h"}
    assert set(FILES) == {p for p in PACKAGE.rglob("*") if p.suffix in suffixes}


def test_every_file_opens_with_a_sentence_on_one_line() -> None:
    silent = [p.relative_to(ROOT) for p in sorted(FILES) if not TOOL.sentence(p)]
    assert silent == [], "the first line of a docstring or comment says what the file is for"


def test_the_first_sentence_of_a_docstring_is_found(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    for text, found in (
        ('"""Reads *.cuh at 2.5 GB/s. Then more."""', "Reads *.cuh at 2.5 GB/s."),
        ('"""Reads.\n\nThen more.\n"""', "Reads."),
        ('"""Reads\nmore."""', ""),
        ("x = 1", ""),
    ):
        file.write_text(text, encoding="utf-8")
        assert TOOL.sentence(file) == found


def test_the_first_sentence_of_a_comment_is_found(tmp_path: Path) -> None:
    file = tmp_path / "header.cuh"
    for text, found in (("// Waits. Then more.\n\nint x;", "Waits."), ("\n// -- waits --\n", "")):
        file.write_text(text, encoding="utf-8")
        assert TOOL.sentence(file) == found
