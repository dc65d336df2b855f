"""What the tests on a GPU share."""

import importlib.util
from functools import cache
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@cache
def _load(stem):
    spec = importlib.util.spec_from_file_location(f"example_{stem}", EXAMPLES / f"{stem}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def example():
    """`example("03_matmul")` is the module of an example."""
    return _load
