"""A model gives the logits of float64, token by token, and its program is right for any sizes."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.models.config import Config
from pykittens.models.llama import Llama
from pykittens.models.prefill import fill_cache
from pykittens.runtime import nvrtc
from tests.models.reference import Reference
from tests.tiers import halved

SMALL = Config(
    hidden=192, layers=2, heads=4, key_heads=2, head=64, inner=320, vocabulary=300, positions=100
)
MODELS = {
    "llama": SMALL,
    "tied": replace(SMALL, tied=True, heads=2),
    "wide heads": replace(SMALL, head=128, heads=3, key_heads=3),
    "biases": replace(SMALL, biases=True, key_heads=1, heads=3),
    "norms of heads": replace(SMALL, head_norms=True, head=128, heads=6, hidden=100),
    "several chunks": replace(SMALL, hidden=2112, inner=96, layers=1, vocabulary=64),
    "several chunks, wide heads": replace(
        SMALL, hidden=2112, inner=96, layers=1, vocabulary=64, head=128, heads=2
    ),
    "several chunks, biases": replace(SMALL, hidden=2064, inner=40, layers=1, biases=True),
}


def weights_of(config, seed=0):
    """Random normal weights that keep the size of what they multiply."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, shape in config.shapes().items():
        x = rng.standard_normal(shape).astype(np.float32)
        if len(shape) == 2:
            scale = 1.0 if "embed" in name else shape[1] ** -0.5
            made[name] = (x * scale).astype(ml_dtypes.bfloat16)
        else:
            made[name] = 0.1 * x if name.endswith("bias") else 1 + 0.1 * x
    return made


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_float64(name):
    config = MODELS[name]
    weights = weights_of(config)
    model = Llama(config, weights, capacity=70)
    exact = Reference(config, weights, ml_dtypes.bfloat16)
    rng = np.random.default_rng(1)
    tokens = rng.integers(config.vocabulary, size=66 if name == "llama" else 4).tolist()
    for position, token in enumerate(tokens):
        chosen = model.step(token, position)
        wanted, found = exact.logits(token), model.logits()
        assert found.dtype == np.float32
        # A rounded key or value may fall on the other side: 2^-9 of one term of a sum.
        np.testing.assert_allclose(found, wanted, atol=2e-3 * np.abs(wanted).max())
        assert chosen == int(found.argmax())


@pytest.mark.skipif(nvrtc.available() is not None, reason="no compiler")
@pytest.mark.parametrize("name", halved([*MODELS]))
def test_a_program_fits_a_block_and_spills_no_registers(name):
    model = Llama(MODELS[name], weights_of(MODELS[name]), capacity=70, blocks=132)
    program, tensors = model.machine.program, model.tensors
    arguments = program.arguments(program.scheduled(**tensors), **tensors)
    assert program.kernel().compile(*arguments, arch="sm_90a").resources.frame == 0


def test_long_texts_have_a_program_of_their_own():
    """Its blocks share the keys of a head. The cache of the first positions is filled at random."""
    config = replace(SMALL, positions=2000, layers=1, key_heads=1, heads=2)
    weights = weights_of(config)
    model = Llama(config, weights, capacity=1500, blocks=8)
    exact = Reference(config, weights, ml_dtypes.bfloat16)
    rng = np.random.default_rng(5)
    for start in (509, 1100):
        kept = rng.standard_normal((2, start, 64)).astype(ml_dtypes.bfloat16)
        model.cache[:, :start] = kept
        keys, values = kept.astype(np.float64)[:, :, None]
        exact.keys, exact.values = [[*keys]], [[*values]]
        programs = []
        for position in range(start, start + 5):
            token = int(rng.integers(config.vocabulary))
            model.step(token, position)
            programs.append(model._last)
            wanted = exact.logits(token)
            np.testing.assert_allclose(model.logits(), wanted, atol=2e-3 * np.abs(wanted).max())
        assert programs == ([0, 0, 0, 1, 1] if start == 509 else [1] * 5)


