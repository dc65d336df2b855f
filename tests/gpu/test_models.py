"""Models on a GPU: a text beside float64, prompts by the kernels of the library, and models of published sizes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pykittens.models.checkpoint import random_weights
from pykittens.models.config import NAMED
from pykittens.models.generate import generate
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
def test_a_model_of_a_published_size_agrees_with_pytorch(name):
    """The hidden layers of the same weights in float32, without a cache: all positions at once."""
    config = NAMED[name]
    weights = random_weights(config, 0, "cuda")
    model = Llama(config, weights, capacity=64)
    tokens = np.random.default_rng(4).integers(config.vocabulary, size=8).tolist()
    for position, token in enumerate(tokens):
        model.step(token, position)
    wanted = whole(config, weights, torch.tensor(tokens, device="cuda"))[-1].cpu().numpy()
    found = model.logits()
    assert np.linalg.norm(found - wanted) < 0.01 * np.linalg.norm(wanted)
    greedy = list(generate(model, tokens, limit=5))
    assert greedy == list(generate(model, tokens, limit=5))


def whole(config, weights, tokens):
    """The logits at all positions, in float32; keys and values are not rounded."""
    c, n = config, len(tokens)
    cos, sin = torch.from_numpy(c.angles(n)).cuda()[:, None].chunk(2, dim=2)

    def norm(x, gain):
        return torch.nn.functional.rms_norm(x, x.shape[-1:], weights[gain], c.eps)

    def rotated(x):
        a, b = x.chunk(2, dim=2)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], 2)

    h = weights["model.embed_tokens.weight"][tokens].float()
    for layer in range(c.layers):
        name = f"model.layers.{layer}."
        x, of = norm(h, f"{name}input_layernorm.weight"), f"{name}self_attn."
        q, k, v = (
            (
                x @ weights[f"{of}{i}_proj.weight"].float().T + weights.get(f"{of}{i}_proj.bias", 0)
            ).reshape(n, -1, c.head)
            for i in "qkv"
        )
        if c.head_norms:
            q, k = (norm(y, f"{of}{i}_norm.weight") for i, y in (("q", q), ("k", k)))
        q, k, v = (y.transpose(0, 1) for y in (rotated(q), rotated(k), v))
        mixed = torch.nn.functional.scaled_dot_product_attention(
            q[None], k[None], v[None], is_causal=True, enable_gqa=True
        )[0]
        h = h + mixed.transpose(0, 1).flatten(1) @ weights[f"{of}o_proj.weight"].float().T
        x = norm(h, f"{name}post_attention_layernorm.weight")
        gate, up, down = (
            weights[f"{name}mlp.{i}_proj.weight"].float() for i in ("gate", "up", "down")
        )
        h = h + (torch.nn.functional.silu(x @ gate.T) * (x @ up.T)) @ down.T
    output = weights["model.embed_tokens.weight" if c.tied else "lm_head.weight"].float()
    return norm(h, "model.norm.weight") @ output.T
