"""benchmarks/packed.py: its lengths, and calls that have results."""

from __future__ import annotations

import pytest

from tests.benches import program

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def packed(monkeypatch):
    """The program as a module."""
    return program("packed", monkeypatch)


def test_lengths_have_the_sum_of_the_problem(packed):
    for count in packed.COUNTS:
        lengths = packed.Problem("mamba2", count).lengths(0)
        assert len(lengths) == count
        assert sum(lengths) == 32768
        assert min(lengths) >= 1


NAMES = ["linear_attention", "mamba2", "gated_linear_attention", "based_attention"]
NAMES += ["hedgehog_attention", "gated_delta_rule"]


def test_all_functions_are_measured(packed):
    assert list(packed.FUNCTIONS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_calls_have_results_and_gradients(packed, name):
    torch.manual_seed(0)
    p = packed.Problem(name, 3, 40, 2, 16, 16)
    ends = torch.tensor([0, *p.lengths(0)]).cumsum(0).int()
    calls = packed.calls(p, packed.tensors(p, 1, 40, "cpu"), ends=ends)
    assert calls["forward"](0).isfinite().all()
    assert all(x.isfinite().all() for x in calls["backward"](0))


def test_a_row_has_blanks_for_what_is_not_measured(packed):
    row = {"name": "mamba2", "sequences": 2048, "longest": 100, "packed, forward": 12.34}
    assert packed.cells(row) == ("mamba2", "2,048", "100", "12.3", "", "", "", "", "")
