"""`pykittens tune --list` prints what tuning found; tuning itself needs a GPU."""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest

import pykittens as pk
from pykittens.cli import main, screen
from pykittens.runtime import driver, tuning_records
from pykittens.runtime.arguments import check
from pykittens.runtime.tuning_records import Outcome, Record
from tests.runtime.tuned_calls import multiplied


@pytest.fixture
def records(monkeypatch):
    made = []
    monkeypatch.setattr(tuning_records, "records", lambda: iter(made))
    return made


def record(best, milliseconds):
    outcomes = (
        Outcome("Config(rows=1)", 9.0, 3, True, None),
        Outcome(best, milliseconds, 15, True, None),
    )
    key = {"m": 4096, "n": 512, "k": 64, "may_swap": False, "function": ""}
    return Record("gemm", key, {"device": "a GPU"}, best, "2026-01-02T03:04:05", 4.5, outcomes)


def test_what_was_found_is_listed(records, monkeypatch, capsys):
    monkeypatch.setattr(screen, "_WIDTH", 200)
    records.append(record("Config(rows=[7])", 0.12344))
    assert main(["tune", "--list"]) == 0
    title, *_, row, _ = capsys.readouterr().out.splitlines()
    assert title.strip() == "what tuning found"
    cells = [cell.strip() for cell in row.split("│")[1:-1]]
    problem = "m 4096, n 512, k 64"
    assert cells == ["gemm", problem, "a GPU", "0.1234", "Config(rows=[7])", "2026-01-02"]


def test_choices_of_kernels_of_the_user_are_listed(records, monkeypatch, capsys):
    monkeypatch.setattr(screen, "_WIDTH", 200)
    x, y = np.ones((70, 100), np.float32), np.ones((70, 101), np.float16)[:, :100]
    arguments = check(multiplied.parameters, (x, y), {"factor": 2.0, "cols": 64})
    for key in (None, lambda x, y: (x.shape[1], "large")):
        tuned = pk.autotune([{"cols": 64}, {"cols": 32}], key=key)(multiplied)
        problem, _ = tuned._key_of(arguments, ())
        records.append(dataclasses.replace(record("cols=32", 1.0), key=problem))
    assert main(["tune", "--list"]) == 0
    rows = [row.split("│") for row in capsys.readouterr().out.splitlines() if "cols=32" in row]
    assert [row[2].strip() for row in rows] == [
        "factor 2.0, x f32[70,100], y f16[70,100] unaligned",
        "factor 2.0, its key [100, 'large']",
    ]


def test_where_nothing_was_found_that_is_said(records, capsys):
    assert main(["tune", "--list"]) == 0
    assert capsys.readouterr().out == "Nothing was tuned on this machine.\n"


@pytest.mark.parametrize("words", [[], ["gemm"], ["gemm", "1", "2"], ["gemm", "1", "0", "3"]])
def test_extents_that_are_missing_are_told(words, capsys):
    assert main(["tune", *words]) == 1
    assert "pykittens tune gemm 4096 4096 4096" in capsys.readouterr().err


def test_without_a_gpu_there_is_nothing_to_measure(monkeypatch, capsys):
    monkeypatch.setattr(driver, "available", lambda: "no driver")
    assert main(["tune", "gemm", "64", "64", "64"]) == 1
    assert "there is no GPU to measure on: no driver" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("layout", "strides"),
    [
        ("ABt", [(64, 1), (64, 1)]),
        ("AB", [(64, 1), (1, 32)]),
        ("AtB", [(1, 16), (1, 32)]),
        ("AtBt", [(1, 16), (64, 1)]),
    ],
)
def test_the_layout_says_how_the_operands_lie(layout, strides, records, monkeypatch, capsys):
    command = importlib.import_module("pykittens.cli.tune")
    torch = pytest.importorskip("torch")
    randn, given = torch.randn, []
    monkeypatch.setattr(driver, "available", lambda: None)
    monkeypatch.setattr(torch, "randn", lambda shape, device: randn(shape))
    monkeypatch.setattr(command, "gemm", lambda *args, tune: given.extend([*args, tune]))
    assert main(["tune", "gemm", "16", "32", "64", "--layout", layout, "--dtype", "e4m3"]) == 0
    a, b, tune = given
    assert tune is True
    assert (tuple(a.shape), tuple(b.shape)) == ((16, 64), (32, 64))
    assert [a.stride(), b.stride()] == strides
    assert a.dtype == b.dtype == torch.float8_e4m3fn
