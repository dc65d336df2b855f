"""A report as JSON: plain values with the fields that are described, the same on every machine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pykittens.checker.report import data
from tests.checker.report.sample import full_report, report, unlanded

ROOT = Path(__file__).parents[2]


def keys(values: Any) -> Iterator[str]:
    """Every name of a field; names of arguments, operands and kinds are none."""
    match values:
        case dict():
            for name, value in values.items():
                yield name
                if name not in ("arguments", "constants", "operands", "ignored"):
                    yield from keys(value)
        case list():
            for value in values:
                yield from keys(value)


def test_json_is_as_agreed(
    golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    golden("checker/everything.json", full_report().json())


def test_every_field_is_described_and_every_description_has_its_field() -> None:
    described = set(re.findall(r"\w+", data.__doc__ or ""))
    assert set(keys(full_report().data())) <= described
    assert {"kernel", "seen_in", "replay", "columns"} <= set(keys(full_report().data()))


def test_json_reads_back_as_the_same_values() -> None:
    assert json.loads(full_report().json()) == full_report().data()


def test_the_columns_of_a_step_are_those_of_the_expression() -> None:
    for step in report(unlanded()).data()["findings"][0]["steps"]:
        first, behind = step["columns"]
        assert step["source"][first:behind].startswith("pk.load")
        assert step["source"][first:behind].endswith(")")


def test_several_reports_are_ok_where_all_are() -> None:
    assert data.all_data([report(), report()])["ok"]
    made = data.all_data([report(), report(unlanded())])
    assert not made["ok"]
    assert [r["errors"] for r in made["reports"]] == [0, 1]
