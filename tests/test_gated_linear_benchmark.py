"""benchmarks/gated_linear.py: errors are no larger than those of the chunk form, which is the recurrence."""

from __future__ import annotations

import pytest

from pykittens.kernels.linear.reference import reference
from tests.benches import program

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def gated(monkeypatch):
    """The program as a module."""
    return program("gated_linear", monkeypatch)


@pytest.mark.parametrize(
    ("sizes", "strength"),
    [((1, 2, 2, 300, 64, 64), 0.01), ((2, 4, 2, 100, 32, 48), 1.0)],
)
def test_errors_are_no_larger_than_those_of_the_chunk_form(gated, sizes, strength, monkeypatch):
    """Of results and of gradients, with gates as models have them and with weaker ones."""
    torch.manual_seed(0)
    drawn = gated.tensors

    def weaker(*args):
        given = drawn(*args)
        return given | {"decay": given["decay"] * strength}

    monkeypatch.setattr(gated, "tensors", weaker)
    assert gated.error_ratio(gated.Problem(*sizes), "cpu") <= 1.5


def test_the_chunk_form_is_the_recurrence(gated):
    tensors = gated.tensors(gated.Problem(1, 4, 2, 70, 16, 24), "cpu")
    given = {n: x.double() for n, x in tensors.items() if n != "gradient"}
    wanted = torch.from_numpy(reference(**{n: x.numpy() for n, x in given.items()}))
    torch.testing.assert_close(gated.chunked(**given), wanted)


def test_a_target_has_the_bytes_of_gates(gated):
    p = gated.Problem(16, 16, 16, 4096, 64, 64)
    moved = 16 * 16 * 4096 * (4 * 64 * 2 + 4 + 4 * 64)
    assert p.target == pytest.approx(15 + 4 * moved / 4.25e6)


def test_a_row_of_the_table_is_read_as_a_part_of_its_target(gated):
    row = {"problem": "x", "target": 100.0, "errors": 0.5, "forward": 50.0, "backward": 150.0}
    assert gated.cells(row) == ("x", "50.0", "150.0", "100.0", "0.50", "0.50", "0.50")
    assert len(gated.cells(row)) == len(gated.COLUMNS)
