"""tools/weight.py counts lines that hold code, on disk and in a commit."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from pykittens.cli.arguments import load

TOOL = load(Path(__file__).resolve().parent.parent / "tools" / "weight.py")

PYTHON = '''"""A module
of two lines."""

import os  # counted once


def joined(a, b):
    """What comes out."""
    # why
    text = """counted
    twice"""
    return os.path.join(
        a,

        b, text,
    )
'''
CUDA = """// a comment
#pragma once
/* another one
   of two lines */ int x;  // counted

const char* url = "https://…"; /* counted */
const char quote = '"';  // counted, and so is the next line
const char* text = "// no comment";
"""
SHELL = """#!/usr/bin/env bash
# why

make  # counted
"""


def test_python_is_counted_without_blank_lines_comments_and_docstrings() -> None:
    assert TOOL.python_lines(PYTHON) == 8
    assert TOOL.python_lines("") == 0


def test_c_is_counted_without_blank_lines_and_comments() -> None:
    assert TOOL.c_lines(CUDA) == 5


def test_a_shell_script_is_counted_without_blank_lines_and_comments() -> None:
    assert TOOL.shell_lines(SHELL) == 1


FILES = {
    "pykittens/__init__.py": PYTHON,
    "pykittens/targets/cuda/device.cuh": CUDA,
    "pykittens/targets/emit.py": PYTHON,
    "tools/diff.sh": SHELL,
    "tests/golden/cuda/add.cu": CUDA,
    "docs/conf.py": PYTHON,
    "pykittens/py.typed": "",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_lines_are_summed_by_folder_without_golden_files(tree: Path) -> None:
    found = TOOL.weights(TOOL.files_on_disk(tree))
    assert found == {"pykittens": 8, "pykittens/targets": 13, "tools": 1}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_commit_has_the_files_that_were_on_disk(tree: Path) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "--quiet"), ("add", "."), (*who, "commit", "--quiet", "-m", "all")):
        subprocess.run(["git", "-C", tree, *words], check=True)
    before = TOOL.files_on_disk(tree)
    (tree / "tools" / "diff.sh").write_text("echo\n", encoding="utf-8")
    assert TOOL.files_of("HEAD", tree) == before


def test_the_table_shows_what_changed() -> None:
    before = Counter({"pykittens": 1500, "tools": 20, "examples": 5})
    after = Counter({"pykittens": 1400, "tests": 30, "examples": 5})
    assert (
        TOOL.table({"a" * 40: before, "here": after})
        == """\
lines of code        aaaaaaaaa      here
pykittens                1,500     1,400     -100
tests                        0        30      +30
tools                       20         0      -20
examples                     5         5
all of pykittens         1,500     1,400     -100
all                      1,525     1,435      -90"""
    )
    assert TOOL.table({"here": after}).splitlines()[-1] == "all                      1,435"
