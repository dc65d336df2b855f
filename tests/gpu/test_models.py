"""Models on a GPU: a text beside float64, prompts by the kernels of the library, and models of published sizes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from pykittens.cli.arguments import load
from pykittens.models.checkpoint import random_weights
from pykittens.models.config import NAMED, Config, Scaling
from pykittens.models.llama import Llama
from tests.models.reference import Reference
from tests.models.test_llama import MODELS, weights_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.gpu


def on_gpu(weights):
    return {
        name: torch.from_numpy(x.astype(np.float32)).to(
            "cuda", torch.bfloat16 if x.ndim == 2 else torch.float32
        )
        for name, x in weights.items()
    }


@pytest.mark.parametrize("name", MODELS)
def test_each_position_of_a_long_text_is_that_of_float64(name):
    config, count = MODELS[name], 100 if "chunks" not in name else 20
    weights = weights_of(config)
    model = Llama(config, on_gpu(weights), capacity=count)
    exact = Reference(config, weights, ml_dtypes.bfloat16)
    tokens = np.random.default_rng(2).integers(config.vocabulary, size=count).tolist()
    for position, token in enumerate(tokens):
        chosen = model.step(token, position)
        wanted, found = exact.logits(token), model.logits()
        np.testing.assert_allclose(found, wanted, atol=2e-3 * np.abs(wanted).max())
        assert chosen == int(found.argmax())


@pytest.mark.parametrize("name", ["llama", "biases", "norms of heads"])
def test_a_prompt_fills_the_cache_as_tokens_do(name):
    config = MODELS[name]
    model, stepped = (Llama(config, on_gpu(weights_of(config)), capacity=80) for _ in range(2))
    tokens = np.random.default_rng(3).integers(config.vocabulary, size=77).tolist()
    logits = model.prefill(tokens)
    for position, token in enumerate(tokens):
        stepped.step(token, position)
    wanted = stepped.logits()
    torch.testing.assert_close(model.cache[:, :77], stepped.cache[:, :77], rtol=0, atol=0.06)
    np.testing.assert_allclose(logits, wanted, atol=0.03 * np.abs(wanted).max())


@pytest.mark.parametrize("name", ["llama-1b", "qwen-0.6b"])
def test_200_steps_of_a_published_size_agree_with_pytorch_in_float32(name):
    """The same tokens at every position; the likeliest is float32's wherever no other is nearly as likely."""
    config = NAMED[name]
    weights = random_weights(config, 0, "cuda")
    model = Llama(config, weights, capacity=200)
    tokens = np.random.default_rng(4).integers(config.vocabulary, size=200).tolist()
    wanted = in_float32(config, weights).logits(torch.tensor(tokens, device="cuda")).cpu().numpy()
    for position, token in enumerate(tokens):
        chosen = model.step(token, position)
        found, exact = model.logits(), wanted[position]
        error = np.abs(found - exact).max()
        assert np.linalg.norm(found - exact) < 0.01 * np.linalg.norm(exact)
        second, first = np.sort(exact)[-2:]
        assert first - second < 2 * error or chosen == int(exact.argmax())


def in_float32(config, weights):
    return eager().Eager(config, weights, torch.float32)


def eager():
    """benchmarks/eager.py as a module."""
    return load(Path(__file__).resolve().parents[2] / "benchmarks" / "eager.py")


def random_config(rng):
    """Sizes of a model that may be any that are supported."""
    head = int(rng.choice([64, 128]))
    key_heads = int(rng.integers(1, 9))
    hidden = int(rng.integers(8, 65)) * 64 if rng.integers(2) else int(rng.integers(512, 8193))
    return Config(
        hidden=hidden,
        layers=int(rng.integers(1, 4)),
        heads=key_heads * int(rng.integers(1, 9)),
        key_heads=key_heads,
        head=head,
        inner=int(rng.integers(256, 9000)),
        vocabulary=int(rng.integers(500, 40_000)),
        positions=4096,
        tied=bool(rng.integers(2)),
        biases=(with_biases := bool(rng.integers(3) == 0)),
        head_norms=not with_biases and bool(rng.integers(2)),
        scaling=Scaling(8.0, 1.0, 4.0, 1024) if rng.integers(2) else None,
    )


