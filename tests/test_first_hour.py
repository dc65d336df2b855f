"""docs/first_hour.md: its kernel runs and is checked, its error and its table are what the package says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import pykittens as pk
from pykittens.cli.arguments import load
from pykittens.runtime import nvrtc
from tests.commands import run
from tests.ir.test_habits import error_of, error_of_call
from tests.test_tour import changed, without_registers

TEXT = (Path(__file__).parent.parent / "docs" / "first_hour.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| (Triton|PyTorch|NumPy|Python) \| `([^|]+)` \| ([^|]+) \|$", re.MULTILINE)
(OWN, CHANGE, ERROR, *COMMANDS) = [found[2] for found in _BLOCK.finditer(TEXT)]
ROWS = {statement: answer for _, statement, answer in _ROW.findall(TEXT)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)  # places are told from here
    monkeypatch.setenv("PYKITTENS_SEED", "0")
    return tmp_path


@pytest.mark.parametrize("block", COMMANDS, ids=["check", "show"])
def test_a_command_prints_what_the_page_shows(block: str, folder: Path) -> None:
    command, _, shown = block.partition("\n")
    prompt, program, *words = shlex.split(command)
    if words[0] == "show" and nvrtc.available() is not None:
        pytest.skip(f"{nvrtc.available()}")
    done = run(folder, program, *words)
    assert (prompt, done.code, done.errors) == ("$", 0, "")
    # A disassembler, which is optional, adds the registers of each role.
    said = re.sub(r"^  block: .*\n", "", done.output, flags=re.MULTILINE)
    assert without_registers(said) == without_registers(shown)


def test_the_mistake_is_told_as_the_page_says(folder: Path) -> None:
    (folder / "own.py").write_text(changed(OWN, CHANGE), encoding="utf-8")
    own = load("own.py")
    x = np.ones((100, 333), np.float32)
    with pytest.raises(pk.KernelError) as raised:
        own.bias_silu(x, x[0], x.copy())
    assert f"{raised.value}\n" == ERROR


def test_the_table_has_a_row_for_each_of_its_lines() -> None:
    (table,) = re.findall(r"^\| From .*\n(?:\|.*\n)+", TEXT, re.MULTILINE)
    assert len(ROWS) == len(table.splitlines()) - 2


@pytest.mark.parametrize("statement", ROWS)
def test_the_table_gives_the_answer_of_the_package(statement: str) -> None:
    error = error_of_call(statement) if statement.startswith("copy") else error_of(statement)
    said, shown = (text.replace("`", "") for text in (error.help, ROWS[statement]))
    assert said == shown or said.startswith((f"{shown}; ", f"{shown}, "))
