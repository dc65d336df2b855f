"""The gated delta rule beside its recurrence in float64: lengths, widths, keys, decays, groups, segments, states."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.kernels.delta import gated_delta_rule, gated_delta_rule_step
from pykittens.kernels.delta.config import config_for, config_of_states, cut_for
from pykittens.kernels.delta.function import inputs
from pykittens.kernels.delta.reference import reference
from pykittens.kernels.delta.states import ScanConfig, scan_config_for
from pykittens.kernels.limits import limits_of
from tests import tolerance
from tests.kernels.checked import check_plan
from tests.tiers import halved

BF16 = ml_dtypes.bfloat16
DECAYS = ["none", "head", "position"]


def given(batch=1, heads=2, length=100, d=32, width=32, decay="position", seed=0):
    sizes = {"batch": batch, "heads": heads, "length": length, "d": d, "width": width}
    return inputs(np.random.default_rng(seed), **sizes, decay=decay)


def check(arrays, **words):
    """The results are those of the recurrence; returns them."""
    state = np.random.default_rng(1).standard_normal(
        (*arrays["v"].shape[:2], arrays["q"].shape[3], arrays["v"].shape[3])
    )
    words = {"initial_state": state.astype(np.float32), "return_state": True} | words
    found = gated_delta_rule(**arrays, **words)
    words.pop("segments", None), words.pop("config", None)
    wanted = reference(**arrays, **words)
    for x, y in zip(found, wanted, strict=True):
        assert x.shape == y.shape
        error = np.abs(x.astype(np.float64) - y).max()
        assert error <= 4 * tolerance.unit(arrays["v"].dtype) * np.abs(y).max()
    return found


@pytest.mark.parametrize(("length", "decay"), halved([1, 17, 63, 64, 65, 200], DECAYS))
def test_any_length(length, decay):
    check(given(length=length, decay=decay))


@pytest.mark.parametrize(
    ("d", "width"), [(16, 16), (24, 40), (48, 72), (64, 64), (128, 130), (192, 64), (256, 256)]
)
def test_any_widths(d, width):
    check(given(heads=1, length=70, d=d, width=width))


@pytest.mark.parametrize(("segments", "decay"), halved([2, 3, 7], DECAYS))
def test_segments_are_one_sequence(segments, decay):
    """Also more of them than there are chunks."""
    arrays = given(length=330, d=48, width=72, decay=decay)
    found, one = check(arrays, segments=segments), check(arrays, segments=1)
    assert np.abs(found[1] - one[1]).max() <= 2**-6 * np.abs(one[1]).max()


def test_segments_of_a_wide_state():
    check(given(heads=1, length=130, d=200, width=64), segments=2)


@pytest.mark.parametrize("log", [0.0, -0.1])
def test_keys_may_be_all_equal(log):
    """Then powers of the matrix of a chunk are more than 16 bits hold; each value replaces the one before."""
    arrays = given(length=200, d=48)
    arrays["k"][...] = arrays["k"][:, :, :1]
    arrays["beta"][...] = 1
    arrays["decay"][...] = log
    wanted, _ = reference(**arrays, return_state=True)
    found = gated_delta_rule(**arrays).astype(np.float64)
    # A value is the sum of the rounded differences of up to 64 values from those before them.
    assert np.abs(found - wanted).max() <= 8 * tolerance.unit(BF16) * np.abs(wanted).max()


@pytest.mark.parametrize("log", [-0.0, -1.0, -30.0, -200.0, -1e30, -np.inf])
def test_no_decay_is_too_strong(log):
    """Also beside weak ones, with which products of gates underflow."""
    arrays = given(length=150)
    arrays["decay"][...] = np.where(np.arange(150) % 40 == 39, np.float32(log), arrays["decay"])
    check(arrays)
    check(arrays | {"decay": np.full(2, log, np.float32)}, segments=2)


def test_heads_share_queries_and_keys():
    arrays = given(heads=6)
    arrays |= {x: arrays[x][:, :2] for x in "qk"}
    check(arrays)
    check(arrays, segments=2)


def test_any_strides():
    """(batch, n, heads, d), and an array whose last axis is not contiguous."""
    arrays = given(heads=3)
    turned = {n: np.ascontiguousarray(arrays[n].transpose(0, 2, 1, 3)) for n in "qkv"}
    turned = {n: x.transpose(0, 2, 1, 3) for n, x in turned.items()}
    for name in ("beta", "decay"):
        turned[name] = np.ascontiguousarray(arrays[name].transpose(0, 2, 1)).transpose(0, 2, 1)
    out = np.zeros((1, 100, 3, 32), BF16).transpose(0, 2, 1, 3)
    found = gated_delta_rule(**turned, out=out)
    assert found is out
    np.testing.assert_array_equal(out, gated_delta_rule(**arrays))
    twice = np.repeat(arrays["v"], 2, axis=3)[..., ::2]
    np.testing.assert_array_equal(gated_delta_rule(**arrays | {"v": twice}), out)


def test_float16_and_beta_of_its_dtype():
    arrays = given()
    check(arrays | {n: arrays[n].astype(np.float16) for n in (*"qkv", "beta")})
    check(arrays | {"beta": arrays["beta"].astype(BF16)})


def test_a_state_goes_on_where_it_was_left():
    arrays = given(length=150)
    whole, last = gated_delta_rule(**arrays, return_state=True)
    state, parts = None, []
    for part in (slice(0, 70), slice(70, 71), slice(71, 150)):
        some = {n: x[:, :, part] for n, x in arrays.items()}
        out, state = gated_delta_rule(**some, initial_state=state, return_state=True)
        parts.append(out)
    found = np.concatenate(parts, axis=2).astype(np.float32)
    assert np.abs(found - whole.astype(np.float32)).max() <= 2**-6 * np.abs(found).max()
    assert np.abs(state - last).max() <= 2**-7 * np.abs(last).max()


def test_steps_are_a_sequence():
    """Also of heads that share queries and keys, and with a decay of each head."""
    arrays = given(heads=4, length=6, d=72, width=136)
    arrays |= {x: arrays[x][:, :2] for x in "qk"}
    for decay in (arrays["decay"], np.float32([-0.1, -1.0, 0.0, -np.inf]), None):
        wanted, last = reference(**arrays | {"decay": decay}, return_state=True)
        state, out = np.zeros((1, 4, 72, 136), np.float32), np.empty((1, 4, 136), BF16)
        for i in range(6):
            some = {n: arrays[n][:, :, i] for n in (*"qkv", "beta")}
            some["decay"] = decay[:, :, i] if decay is not None and decay.ndim > 1 else decay
            kept = np.empty_like(state)
            other = gated_delta_rule_step(**some, state=state, next_state=kept)
            assert gated_delta_rule_step(**some, state=state, out=out) is out
            np.testing.assert_array_equal(out, other)
            np.testing.assert_array_equal(state, kept)
            error = np.abs(out.astype(np.float64) - wanted[:, :, i]).max()
            assert error <= tolerance.unit(BF16) * np.abs(wanted).max()
        np.testing.assert_allclose(state, last, rtol=1e-5, atol=1e-5)


def test_scale_is_that_of_attention_or_given():
    arrays = given(length=20)
    check(arrays, scale=0.5)
    of_attention = gated_delta_rule(**arrays, scale=32**-0.5)
    np.testing.assert_array_equal(gated_delta_rule(**arrays), of_attention)


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("segments", [1, 3])
def test_errors_are_no_larger_than_those_of_products_in_bf16(segments, alike):
    """The largest is at most 1.5 times that of the chunk form with states in f32, and products of bf16."""
    for seed in range(3):
        arrays = given(heads=1, length=256, d=64, width=64, seed=seed)
        if alike:
            arrays["k"][...] = arrays["k"][:, :, :1]
        wanted = reference(**arrays)
        ours = gated_delta_rule(**arrays, segments=segments)
        errors = [
            np.abs(np.asarray(x, np.float64) - wanted).max() for x in (ours, by_chunks(**arrays))
        ]
        assert errors[0] <= 1.5 * errors[1]


def by_chunks(q, k, v, beta, decay):
    """The chunk form of one head in f32, with a state in f32; what is multiplied is rounded to bf16."""

    def rounded(x):
        return x.astype(BF16).astype(np.float32)

    q, k, v, rate, log = (x[0, 0].astype(np.float32) for x in (q, k, v, beta, decay))
    state, out = np.zeros((q.shape[1], v.shape[1]), np.float32), np.zeros_like(v)
    for at in range(0, len(q), 64):
        a, b, c, beta_ = (x[at : at + 64] for x in (q, k, v, rate))
        sums = np.cumsum(log[at : at + 64])
        gates = np.tril(np.exp(np.minimum(sums[:, None] - sums, 0)))
        below = np.tril(beta_[:, None] * (b @ b.T) * gates, -1)
        inverse = rounded(np.linalg.inv(np.eye(len(a), dtype=np.float32) + below) * beta_)
        of_state = rounded(inverse @ rounded(b * np.exp(sums)[:, None]))
        added = rounded(inverse @ c) - of_state @ rounded(state)
        inside = rounded((a @ b.T) * gates) @ rounded(added)
        out[at : at + 64] = inside + np.exp(sums)[:, None] * (a @ rounded(state))
        left = rounded(added * np.exp(sums[-1] - sums)[:, None])
        state = np.exp(sums[-1]) * state + b.T @ left
    return (out * np.float32(q.shape[1] ** -0.5)).astype(BF16)[None, None]


@pytest.mark.parametrize(
    ("segments", "decay", "d", "width"),
    [(1, "none", 72, 72), (2, "none", 72, 72), (2, "head", 40, 72), (2, "position", 136, 40)],
)
def test_no_launch_has_a_fault(segments, decay, d, width):
    """Of at least three chunks a segment, so that memory is written again; with states, and heads that share."""
    arrays = given(heads=2, length=192 * segments - 30, d=d, width=width, decay=decay)
    arrays |= {x: arrays[x][:, :1] for x in "qk"}
    state = np.ones((1, 2, d, width), np.float32)
    plans = [
        gated_delta_rule.plan(**arrays, segments=segments, initial_state=state, return_state=True),
        gated_delta_rule.plan(**arrays, segments=segments),
    ]
    for plan in plans:
        check_plan(plan)


def test_what_does_not_fit_is_refused():
    arrays = given(heads=3)
    for words, message in (
        ({"q": arrays["q"][:, :2], "k": arrays["k"][:, :2]}, "3 heads of v do not share 2"),
        ({"q": arrays["q"][:, :, :50]}, "`k` must have the shape"),
        ({"beta": arrays["beta"][:, :, :50]}, "`beta` must have the shape"),
        ({"beta": arrays["beta"].astype(np.float16)}, "`beta` must be f32 or bf16, not f16"),
        ({"decay": arrays["decay"].astype(np.float64)}, "`decay` must be f32"),
        ({"initial_state": np.zeros((1, 3, 32, 31), np.float32)}, "`initial_state` must have"),
        ({"segments": 0}, "`segments` must be a positive int"),
        ({"v": arrays["v"].astype(np.float32)}, "`v` must be bf16 or f16"),
    ):
        with pytest.raises(ArgumentError, match=message):
            gated_delta_rule(**arrays | words)
    wide = given(d=272, length=3)
    with pytest.raises(ArgumentError, match="d must be from 1 to 256, not 272"):
        gated_delta_rule(**wide)
    one = {n: x[:, :, 0] for n, x in arrays.items()} | {
        "state": np.zeros((1, 3, 32, 32), np.float32)
    }
    for words, message in (
        ({"beta": one["beta"][:, :2]}, "`beta` must have the shape"),
        ({"state": one["state"].astype(np.float64)}, "`state` must be f32"),
    ):
        with pytest.raises(ArgumentError, match=message):
            gated_delta_rule_step(**one | words)


def test_few_heads_are_cut_into_segments():
    limits = limits_of(np.zeros(1))
    assert cut_for(256, 1024, (128, 128), limits)[0] == 1
    assert cut_for(16, 8192, (128, 128), limits)[0] >= 4
    assert cut_for(1, 100, (128, 128), limits)[0] == 1
    assert cut_for(16, 8192, (128, 128), limits, segments=3)[0] == 3
    assert cut_for(4, 8833, (128, 192), limits)[0] >= 4
    assert config_for(128, 128, 128, limits).groups == 2
    assert config_of_states(config_for(128, 64, 4, limits), 128, limits).resident == 2
    assert scan_config_for(128, limits) == ScanConfig(4, 2)
    assert scan_config_for(256, limits) == ScanConfig(2, 1)
    assert scan_config_for(128, replace(limits, shared_bytes=80 << 10)) == ScanConfig(2, 0)
    assert not config_for(128, 128, 128, limits).in_memory
    assert config_for(192, 64, 128, limits).in_memory
    for d in (16, 64, 128, 256):
        for width in (16, 64, 256):
            for heads in (1, 1000):
                found = config_for(d, width, heads, limits)
                assert found.resident * found.shared_bytes(d) <= limits.shared_bytes
