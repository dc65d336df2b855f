"""The code of docs/mega.md, instruction.md and generic.md runs; the first draws the picture of its page."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
from pathlib import Path

import ml_dtypes
import numpy as np

from pykittens.cli.arguments import load
from pykittens.mega.isa import Machine, attention, decode, prefill, vectors

PAGES = load(Path(__file__).parents[2] / "tools" / "pictures.py")


def test_the_code_of_the_page_runs():
    found = PAGES.two_layers()
    assert found["report"].ok
    assert found["svg"] == (PAGES.FOLDER / PAGES.TWO_LAYERS).read_text(encoding="utf-8")


def test_an_instruction_is_written_as_the_page_says():
    assert PAGES.of_page("instruction")["report"].ok


def test_a_model_of_generic_instructions_computes_what_the_page_says():
    found = PAGES.of_page("generic")
    assert len(found["tokens"]) == 4


def test_the_example_of_a_machine_runs():
    names = {"Machine": Machine, "np": np, "ml_dtypes": ml_dtypes}
    (test,) = doctest.DocTestFinder(recurse=False).find(Machine, "Machine", globs=names)
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


def test_the_table_of_kinds_has_all_of_them_and_their_lines():
    page = (PAGES.FOLDER.parent / "generic.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \| (?:`\w+`)? ?\| .* \| (\d+) \|$", page, re.M)
    assert sorted(listed) == sorted(
        (kind.name, f"{_length(kind) - _length(kind.body[0])}")
        for module in (attention, decode, prefill, vectors)
        for kind in ast.parse(inspect.getsource(module)).body
        if isinstance(kind, ast.FunctionDef) and ast.unparse(kind.args).startswith("isa")
    )


def _length(node):
    """The lines of a function, or of its docstring."""
    return node.end_lineno - node.lineno + 1
