"""docs/promises.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_test_that_holds_a_promise_exists(file: str, name: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(rf"^def {name}\(", text, re.MULTILINE)


def test_every_promise_but_that_of_versions_names_a_test() -> None:
    promises = re.split(r"^- ", TEXT, flags=re.MULTILINE)[1:]
    without = [p.partition("\n")[0] for p in promises if "tests/" not in p]
    assert [p.startswith("Before version 1.0") for p in without] == [True]
