"""What `import pykittens` exports, at run time and to type checkers."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import pykittens as pk

FILE = Path(pk.__file__)
TREE = ast.parse(FILE.read_text(encoding="utf-8"))


def test_every_export_is_known_to_type_checkers() -> None:
    """They take `from x import y` for an export only if it is `as y`."""
    found = {"check"}
    for node in TREE.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                private = (alias.asname or "").startswith("_")
                assert private or alias.asname == alias.name, f"import {alias.name} as itself"
                found |= set() if private else {alias.name}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.add(node.targets[0].id)
    assert found - {"__version__"} == set(pk.__all__)


def test_the_exports_are_values_and_no_modules() -> None:
    assert len(pk.__all__) == len(set(pk.__all__)) > 100
    assert [n for n in pk.__all__ if inspect.ismodule(getattr(pk, n))] == []
    assert {"load", "range", "static", "bf16", "inf", "check"} <= set(pk.__all__)


def test_the_checker_is_loaded_when_it_is_first_used() -> None:
    program = """if True:
        import sys, pykittens as pk
        assert not any(name.startswith("pykittens.checker") for name in sys.modules)
        assert pk.check.__module__ == "pykittens.checker.check"
    """
    subprocess.run([sys.executable, "-c", program], check=True, cwd=FILE.parent.parent)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'pykittens' has no attribute 'chekc'"):
        pk.chekc  # noqa: B018
