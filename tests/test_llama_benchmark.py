"""benchmarks/llama.py: its contenders choose the same tokens, and its figures are those of its sequences."""

from __future__ import annotations

import numpy as np
import pytest

from pykittens.models.checkpoint import random_weights
from pykittens.models.config import Config
from pykittens.models.llama import Llama
from tests.benches import program
from tests.models.reference import Reference

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

SMALL = Config(
    hidden=128, layers=1, heads=2, key_heads=1, head=64, inner=192, vocabulary=100, positions=64
)


@pytest.fixture
def llama(monkeypatch):
    """The program as a module. In the emulator one sequence warms up as well as five."""
    found = program("llama", monkeypatch)
    monkeypatch.setattr(found, "WARM_UPS", 1)
    return found


def in_turn(step, count):
    """What a graph of steps does, on the CPU."""
    return lambda: [step() for _ in range(count)]


def exact_tokens(weights, prompt, count):
    """The tokens that float64 chooses behind a prompt."""
    exact = Reference(SMALL, {n: x.float().numpy() for n, x in weights.items()}, np.float64)
    for token in prompt[:-1]:
        exact.logits(token)
    found = [prompt[-1]]
    for _ in range(count):
        found.append(int(exact.logits(found[-1]).argmax()))
    return found


@pytest.mark.parametrize("steps", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_all_contenders_choose_the_tokens_of_float64(llama, steps):
    weights = random_weights(SMALL, 1, "cpu")
    model, prompt = Llama(SMALL, weights, 32, blocks=2), [5, 9, 2]
    model.prefill(prompt[:-1])
    contenders = [
        llama.ours(model, apart, prompt[-1], 2, steps, in_turn) for apart in (False, True)
    ]
    times = llama.measured(contenders, steps, 2, lambda run: float(bool(run()) + 1))
    wanted = exact_tokens(weights, prompt, steps)[-1]
    assert [t.chosen for t in times] == [wanted, wanted]
    assert all(len(t.sequences) == 2 for t in times)


def test_pytorch_multiplies_the_same_model(llama):
    weights = random_weights(SMALL, 1, "cpu")
    text = torch.tensor([5, 9, 2, 50])
    eager = llama.Eager(SMALL, weights, torch.float32)
    exact = Reference(SMALL, {n: x.float().numpy() for n, x in weights.items()}, np.float64)
    wanted = np.array([exact.logits(token) for token in text.tolist()])
    np.testing.assert_allclose(eager.logits(text), wanted, atol=1e-4 * np.abs(wanted).max())
    rounded = llama.Eager(SMALL, weights, torch.bfloat16)
    np.testing.assert_allclose(rounded.logits(text), wanted, atol=0.1 * np.abs(wanted).max())
    cache = torch.zeros(2 * SMALL.layers, 8, SMALL.key_heads * SMALL.head)
    eager.prepare(8)
    for position, token in enumerate(text):
        chosen = eager.step(token[None], position, cache)
    assert int(chosen) == int(wanted[-1].argmax())


def test_a_batch_chooses_the_tokens_of_its_sequences(llama):
    weights = random_weights(SMALL, 1, "cpu")
    model, texts = Llama(SMALL, weights, 32, blocks=2, batch=2), [[5, 9, 2], [7, 1, 1]]
    model.prefill([text[:-1] for text in texts])
    some = llama.ours(model, False, [text[-1] for text in texts], 2, 2, in_turn)
    (times,) = llama.measured([some], 2, 2, lambda run: float(bool(run()) + 1))
    assert (times.name, times.chosen) == ("batch of 2", exact_tokens(weights, texts[0], 2)[-1])


def test_figures_are_those_of_the_sequences(llama):
    fast, slow = llama.Times("a", (1.0, 1.2, 0.8), 7), llama.Times("b", (2.0, 2.4, 1.6), 7)
    low, high = fast.interval()
    assert 0.8 <= low < fast.mean < high <= 1.2
    assert slow.interval(fast) == pytest.approx((0.5, 0.5))
    row = llama.row_of("small", SMALL, 32, 3, [fast, slow])
    assert row["same"]
    assert row["times"]["b"]["ratio"] == pytest.approx(2)
    matrices = 2 * (100 * 128 + 128 * 64 * (2 + 2 + 1 + 1) + 3 * 128 * 192)
    assert row["bytes"] == matrices + 4 * 33 * 64
    assert "| small | 32 to 34 | b | 2,000.0 |" in llama.table([row])
