"""The Python programs of README.md and docs/ run in the emulator as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pykittens
from examples.catalog import EXAMPLES
from pykittens.settings import SETTINGS
from tests.commands import run

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """Place and text of every Python block."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _BLOCK.finditer(text):
            line = text.count("\n", 0, match.start(1)) + 1
            found.append((f"{page.relative_to(ROOT)}:{line}", match[1]))
    return found


def is_program(text: str) -> bool:
    """A block with its own imports is a program, one without a fragment."""
    return re.search(r"^(import|from) ", text, re.MULTILINE) is not None


BLOCKS = blocks()


@pytest.mark.parametrize("text", [pytest.param(t, id=p) for p, t in BLOCKS])
def test_a_block_is_python(text: str) -> None:
    compile(text, "<block>", "exec")


@pytest.mark.parametrize("text", [pytest.param(t, id=p) for p, t in BLOCKS if is_program(t)])
def test_a_program_runs_as_it_stands(text: str, tmp_path: Path) -> None:
    if re.search(r"^import torch$", text, re.MULTILINE):
        pytest.importorskip("torch", reason="PyTorch is not installed")
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    run(tmp_path, "python", "program.py")


def test_the_readme_shows_a_program() -> None:
    assert any(place.startswith("README.md") and is_program(text) for place, text in BLOCKS)


def test_the_page_of_settings_lists_every_environment_variable() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for setting in SETTINGS:
        assert f"`{setting.variable}`" in text
        assert setting.meaning in text


def test_the_pages_of_the_language_and_of_operations_have_every_word() -> None:
    pages = [
        (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("language.md", "ops.md")
    ]
    words = set(re.findall(r"\w+", " ".join(pages)))
    assert [w for w in pykittens.__all__ if w.removesuffix("_") not in words] == []


def test_the_catalog_has_every_example() -> None:
    files = {p.name for p in (ROOT / "examples").glob("[0-9]*.py")}
    assert {e.file for e in EXAMPLES} == files
