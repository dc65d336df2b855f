"""benchmarks/long_conv.py: errors are those of torch.fft, which computes the same, and its targets."""

from __future__ import annotations

import pytest

from tests.benches import program

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def bench(monkeypatch):
    """The program as a module."""
    return program("long_conv", monkeypatch)


@pytest.mark.parametrize("sizes", [(2, 2, 300, False), (3, 2, 256, True), (1, 1, 4096, False)])
def test_errors_are_hardly_larger_than_those_of_a_rounded_result(bench, sizes):
    torch.manual_seed(0)
    ratio, of_filters = bench.errors(bench.Problem(*sizes), "cpu")
    assert ratio <= 1.5
    assert of_filters <= 2**-9


def test_what_it_is_measured_beside_is_the_convolution(bench):
    p = bench.Problem(1, 2, 50, False)
    given = bench.tensors(p, "cpu")
    u, filters = given["u"].double(), given["filter"].double()
    found = bench.transformed(p, u, torch.fft.rfft(filters, 100))
    wanted = [sum(filters[:, j] * u[0, :, i - j] for j in range(i + 1)) for i in range(50)]
    torch.testing.assert_close(found[0], torch.stack(wanted, dim=1))


def test_problems_are_drawn_from_a_seed(bench):
    assert bench.drawn(10, 1) == bench.drawn(10, 1) != bench.drawn(10, 2)
    for p in bench.drawn(30, 3):
        assert 64 <= p.n <= 2**16


def test_a_row_of_the_table_is_read_as_parts_of_its_target(bench):
    row = {"problem": "x", "limit": 40.0, "errors": 1.0, "of_filters": 1e-3, "forward": 20.0}
    row |= {"backward": 150.0, "torch_forward": 100.0, "torch_backward": 600.0}
    assert bench.cells(row)[5:] == ("40.0", "1.00", "1.0e-03", "0.50", "0.50")
    assert bench.cells(row | {"limit": None})[5:] == ("50.0", "1.00", "1.0e-03", "0.40", "0.50")
