"""Linear attention beside its recurrence in float64: lengths, widths, strides, decays, groups, segments, and states."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.kernels.limits import limits_of
from pykittens.kernels.linear import linear_attention, linear_attention_step
from pykittens.kernels.linear.config import LinearConfig, config_for, cut_of, work_of_heads
from pykittens.kernels.linear.function import inputs
from pykittens.kernels.linear.reference import reference
from tests import tolerance

BF16 = ml_dtypes.bfloat16


def given(batch=1, heads=2, length=100, d=32, width=32, decay="position", seed=0):
    return inputs(np.random.default_rng(seed), batch, heads, length, d, width, decay)


def check(arrays, **words):
    """The results are those of the recurrence; returns them."""
    state = np.random.default_rng(1).standard_normal(
        (*arrays["v"].shape[:2], arrays["q"].shape[3], arrays["v"].shape[3])
    )
    words = {"initial_state": state.astype(np.float32), "return_state": True} | words
    found = linear_attention(**arrays, **words)
    words.pop("segments", None), words.pop("config", None)
    wanted = reference(**arrays, **words)
    for x, y, dtype in zip(found, wanted, (arrays["v"].dtype, arrays["v"].dtype), strict=True):
        assert x.shape == y.shape
        error = np.abs(x.astype(np.float64) - y).max()
        assert error <= 4 * tolerance.unit(dtype) * np.abs(y).max()
    return found


@pytest.mark.parametrize("decay", ["none", "head", "position"])
@pytest.mark.parametrize("length", [1, 17, 63, 64, 65, 200])
def test_any_length(length, decay):
    check(given(length=length, decay=decay))


@pytest.mark.parametrize(
    ("d", "width"), [(16, 16), (24, 40), (64, 72), (80, 128), (128, 130), (192, 64), (256, 256)]
)
def test_any_widths(d, width):
    check(given(heads=1, length=70, d=d, width=width))


@pytest.mark.parametrize("decay", ["none", "head", "position"])
@pytest.mark.parametrize("segments", [2, 3, 5, 8])
def test_segments_are_one_sequence(segments, decay):
    arrays = given(length=330, decay=decay)
    found, one = check(arrays, segments=segments), check(arrays, segments=1)
    assert np.abs(found[1] - one[1]).max() <= 2**-7 * np.abs(one[1]).max()


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
    turned["decay"] = np.ascontiguousarray(arrays["decay"].transpose(0, 2, 1)).transpose(0, 2, 1)
    out = np.zeros((1, 100, 3, 32), BF16).transpose(0, 2, 1, 3)
    found = linear_attention(**turned, out=out)
    assert found is out
    np.testing.assert_array_equal(out, linear_attention(**arrays))
    twice = np.repeat(arrays["v"], 2, axis=3)[..., ::2]
    np.testing.assert_array_equal(linear_attention(**arrays | {"v": twice}), out)


@pytest.mark.parametrize("log", [-0.0, -1.0, -30.0, -200.0, -1e30, -np.inf])
def test_no_decay_is_too_strong(log):
    """Also beside weak ones, with which products of gates underflow."""
    arrays = given(length=150)
    arrays["decay"][...] = np.where(np.arange(150) % 40 == 39, np.float32(log), arrays["decay"])
    check(arrays)
    check(arrays | {"decay": np.full(2, log, np.float32)})


def test_float16():
    arrays = given()
    check(arrays | {n: arrays[n].astype(np.float16) for n in "qkv"})


def test_a_state_goes_on_where_it_was_left():
    arrays = given(length=150)
    whole, last = linear_attention(**arrays, return_state=True)
    state, parts = None, []
    for part in (slice(0, 70), slice(70, 71), slice(71, 150)):
        some = {n: x[:, :, part] for n, x in arrays.items()}
        out, state = linear_attention(**some, initial_state=state, return_state=True)
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
            some = {n: arrays[n][:, :, i] for n in "qkv"}
            some["decay"] = decay[:, :, i] if decay is not None and decay.ndim > 1 else decay
            kept = np.empty_like(state)
            other = linear_attention_step(**some, state=state, next_state=kept)
            assert linear_attention_step(**some, state=state, out=out) is out
            np.testing.assert_array_equal(out, other)
            np.testing.assert_array_equal(state, kept)
            np.testing.assert_allclose(
                out.astype(np.float64), wanted[:, :, i], rtol=2**-7, atol=0.02
            )
        np.testing.assert_allclose(state, last, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("segments", [1, 3])
def test_states_have_the_accuracy_of_f32(segments):
    arrays = given(length=200)
    _, state = linear_attention(**arrays, return_state=True, segments=segments)
    _, wanted = reference(**arrays, return_state=True)
    assert np.abs(state - wanted).max() <= 2**-15 * np.abs(wanted).max()


def test_scale_is_that_of_attention_or_given():
    arrays = given(length=20)
    one = linear_attention(**arrays, scale=1.0).astype(np.float32)
    of_attention = linear_attention(**arrays).astype(np.float32)
    np.testing.assert_allclose(of_attention, one * 32**-0.5, rtol=2**-6, atol=1e-3)


def test_errors_are_no_larger_than_those_of_products_in_bf16():
    """The largest is at most 1.5 times that of the chunk form with states in f32, and products of bf16."""
    for seed in range(4):
        arrays = given(heads=1, length=256, d=64, width=64, seed=seed)
        wanted = reference(**arrays)
        errors = [
            np.abs(np.asarray(x, np.float64) - wanted).max()
            for x in (linear_attention(**arrays), by_chunks(**arrays))
        ]
        assert errors[0] <= 1.5 * errors[1]


def by_chunks(q, k, v, decay):
    """The chunk form of one head in f32, with a state in f32; weights of keys are rounded to bf16."""
    q, k, v, log = (x[0, 0].astype(np.float32) for x in (q, k, v, decay))
    state, out = np.zeros((q.shape[1], v.shape[1]), np.float32), np.zeros_like(v)
    for at in range(0, len(q), 64):
        a, b, c = (x[at : at + 64] for x in (q, k, v))
        sums = np.cumsum(log[at : at + 64])
        gates = np.tril(np.exp(np.minimum(sums[:, None] - sums, 0)))
        inside = ((a @ b.T) * gates).astype(BF16).astype(np.float32) @ c
        out[at : at + 64] = inside + np.exp(sums)[:, None] * (a @ state)
        state = np.exp(sums[-1]) * state + (b * np.exp(sums[-1] - sums)[:, None]).T @ c
    return (out * np.float32(q.shape[1] ** -0.5)).astype(BF16)[None, None]


def test_what_does_not_fit_is_refused():
    arrays = given(heads=3)
    for words, message in (
        ({"q": arrays["q"][:, :2], "k": arrays["k"][:, :2]}, "3 heads of v do not share 2"),
        ({"q": arrays["q"][:, :, :50]}, "`k` must have the shape"),
        ({"decay": arrays["decay"].astype(np.float64)}, "`decay` must be f32"),
        ({"decay": arrays["decay"][:, :2]}, "`decay` must have the shape"),
        ({"initial_state": np.zeros((1, 3, 32, 31), np.float32)}, "`initial_state` must have"),
        ({"segments": 0}, "`segments` must be a positive int"),
        ({"v": arrays["v"].astype(np.float32)}, "`v` must be bf16 or f16"),
    ):
        with pytest.raises(ArgumentError, match=message):
            linear_attention(**arrays | words)
    none = {n: x[:, :, :0] for n, x in arrays.items()}
    with pytest.raises(ArgumentError, match="n must be at least 1"):
        linear_attention(**none)
    with pytest.raises(ArgumentError, match="batch must be at least 1, not 0"):
        linear_attention(**{n: x[:0] for n, x in arrays.items() if x.ndim > 1})
    wide = given(d=272, length=3)
    with pytest.raises(ArgumentError, match="d must be from 1 to 256, not 272"):
        linear_attention(**wide)


def test_few_heads_are_cut_into_segments():
    limits = limits_of(np.zeros(1))
    config = config_for(128, 128, limits)

    def cut(heads, chunks):
        return cut_of(work_of_heads(heads, chunks, (128, 128), config), limits)[1]

    assert cut((256, 256), 16).segments == 1
    assert cut((16, 16), 192).segments > 4
    assert cut((1, 1), 3).segments == 1
    assert (config.columns, config.groups) == (64, 2)
    for d in (16, 64, 128, 256):
        for width in (16, 64, 256):
            found = config_for(d, width, limits)
            assert found.shared_bytes(d) <= limits.shared_bytes
            assert isinstance(found, LinearConfig)
