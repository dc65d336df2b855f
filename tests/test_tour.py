"""docs/tour.md: its code is in the examples, its mistakes are reported, and its commands print the output shown."""

from __future__ import annotations

import re
import shlex
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

import pykittens as pk
from pykittens.cli.arguments import load
from pykittens.runtime import nvrtc
from tests.commands import run
from tests.conftest import EXAMPLES

ROOT = Path(__file__).resolve().parent.parent
TOUR = ROOT / "docs" / "tour.md"
COMPILED = ("resources", "ptx", "sass")  # what `show` needs the compiler for

_HEADING = re.compile(r"^## (?:\[.*?\]\(\.\./examples/(\w+)\.py\))?.*$", re.MULTILINE)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


@dataclass(frozen=True)
class Block:
    """A fenced block: the example of its section, the line it starts at, its language and its text."""

    stem: str
    line: int
    language: str
    text: str


def sections() -> list[tuple[str, str, int]]:
    """The example of each section, its text and the line where it starts."""
    text = TOUR.read_text(encoding="utf-8")
    heads = list(_HEADING.finditer(text))
    ends = [h.start() for h in heads[1:]] + [len(text)]
    return [
        (h[1], text[h.start() : end], text.count("\n", 0, h.start()) + 1)
        for h, end in zip(heads, ends, strict=True)
        if h[1]
    ]


def blocks() -> list[Block]:
    """Every fenced block of a section."""
    return [
        Block(stem, first + text.count("\n", 0, found.start()), found[1], found[2])
        for stem, text, first in sections()
        for found in _BLOCK.finditer(text)
    ]


BLOCKS = blocks()
CODE = [b for b in BLOCKS if b.language == "python"]
COMMANDS = [b for b in BLOCKS if b.language == "console"]
# A change to an example and the output of its main().
MISTAKES = [(b, said) for b, said in zip(BLOCKS, BLOCKS[1:], strict=False) if b.language == "diff"]


def place(value: object) -> str | None:
    return f"{value.stem}-line-{value.line}" if isinstance(value, Block) else None


def test_every_example_has_its_section_in_order_with_code_and_a_mistake() -> None:
    stems = sorted(p.stem for p in EXAMPLES.glob("[0-9]*.py"))
    assert [stem for stem, *_ in sections()] == stems
    assert sorted({b.stem for b in CODE}) == stems
    assert sorted({b.stem for b, _ in MISTAKES}) == stems
    assert sorted({b.stem for b in COMMANDS}) == stems


def test_every_block_is_of_a_kind_that_is_checked() -> None:
    said = [b for b in BLOCKS if b.language == ""]
    assert said == [b for _, b in MISTAKES]
    assert len(BLOCKS) == len(CODE) + len(COMMANDS) + 2 * len(MISTAKES)


@pytest.mark.parametrize("block", CODE, ids=place)
def test_the_code_stands_in_the_example(block: Block) -> None:
    source = (EXAMPLES / f"{block.stem}.py").read_text(encoding="utf-8")
    assert any(textwrap.indent(block.text, " " * n) in source for n in (0, 4, 8, 12, 16, 20))


def changed(source: str, change: str) -> str:
    """A text with the lines of a change that start with - replaced by those that start with +."""
    lines = change.splitlines(keepends=True)
    assert all(line[0] in " +-" for line in lines)
    old = "".join(line[1:] for line in lines if line[0] != "+")
    new = "".join(line[1:] for line in lines if line[0] != "-")
    assert source.count(old) == 1
    return source.replace(old, new)


@pytest.mark.parametrize(("change", "said"), MISTAKES, ids=place)
def test_a_mistake_is_told_as_the_tour_says(
    change: Block,
    said: Block,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PYKITTENS_SEED", "0")
    monkeypatch.chdir(tmp_path)  # places are told from here
    source = (EXAMPLES / f"{change.stem}.py").read_text(encoding="utf-8")
    folder = tmp_path / "examples"
    folder.mkdir()
    (folder / f"{change.stem}.py").write_text(changed(source, change.text), encoding="utf-8")
    wrong = load(folder / f"{change.stem}.py")
    try:
        wrong.main()
    except pk.KernelError as error:
        told = f"{error}\n"
    else:
        told = capsys.readouterr().out
    assert told == said.text


def without_registers(text: str) -> str:
    """A text with placeholders for the numbers of registers, which the compiler chooses."""
    return re.sub(r"\d+ registers", "N registers", text)


@pytest.mark.parametrize("block", COMMANDS, ids=place)
def test_a_command_prints_what_the_tour_shows(block: Block) -> None:
    command, _, shown = block.text.partition("\n")
    prompt, program, *words = shlex.split(command)
    assert (prompt, program) == ("$", "pykittens")
    if words[1] in COMPILED and nvrtc.available() is not None:
        pytest.skip(f"{nvrtc.available()}")
    done = run(ROOT, program, *words)
    assert (done.code, done.errors) == (0, "")
    assert f"examples/{block.stem}.py" in words
    assert done.output
    if shown:
        assert without_registers(done.output) == without_registers(shown)


def test_the_links_and_pictures_of_the_tour_are_there() -> None:
    found = _LINK.findall(TOUR.read_text(encoding="utf-8"))
    assert found
    assert [link for link in found if not (TOUR.parent / link).exists()] == []
