"""benchmarks/attention.py: its problems are what they say, and its rows compare what they name."""

from __future__ import annotations

import pytest

from tests.benches import by_letters, program

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def benchmark(monkeypatch):
    """The program as a module; PyTorch's attention on the CPU has one backend of those that are measured."""
    torch.manual_seed(0)
    return program("attention", monkeypatch)


def test_rows_are_checked_and_compared_with_the_fastest_backend(benchmark):
    for causal in (False, True):
        problem = benchmark.Problem(1, 4, 4, 70, 70, 64, 64, causal)
        made = by_letters(benchmark)
        rows = [benchmark.forward_row(made, problem)]
        rows += [benchmark.backward_row(made, problem, order) for order in (True, False)]
        assert [r["kernel"] for r in rows] == ["forward", "backward", "backward, free order"]
        for r in rows:
            assert r["against"] == "FlashAttention"
            assert r["ratio"] == len("FlashAttention") / len("pykittens")
            assert 0 < r["error"] < 0.01
        assert rows[1]["ours"] == pytest.approx(2.5 * rows[0]["ours"])


def test_a_window_is_compared_at_the_rate_of_causal_attention(benchmark):
    found = benchmark.window_row(by_letters(benchmark), 256, 64, 64)
    seen = sum(min(i + 1, 64) for i in range(256))
    assert found["ours"] == pytest.approx(4 * 16 * seen * 64 / len("window") * 1e-9)
    assert found["ratio"] == pytest.approx(seen / (256**2 / 2))


def test_a_wrong_result_is_no_row(benchmark, monkeypatch):
    monkeypatch.setattr(benchmark, "attention", lambda q, k, v, **_: torch.zeros_like(q))
    with pytest.raises(AssertionError, match="relative error"):
        benchmark.forward_row(
            by_letters(benchmark), benchmark.Problem(1, 2, 2, 40, 40, 32, 32, False)
        )


def test_random_problems_are_those_of_the_seed(benchmark):
    first, other = benchmark.drawn(20, 0), benchmark.drawn(20, 1)
    assert first == benchmark.drawn(20, 0) != other
    assert {(p.d, p.width) for p in first + other} == set(benchmark.WIDTHS)
    assert all(2**31 <= p.flops <= 2**39 for p in first)
    assert {p.heads == p.kv_heads for p in first} == {False, True}
