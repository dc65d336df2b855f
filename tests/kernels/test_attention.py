"""Attention of the library in the emulator, in every configuration, against float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pykittens.errors import ArgumentError, ResourceError
from pykittens.kernels.attention import attention, attention_blocks
from pykittens.kernels.attention.config import CONFIGS, configs_for
from pykittens.kernels.attention.function import inputs
from pykittens.kernels.attention.reference import reference
from pykittens.kernels.limits import Limits
from pykittens.targets.architectures import TARGETS
from tests import tolerance
from tests.attention_operands import operands
from tests.tiers import halved

BF16, F16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
IDS = [f"{c.rows}x{c.keys}x{c.stages}-{c.widest}" for c in CONFIGS]


def assert_attention(found, q, k, v, causal):
    """Every element is within what rounded weights and sums in f32 allow."""
    n, d = q.shape[-2:]
    wide_q, wide_k = (np.abs(x.astype(np.float64)) for x in (q, k))
    scores = float((wide_q @ wide_k.swapaxes(-1, -2)).max()) / np.sqrt(d)
    exact, magnitude = reference(q, k, v, causal), reference(q, k, np.abs(v), causal)
    bound = tolerance.attention(found.dtype, exact, magnitude, scores, n, d)
    tolerance.assert_within(found, exact, bound)


def run(n, d, causal, config=None, seed=0):
    given = inputs(np.random.default_rng(seed), 1, 2, n, d, causal)
    found = attention(**given, config=config)
    assert_attention(found, given["q"], given["k"], given["v"], causal)


@pytest.mark.parametrize(
    ("config", "n", "causal"), halved([*CONFIGS], [1, 129, 300], [False, True])
)
def test_a_configuration_is_right_at_any_length(config, n, causal):
    run(n, config.widest, causal, config)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [16, 48, 80, 112, 144, 240])
def test_any_multiple_of_16_is_a_width(d, causal):
    run(200, d, causal)


@pytest.mark.parametrize("config", [c for c in CONFIGS if c.widest == 256], ids=lambda c: c.rows)
def test_an_output_in_parts_of_16_columns(config):
    run(100, 240, True, config)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_the_order_in_which_roles_run_does_not_matter(config, seed, monkeypatch):
    monkeypatch.setenv("PYKITTENS_SEED", str(seed))
    run(400, 48, True, config, seed)


def test_f16_gives_f16():
    q, k, v = (
        np.random.default_rng(i).standard_normal((2, 1, 90, 64)).astype(F16) for i in range(3)
    )
    found = attention(q, k, v)
    assert found.dtype == F16
    assert_attention(found, q, k, v, False)


def test_scores_far_apart_stay_finite():
    given = inputs(np.random.default_rng(0), 1, 1, 300, 64, True)
    given["q"] = (given["q"].astype(np.float32) * 50).astype(BF16)
    assert_attention(attention(**given), given["q"], given["k"], given["v"], True)


def test_heads_packed_in_one_tensor():
    packed = np.random.default_rng(0).standard_normal((2, 150, 3, 2, 64)).astype(BF16)
    q, k, v = (packed[:, :, i].swapaxes(1, 2) for i in range(3))
    out = np.full((2, 150, 2, 64), np.nan, BF16).swapaxes(1, 2)
    assert attention(q, k, v, out, causal=True) is out
    assert_attention(out, q, k, v, True)


def test_no_queries_are_no_work():
    empty = np.zeros((1, 2, 0, 64), BF16)
    assert attention(empty, empty.copy(), empty.copy()).shape == (1, 2, 0, 64)


@pytest.mark.parametrize("d", range(16, 257, 16))
@pytest.mark.parametrize("target", ["sm_90a", "sm_80", "sm_89"])
def test_each_target_has_a_configuration_for_each_width(target, d):
    t = TARGETS[target]
    config, *_ = configs_for(d, d, Limits(target, t.shared_bytes, t.warpgroups))
    assert config.warpgroups == t.warpgroups
    assert config.shared_bytes(d) <= t.shared_bytes
    assert d <= config.widest
    assert d % config.columns_at_once(d) == 0


@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_a_configuration_knows_its_shared_memory(config):
    for d in (16, config.widest - 16, config.widest):
        args = [np.zeros((1, 1, 16, d), BF16) for _ in range(4)]
        more, form = operands(True)
        emitted = attention_blocks.emitted(*args, *more, form=form, config=config)
        assert emitted.shared_bytes == config.shared_bytes(d)


def test_a_gpu_with_too_little_shared_memory_is_told():
    with pytest.raises(ResourceError, match="attention: no configuration fits sm_75"):
        configs_for(128, 128, Limits("sm_75", 32 * 1024, warpgroups=False))


def test_widths_and_shapes_that_do_not_fit_are_refused():
    def zeros(*shape):
        return np.zeros(shape, BF16)

    for d in (0, 8, 40, 272):
        with pytest.raises(ArgumentError, match=rf"a multiple of 16 from 16 to 256, not {d}"):
            attention(*(zeros(1, 1, 16, d) for _ in range(3)))
    fits = {"q": (1, 4, 16, 64), "k": (1, 2, 32, 64), "v": (1, 2, 32, 80), "out": (1, 4, 16, 80)}
    attention(**{name: zeros(*shape) for name, shape in fits.items()})
    for name, shape, message in (
        ("k", (2, 2, 32, 64), r"`k` must have the shape \(1, kv_heads, keys, 64\)"),
        ("v", (1, 1, 32, 80), r"`v` must have the shape \(1, 2, 32, width\)"),
        ("out", (1, 4, 16, 64), r"`out` must have the shape \(1, 4, 16, 80\)"),
        ("q", (1, 3, 16, 64), "a multiple of those of k and v, not 3 and 2"),
    ):
        with pytest.raises(ArgumentError, match=message):
            attention(
                **{
                    x: zeros(*(shape if x == name else fits[x]))
                    for x in fits
                    if x != "out" or name == "out"
                }
            )
    with pytest.raises(ArgumentError, match="`q` must have rank 4, not 3"):
        attention(*(zeros(2, 16, 64) for _ in range(3)))
