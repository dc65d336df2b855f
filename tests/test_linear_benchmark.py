"""benchmarks/linear.py: errors are no larger than those of the chunk form, which is the recurrence, and its targets."""

from __future__ import annotations

import pytest

from tests.benches import program

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def linear(monkeypatch):
    """The program as a module."""
    return program("linear", monkeypatch)


@pytest.mark.parametrize("sizes", [(1, 2, 2, 300, 64, 64), (2, 4, 2, 100, 32, 48)])
def test_errors_are_no_larger_than_those_of_the_chunk_form(linear, sizes):
    torch.manual_seed(0)
    assert linear.error_ratio(linear.Problem(*sizes), "cpu") <= 1.5


def test_the_chunk_form_is_the_recurrence(linear):
    given = linear.tensors(linear.Problem(1, 4, 2, 70, 16, 24), "cpu")
    q, k, v, decay = (given[name].double() for name in ("q", "k", "v", "decay"))
    state, wanted = torch.zeros(1, 4, 16, 24, dtype=torch.float64), []
    q, k = (x.repeat_interleave(2, dim=1) for x in (q, k))
    for i in range(70):
        state = decay[:, :, i, None, None].exp() * state
        state = state + k[:, :, i, :, None] * v[:, :, i, None, :]
        wanted.append((q[:, :, i, None, :] @ state)[:, :, 0] / 4)
    found = linear.chunked(*(given[n].double() for n in ("q", "k", "v", "decay")))
    torch.testing.assert_close(found, torch.stack(wanted, dim=2))


def test_a_target_is_of_bytes_or_of_products(linear):
    narrow, wide = (
        linear.Problem(16, 16, 16, 4096, 64, 64),
        linear.Problem(16, 16, 16, 4096, 256, 256),
    )
    moved = 16 * 16 * 4096 * (4 * 64 * 2 + 4)
    assert narrow.target == pytest.approx(15 + 4 * moved / 4.25e6)
    flops = 2 * 16 * 16 * 4096 * (64 * 512 + 2 * 256**2)
    assert wide.target == pytest.approx(15 + 4 * max(flops / 790e6, 16 * 16 * 4096 * 2052 / 4.25e6))


def test_problems_are_drawn_from_a_seed(linear):
    assert linear.drawn(10, 1) == linear.drawn(10, 1) != linear.drawn(10, 2)
    for p in linear.drawn(30, 3):
        assert p.heads % p.groups == 0
        assert max(p.d, p.width) <= 256


def test_a_row_of_the_table_is_read_as_parts_of_its_target(linear):
    row = {"problem": "x", "target": 100.0, "errors": 0.5, "forward": 50.0, "backward": 150.0}
    row |= {"mamba2": 60.0, "mamba2 backward": 1160.0}
    times, parts = ("50.0", "150.0", "100.0"), ("0.50", "0.50", "0.50")
    assert linear.with_mamba2(row) == ("x", *times, *parts, "60.0", "1,160.0")
    assert linear.cells(row) == ("x", *times, *parts)
    assert len(linear.cells(row)) == len(linear.COLUMNS)


def test_mamba2_is_timed_on_a_call_that_it_takes(linear):
    given = linear.tensors(linear.Problem(1, 4, 2, 70, 16, 24), "cpu")
    words = linear.of_mamba2(given)
    assert linear.mamba2(**words).isfinite().all()
    assert all(
        x.isfinite().all() for x in linear.mamba2_backward(**words, gradient=given["gradient"])
    )
