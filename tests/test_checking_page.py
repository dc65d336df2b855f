"""docs/checking.md and the report in README.md: their programs run, and the commands print the outputs shown."""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from pykittens.runtime import nvrtc
from tests.commands import Done, run
from tests.test_readme import is_program
from tests.test_tour import changed

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "checking.md"
PICTURES = ROOT / "docs" / "pictures"
GAP = "…\n"  # stands for omitted lines

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of the page, and the content of gram.py at that point."""

    line: int
    language: str
    text: str
    program: str

    def __str__(self) -> str:
        return f"line-{self.line}"


def blocks() -> list[Block]:
    """Every block in order; programs and diffs set the content of gram.py from there."""
    text, program, found = PAGE.read_text(encoding="utf-8"), "", []
    for block in _BLOCK.finditer(text):
        language, inside = block.groups()
        if language == "python" and is_program(inside):
            program = inside
        elif language == "diff":
            program = changed(program, inside)
        found.append(Block(text.count("\n", 0, block.start()) + 1, language, inside, program))
    return found


BLOCKS = blocks()
COMMANDS = [b for b in BLOCKS if b.language == "console"]
TABLES = [b for b in BLOCKS if b.language == ""]
FRAGMENTS = [b for b in BLOCKS if b.language == "python" and not is_program(b.text)]
PROGRAMS = list(dict.fromkeys(b.program for b in BLOCKS))
DRAWN = dict(zip(["race.svg", "no_race.svg"], PROGRAMS, strict=False))
CHECK = ("pykittens", "check", "gram.py")


def run_with(folder: Path, program: str, *words: str) -> Done:
    """Run a command in a folder with a program as gram.py."""
    (folder / "gram.py").write_text(program, encoding="utf-8")
    return run(folder, *words, PYKITTENS_SEED="0")


@functools.cache
def checked(program: str) -> Done:
    """A check of a program."""
    with tempfile.TemporaryDirectory() as folder:
        return run_with(Path(folder), program, *CHECK)


def hold(output: str, shown: str) -> None:
    """Fail unless an output is as shown, except for gaps and numbers that depend on the compiler's registers."""
    if "registers" in shown:
        if nvrtc.available() is not None:
            pytest.skip(f"{nvrtc.available()}")
        output, shown = without_numbers(output), without_numbers(shown)
    first, *rest = shown.split(GAP)
    assert output.startswith(first)
    if not rest:
        assert output == shown
        return
    *between, last = rest
    left = output[len(first) :]
    for part in between:
        assert part in left
        left = left.partition(part)[2]
    assert left.endswith(last)


def without_numbers(text: str) -> str:
    """A text with placeholders for its numbers and their padding in a table."""
    return re.sub(r" +", " ", re.sub(r"-{2,}", "--", re.sub(r"\d+", "N", text)))


def test_every_block_of_the_page_is_of_a_kind_that_is_checked() -> None:
    assert {b.language for b in BLOCKS} == {"python", "diff", "console", ""}
    assert BLOCKS[0].program == BLOCKS[0].text
    assert len(PROGRAMS) == 3
    assert COMMANDS
    assert TABLES
    assert FRAGMENTS


@pytest.mark.parametrize("block", COMMANDS, ids=str)
def test_a_command_of_the_page_prints_what_it_shows(block: Block, tmp_path: Path) -> None:
    command, _, shown = block.text.partition("\n")
    prompt, *words = shlex.split(command)
    assert prompt == "$"
    assert words == ["python", "gram.py"] or (*words[:3],) == CHECK
    done = run_with(tmp_path, block.program, *words)
    hold(done.output, shown)
    assert done.code == (1 if "error[" in done.output else 0)


@pytest.mark.parametrize("block", TABLES, ids=str)
def test_a_table_of_the_page_stands_in_the_report(block: Block) -> None:
    done = checked(block.program)
    assert done.code == 0
    hold(done.output, f"{GAP}\n{block.text}\n{GAP}")


@pytest.mark.parametrize("block", FRAGMENTS, ids=str)
def test_a_fragment_of_the_page_runs_behind_its_program(block: Block, tmp_path: Path) -> None:
    program = f"{block.program}\n\n{block.text}"
    if "def test_" not in block.text:
        assert run_with(tmp_path, program, "python", "gram.py").code == 0
        return
    (tmp_path / "gram.py").write_text(program, encoding="utf-8")
    # The plugin as pytest finds it, whether the package is installed here or not.
    plugins = ["-p", "no:cacheprovider", "-p", "no:pykittens", "-p", "pykittens.checker.fixture"]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", *plugins, "gram.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(("name", "program"), [*DRAWN.items()])
def test_a_picture_of_the_page_is_as_the_command_draws_it(
    name: str, program: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run_with(tmp_path, program, *CHECK, "-o", "gram.svg")
    drawn = (tmp_path / "gram.svg").read_text(encoding="utf-8")
    if request.config.getoption("--update-golden"):
        (PICTURES / name).write_text(drawn, encoding="utf-8", newline="\n")
    assert (PICTURES / name).read_text(encoding="utf-8") == drawn, "`make golden` draws it anew"
    assert f"](pictures/{name})" in PAGE.read_text(encoding="utf-8")


def test_the_command_draws_the_steps_of_the_fault_and_none_of_the_repaired_kernel(
    tmp_path: Path,
) -> None:
    words = (*CHECK, "--schedules", "1", "-o", "gram.steps.svg")
    assert run_with(tmp_path, PROGRAMS[0], *words).code == 1
    drawn = (tmp_path / "gram.steps.svg").read_text(encoding="utf-8")
    beside = (PICTURES / "race_steps.svg").read_text(encoding="utf-8")
    said = re.findall(r'class="(?:note|cell|side)"[^>]*>([^<]*)<', drawn)
    assert "starts a copy of X[0, 2] into x[0]" in said
    assert "producer has not seen the end of step 2" in said
    assert [text for text in said if text not in beside] == ["producer has seen: step 3"]
    done = run_with(tmp_path, PROGRAMS[1], *words)
    assert done.code == 2
    assert "the report on gram has no steps to show" in done.output


def test_the_report_in_the_readme_is_what_the_command_prints(tmp_path: Path) -> None:
    found = [text for _, text in _BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))]
    ((command, report),) = (t.split("\n", 1) for t in found if t.startswith("$ pykittens check"))
    (program,) = (t for t in found if "def transposed(" in t)
    (tmp_path / "transposed.py").write_text(program, encoding="utf-8")
    done = run(tmp_path, *command.removeprefix("$ ").split(), PYKITTENS_SEED="0")
    assert report in done.output


def test_the_links_and_pictures_of_the_page_are_there() -> None:
    found = _LINK.findall(PAGE.read_text(encoding="utf-8"))
    assert found
    assert [link for link in found if not (PAGE.parent / link).exists()] == []
