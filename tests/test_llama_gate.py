"""benchmarks/llama_gate.py: the gate lets a program pass that computes in float32, and no planted fault."""

from __future__ import annotations

import numpy as np
import pytest

from pykittens.models.checkpoint import random_weights
from pykittens.models.config import Config
from tests.benches import program

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

SMALL = Config(
    hidden=128, layers=4, heads=2, key_heads=1, head=64, inner=192, vocabulary=300, positions=64
)


@pytest.fixture
def bench(monkeypatch):
    """The program as a module."""
    return program("llama_gate", monkeypatch)


def test_the_program_passes(bench):
    weights = random_weights(SMALL, 3, "cpu")
    rows = bench.gate(SMALL, weights, texts=2, length=8)
    assert len(rows) == 2 * 4 * 2
    for row in rows:
        if "planted" not in row["model"]:
            assert row["passes"], row
            assert row["mean"] < 0.5 * row["base"]
        elif row["measure"] == "KL divergence":
            assert not row["passes"], row
    # What is added to in parts is rounded more often.
    means = {(r["texts"], r["model"], r["measure"]): r["mean"] for r in rows}
    for texts in ("given", "own"):
        once, parts = (
            means[texts, f"planted: {name}", "KL divergence"]
            for name in ("hidden state in bf16", "the same, added to in parts")
        )
        assert once < parts


def test_a_model_that_is_further_away_than_bf16_does_not_pass(bench):
    weights = random_weights(SMALL, 3, "cpu")
    exact, base = (
        bench.by_eager(bench.Eager(SMALL, weights, dtype))
        for dtype in (torch.float32, torch.bfloat16)
    )
    rng = np.random.default_rng(1)
    texts = [rng.integers(300, size=10).tolist() for _ in range(4)]
    noisy = {"noisy": lambda text: base(text) + 0.5 * torch.randn(len(text), 300)}
    assert not any(row["passes"] for row in bench.compared(noisy, base, exact, texts))
    assert all(row["passes"] for row in bench.compared({"exact": exact}, base, exact, texts))


def test_flat_logits_are_refused(bench):
    flat = lambda text: torch.zeros(len(text), 300)  # noqa: E731
    with pytest.raises(AssertionError, match="deviation"):
        list(bench.compared({}, flat, flat, [[1, 2, 3]]))


def test_measures_are_those_of_the_distributions(bench):
    exact = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 0.0]])
    found = torch.tensor([[0.0, 0.0], [0.0, 0.0], [9.0, 9.0]])
    p = [1 / (1 + np.e), 1 / (1 + np.e**-2)]  # of token 0
    divergences = [q * np.log(2 * q) + (1 - q) * np.log(2 * (1 - q)) for q in p]
    away = [abs(np.log(2 * (1 - p[0]))), abs(np.log(2 * p[1]))]
    wanted = [np.mean(divergences), np.mean(away)]
    np.testing.assert_allclose(bench.errors(found, exact, [0, 1, 0]), wanted)
