"""benchmarks/attention.py: its problems are what they say, and its rows compare what they name."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
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


def blocks_of(bounds, rows, keys):
    """The blocks in which a query sees a key, at least one for each block of queries."""
    j = np.arange(bounds.length)
    visible = (j >= bounds.low[:, None]) & (j < bounds.high[:, None])
    visible = np.pad(visible, [(0, -bounds.length % n) for n in (rows, keys)])
    visible = visible.reshape(len(visible) // rows, rows, -1, keys).any(axis=(1, 3))
    return int(np.maximum(visible.sum(axis=1), 1).sum())


def test_bounds_are_compared_at_the_rate_of_the_blocks_that_are_left(benchmark):
    made = [benchmark.window_of(600, 64)]
    made += [benchmark.documents_of(600, causal) for causal in (False, True)]
    for bounds in made:
        found = benchmark.bounds_row(by_letters(benchmark), bounds, 64)
        first, causal = bounds.name.split()[0], bounds.plain["causal"]
        i = np.arange(600)
        plain = replace(bounds, low=0 * i, high=i + 1 if causal else 0 * i + 600)
        sizes = ((64, 48), (128, 128), (192, 128))
        for rows, keys in sizes:
            for each in (bounds, plain):
                assert each.elements(rows, keys) == blocks_of(each, rows, keys) * rows * keys
        assert found["kernel"] == f"{bounds.name}, in blocks left"
        assert 0 < found["error"] < 0.01
        left = found["ours"] * len(first) / (4 * 16 * 64 * 1e-9)
        assert round(left) in [bounds.elements(*size) for size in sizes]
        scaled = [len("plain") * left / plain.elements(*size) for size in sizes]
        assert min(abs(found["ratio"] * len(first) / x - 1) for x in scaled) < 1e-6


def test_documents_fill_the_length(benchmark):
    whole = benchmark.documents_of(16384, False)
    assert whole.low[0] == 0
    assert whole.high[-1] == 16384
    starts = np.flatnonzero(np.diff(whole.low)) + 1
    assert (whole.low[starts] == whole.high[starts - 1]).all()


def test_a_picture_has_a_panel_for_each_kernel_and_width(benchmark, tmp_path):
    results = tmp_path / "results.json"
    problems = [
        benchmark.Problem(1, 4, 2, 40, 40, d, d, causal)
        for d in (32, 64)
        for causal in (False, True)
    ]
    made = by_letters(benchmark)
    rows = [benchmark.forward_row(made, p) for p in problems]
    rows.append(benchmark.bounds_row(made, benchmark.window_of(300, 64), 64))
    about = {"card": "none", "date": "2026-01-01"}
    results.write_text(json.dumps({"about": about, "rows": rows}))
    text = benchmark.plot(results).read_text()
    for title in ("forward, d = 32", "forward, d = 64", "bounds, beside no bounds"):
        assert f"{title}: geometric mean" in text


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