@pytest.mark.parametrize("seed", range(20))
def test_random_sizes_agree_with_pytorch_in_float32(seed):
    """A prompt by kernels or by steps, then steps; in one launch and by launches."""
    rng = np.random.default_rng(seed)
    config = random_config(rng)
    weights = random_weights(config, seed, "cuda")
    model = Llama(config, weights, capacity=int(rng.integers(40, 900)), apart=bool(seed % 2))
    tokens = rng.integers(config.vocabulary, size=24).tolist()
    wanted = in_float32(config, weights).logits(torch.tensor(tokens, device="cuda")).cpu().numpy()
    before = int(rng.integers(1, 20))
    found = [model.prefill(tokens[:before])]
    for position in range(before, len(tokens)):
        model.step(tokens[position], position)
        found.append(model.logits())
    for logits, exact in zip(found, wanted[before - 1 :], strict=True):
        assert np.linalg.norm(logits - exact) < 0.02 * np.linalg.norm(exact)


@pytest.mark.parametrize("apart", [False, True])
def test_a_graph_of_steps_chooses_what_single_steps_do(apart):
    config = MODELS["llama"]
    model = Llama(config, on_gpu(weights_of(config)), capacity=60)
    token = first = 17
    wanted = [token := model.step(token, position) for position in range(20)]
    run, tensors = model.repeater(first, 0, apart)
    chosen = torch.zeros(20, dtype=torch.int32, device="cuda")
    for _ in range(2):
        run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(20):
            run()
            chosen[i : i + 1].copy_(tensors["token" if i % 2 else "chosen"])
    for _ in range(3):
        tensors["token"].fill_(first)
        tensors["position"].fill_(0)
        graph.replay()
        assert chosen.tolist() == wanted


def test_other_work_on_the_gpu_does_not_stop_a_token():
    """Products on another stream, which take its multiprocessors, while tokens are launched."""
    config = MODELS["llama"]
    model = Llama(config, on_gpu(weights_of(config)), capacity=60)
    wanted = [model.step(3, position) for position in range(50)]
    other, x = torch.cuda.Stream(), torch.randn(4096, 4096, device="cuda")
    for _ in range(4):
        with torch.cuda.stream(other):
            for _ in range(20):
                x = torch.tanh(x @ x)
        assert [model.step(3, position) for position in range(50)] == wanted


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("batch", [2, 4, 8])
def test_a_batch_of_sequences_agrees_with_pytorch_in_float32(batch, apart):
    """Prompts of different lengths and two steps, of a model of two layers in the sizes of Llama-1B."""
    config = replace(NAMED["llama-1b"], layers=2)
    weights = random_weights(config, 5, "cuda")
    model = Llama(config, weights, capacity=700, batch=batch, apart=apart)
    rng, exact = np.random.default_rng(batch), in_float32(config, weights)
    texts = [
        rng.integers(config.vocabulary, size=n).tolist()
        for n in rng.integers(1, 690 if batch == 2 else 300, size=batch)
    ]
    found = [model.prefill(texts)]
    for _ in range(2):
        texts = [
            [*text, int(token)] for text, token in zip(texts, found[-1].argmax(1), strict=True)
        ]
        chosen = model.step([text[-1] for text in texts], [len(text) - 1 for text in texts])
        found.append(model.logits())
        assert chosen == found[-1].argmax(1).tolist()
    for row, text in enumerate(texts):
        wanted = exact.logits(torch.tensor(text, device="cuda"))[-3:].cpu().numpy()
        for logits, right in zip(found, wanted, strict=True):
            assert np.linalg.norm(logits[row] - right) < 0.02 * np.linalg.norm(right)


def test_a_graph_of_steps_of_a_batch():
    config = MODELS["llama"]
    model = Llama(config, on_gpu(weights_of(config)), capacity=60, batch=2)
    first, positions = [17, 3], [0, 5]
    tokens, wanted = first, []
    for i in range(8):
        wanted.append(tokens := model.step(tokens, [p + i for p in positions]))
    run, tensors = model.repeater(first, positions)
    for i in range(8):
        run()
        assert tensors["token" if i % 2 else "chosen"].tolist() == wanted[i]
