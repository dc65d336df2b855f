"""benchmarks/feature_maps.py: errors are no larger than those of the explicit forms, and its targets."""

from __future__ import annotations

import pytest

from tests.benches import program

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def maps(monkeypatch):
    """The program as a module."""
    return program("feature_maps", monkeypatch)


@pytest.mark.parametrize("kind", ["based", "divided based", "hedgehog"])
def test_errors_are_no_larger_than_those_of_the_explicit_form(maps, kind):
    torch.manual_seed(0)
    d, width = {"hedgehog": (32, 40)}.get(kind, (8, 24))
    assert maps.error_ratio(maps.Problem(kind, 1, 150, d, width), "cpu") <= 1.5


def test_errors_of_gradients_are_no_larger_than_those_of_autograd(maps):
    torch.manual_seed(0)
    p = maps.Problem("hedgehog", 1, 330, 32, 40)
    assert maps.gradient_error_ratio(p, "cpu") <= 1.5


def test_a_target_is_the_smaller_of_two(maps):
    p = maps.Problem("based", 16, 4096, 16, 64)
    flops = 16 * 16 * 4096 * (2 * 64 * 80 + 4 * 273 * 64)
    assert p.target == pytest.approx(15 + 4 * flops / 790e6)
    known = maps.Problem("based", 16, 4096, 16, 64, 100.0)
    assert (known.target, known) == (100.0, p)


def test_a_row_of_the_table_is_read_as_a_part_of_its_target(maps):
    row = {"problem": "x", "target": 100.0, "errors": 0.5, "gradient_errors": 0.25}
    row |= {"forward": 50.0, "backward": 240.0}
    assert maps.cells(row) == ("x", "50.0", "240.0", "100.0", "0.50", "0.25", "0.50", "0.80")