def test_a_prompt_is_run_token_by_token_on_the_cpu():
    weights = weights_of(SMALL)
    model, same = (Llama(SMALL, weights, capacity=10) for _ in range(2))
    logits = model.prefill([5, 9, 2])
    for position, token in enumerate([5, 9, 2]):
        same.step(token, position)
    np.testing.assert_array_equal(logits, same.logits())


@pytest.mark.parametrize(
    ("name", "framework"), halved(["llama", "biases", "norms of heads"], ["numpy", "torch"])
)
def test_kernels_fill_the_cache_as_tokens_do(name, framework):
    """The kernels that fill the cache of a prompt on a GPU, in the emulator."""
    config, weights = MODELS[name], weights_of(MODELS[name])
    if framework == "torch":
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        weights = {
            n: torch.from_numpy(x.astype(np.float32)).to(
                torch.bfloat16 if x.ndim == 2 else torch.float32
            )
            for n, x in weights.items()
        }
    filled, stepped = (Llama(config, weights, capacity=10) for _ in range(2))
    tokens = [5, 9, 2, 250, 31, 7]
    fill_cache(config, weights, filled.cache.reshape(-1, 2, *filled.cache.shape[1:]), tokens)
    for position, token in enumerate(tokens):
        stepped.step(token, position)
    found, wanted = (
        np.asarray([[*map(float, r)] for r in m.cache.reshape(-1, m.cache.shape[-1])])
        for m in (filled, stepped)
    )
    found, wanted = (x.reshape(2 * config.layers, 10, -1) for x in (found, wanted))
    np.testing.assert_allclose(found[:, :6], wanted[:, :6], atol=0.04)
    assert not found[:, 6:].any()
    assert filled.step(3, 6) == stepped.step(3, 6)


def test_what_a_model_cannot_do_is_refused():
    weights = weights_of(SMALL)
    with pytest.raises(ArgumentError, match="heads must be 64 or 128 wide, not 32"):
        Llama(replace(SMALL, head=32), weights, capacity=10)
    for wrong in (0, 101, 1.5):
        with pytest.raises(ArgumentError, match="`capacity` must be (an int of|at most 100, the)"):
            Llama(SMALL, weights, capacity=wrong)
    model = Llama(SMALL, weights, capacity=4)
    for tokens in ([], [1] * 5):
        with pytest.raises(ArgumentError, match="from 1 to 4, the capacity"):
            model.prefill(tokens)
    with pytest.raises(ArgumentError, match="`token` must be"):
        model.step(300, 0)
    with pytest.raises(ArgumentError, match="`position` must be"):
        model.step(0, 4)


def test_sequences_of_a_batch_are_those_of_single_ones():
    """Prompts of different lengths, then steps; the second program from position 8 on."""
    config = MODELS["llama"]
    weights = weights_of(config)
    both = Llama(config, weights, capacity=24, blocks=2, batch=2)
    texts = [[5, 9, 2, 50, 7], [11]]
    logits = both.prefill(texts)
    singles = [Llama(config, weights, capacity=24, blocks=2) for _ in texts]
    for row, (single, text) in enumerate(zip(singles, texts, strict=True)):
        np.testing.assert_allclose(logits[row], single.prefill(text), atol=1e-4)
    tokens, positions = [3, 4], [5, 1]
    for _ in range(3):
        chosen = both.step(tokens, positions)
        wanted = [m.step(t, p) for m, t, p in zip(singles, tokens, positions, strict=True)]
        assert chosen == wanted
        np.testing.assert_allclose(both.logits(), [m.logits() for m in singles], atol=1e-4)
        tokens, positions = chosen, [p + 1 for p in positions]
    with pytest.raises(ArgumentError, match="`tokens` must be 2 texts, not 3"):
        both.prefill([[1], [2], [3]])
