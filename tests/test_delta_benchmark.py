"""benchmarks/delta.py: errors are no larger than those of the chunk form, which is the recurrence, and its targets."""

from __future__ import annotations

import numpy as np
import pytest

from pykittens.kernels.delta.reference import reference
from tests.benches import program

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def delta(monkeypatch):
    """The program as a module."""
    return program("delta", monkeypatch)


@pytest.mark.parametrize("sizes", [(1, 2, 2, 300, 64, 64), (2, 4, 2, 100, 32, 48)])
def test_errors_are_no_larger_than_those_of_the_chunk_form(delta, sizes):
    torch.manual_seed(0)
    assert max(delta.error_ratios(delta.Problem(*sizes), "cpu")) <= 1.5


def test_a_row_of_the_table_is_read_as_parts_of_its_target(delta):
    row = {"problem": "x", "target": 100.0, "errors": 0.5, "errors_backward": 0.75}
    row |= {"forward": 50.0, "backward": 175.0}
    assert delta.cells(row) == ("x", "50.0", "175.0", "100.0", "0.50", "0.75", "0.50", "0.50")


def test_the_chunk_form_is_the_recurrence(delta):
    given = delta.tensors(delta.Problem(1, 4, 2, 70, 16, 24), "cpu")
    given = {name: given[name].double() for name in delta.NAMES}
    wanted = reference(**{name: x.numpy() for name, x in given.items()})
    np.testing.assert_allclose(delta.chunked(**given).numpy(), wanted, rtol=1e-9, atol=1e-9)


def test_a_target_is_given_or_of_bytes_or_of_products(delta):
    assert delta.Problem(8, 16, 16, 4096, 128, 128).target == 600
    narrow = delta.Problem(16, 16, 16, 4096, 64, 64)
    assert narrow.target == pytest.approx(15 + 4 * (16 * 16 * 4096 * 4 * (128 + 2)) / 4.25e6)
    wide = delta.Problem(16, 16, 16, 4096, 256, 256)
    flops = 2 * 16 * 16 * 4096 * (2 * 64 * 512 + 3 * 256**2)
    assert wide.target == pytest.approx(15 + 4 * flops / 790e6)
