"""benchmarks/steps.py: its rows are parts of copies, and its steps compute what their functions do."""

from __future__ import annotations

import pytest

from tests.benches import program

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def steps(monkeypatch):
    """The program as a module."""
    return program("steps", monkeypatch)


def test_a_row_of_the_table_is_read_as_a_part_of_a_copy(steps):
    row = {"problem": "x", "bytes": 5e7, "step": 40.0, "copy": 30.0}
    assert steps.cells(row) == ("x", "50", "40.0", "30.0", "0.75")


def test_problems_move_as_much_as_is_said(steps):
    for p in (*steps.GIVEN, *steps.drawn(30, 1)):
        assert 50e6 <= p.bytes <= 2e9
        assert p.bytes == 8 * p.batch * p.heads * p.d * p.width


@pytest.mark.parametrize("kind", ["position", "channel", "delta"])
def test_a_measurement_runs_a_step(steps, kind, monkeypatch):
    p = steps.Problem(kind, 2, 4, 2, 16, 24)
    given = steps.tensors(p, "cpu")
    monkeypatch.setattr(steps, "tensors", lambda p: {n: x.clone() for n, x in given.items()})
    ran = []

    def isolated(contenders, repeats, rounds):
        for run in contenders.values():
            run(0)
        ran.append(list(contenders))
        return []

    monkeypatch.setattr(steps, "isolated", isolated)
    assert steps.measured(p, 1) == {"problem": str(p), "bytes": p.bytes}
    assert ran == [["step", "copy"]]
