"""The gradients of linear attention beside those in float64, which are beside finite differences."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.kernels.linear import linear_attention, linear_attention_backward
from pykittens.kernels.linear.reference import reference
from tests import tolerance
from tests.kernels.checked import check_plan
from tests.kernels.host_functions import tensor_of
from tests.kernels.test_linear import given
from tests.runtime.c_programs import needs_compiler
from tests.tiers import halved

BF16 = ml_dtypes.bfloat16


def gradients(
    q, k, v, decay=None, *, gradient, initial_state=None, state_gradient=None, scale=None
):
    """Those of q, k, v, of the decay at each position, and of the initial state, in float64."""
    shared = v.shape[1] // q.shape[1]
    q, k = (np.repeat(x.astype(np.float64), shared, axis=1) for x in (q, k))
    v, gradient = v.astype(np.float64), gradient.astype(np.float64)
    batch, heads, n, d = q.shape
    scale = d**-0.5 if scale is None else scale
    log = np.zeros(()) if decay is None else np.asarray(decay, np.float64)
    log = np.broadcast_to(log[None, :, None] if log.ndim == 1 else log, (batch, heads, n))
    sums = np.cumsum(np.maximum(log, -800), axis=2)  # of which exp is 0, and sums are exact
    kept = np.exp(np.minimum(sums[..., :, None] - sums[..., None, :], 0)) * np.tril(np.ones((n, n)))
    zeros = np.zeros((batch, heads, d, v.shape[3]))
    before, behind = (zeros if x is None else x for x in (initial_state, state_gradient))
    pairs, of_pairs = (
        np.einsum(s, x, y) * kept * scale
        for s, x, y in (("bhid,bhjd->bhij", q, k), ("bhiw,bhjw->bhij", gradient, v))
    )
    up, down = np.exp(sums)[..., None], np.exp(sums[..., -1:] - sums)[..., None]
    end = np.exp(sums[..., -1])[..., None, None]
    dq = of_pairs @ k + scale * up * (gradient @ before.swapaxes(2, 3))
    dv = pairs.swapaxes(2, 3) @ gradient + down * (k @ behind)
    dk = of_pairs.swapaxes(2, 3) @ q + down * (v @ behind.swapaxes(2, 3))
    d_before = scale * (up * q).swapaxes(2, 3) @ gradient + end * behind
    last = (down * k).swapaxes(2, 3) @ v + end * before
    of_sums = (q * dq).sum(axis=3) - (k * dk).sum(axis=3)
    of_sums[..., -1] += (last * behind).sum(axis=(2, 3))
    d_decay = np.cumsum(of_sums[..., ::-1], axis=2)[..., ::-1]
    dq, dk = (x.reshape(batch, -1, shared, n, d).sum(axis=2) for x in (dq, dk))
    return dq, dk, dv, d_decay, d_before


def check(arrays, seed=1, **words):
    """All gradients, with a state before and a gradient of the state behind."""
    rng, v = np.random.default_rng(seed), arrays["v"]
    state = (*v.shape[:2], arrays["q"].shape[3], v.shape[3])
    before, behind = (rng.standard_normal(state).astype(np.float32) for _ in range(2))
    gradient = rng.standard_normal(v.shape).astype(v.dtype)
    wanted = [*gradients(**arrays, gradient=gradient, initial_state=before, state_gradient=behind)]
    decay = arrays.get("decay")
    if decay is None:
        del wanted[3]
    elif decay.ndim == 1:
        wanted[3] = wanted[3].sum(axis=(0, 2))
    found = linear_attention_backward(
        **arrays,
        gradient=gradient,
        initial_state=before,
        state_gradient=behind,
        **words,
    )
    for x, y in zip(found, wanted, strict=True):
        assert x.shape == y.shape
        error = np.abs(x.astype(np.float64) - y).max()
        assert error <= 8 * tolerance.unit(v.dtype) * np.abs(y).max(), (x.shape, error)


@pytest.mark.parametrize("decay", ["none", "head", "position"])
@pytest.mark.parametrize("length", [1, 17, 64, 65, 150])
def test_any_length(length, decay):
    check(given(length=length, decay=decay))


@pytest.mark.parametrize(("d", "width"), [(16, 40), (72, 64), (128, 128), (256, 48), (64, 256)])
def test_any_widths(d, width):
    check(given(heads=1, length=70, d=d, width=width))


@pytest.mark.parametrize("segments", [2, 3])
def test_segments(segments):
    check(given(length=330, decay="position"), segments=segments)


def test_heads_share_queries_and_keys():
    arrays = given(heads=6)
    arrays |= {x: arrays[x][:, :2] for x in "qk"}
    check(arrays)


def test_without_states_and_in_float16():
    arrays = given(length=80)
    arrays |= {n: arrays[n].astype(np.float16) for n in "qkv"}
    gradient = np.random.default_rng(2).standard_normal(arrays["v"].shape).astype(np.float16)
    found = linear_attention_backward(**arrays, gradient=gradient, scale=0.5)
    wanted = gradients(**arrays, gradient=gradient, scale=0.5)
    assert len(found) == 4
    for x, y in zip(found[:3], wanted[:3], strict=True):
        assert np.abs(x.astype(np.float64) - y).max() <= 2**-8 * np.abs(y).max()


@pytest.mark.parametrize("log", [-30.0, -1e30])
def test_no_decay_is_too_strong(log):
    arrays = given(length=130)
    arrays["decay"][...] = np.where(np.arange(130) % 40 == 39, np.float32(log), arrays["decay"])
    check(arrays)


def test_the_reference_is_beside_finite_differences():
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal((1, 2, 9, 3)) for n in "qkv"}
    arrays["decay"] = -rng.random((1, 2, 9))
    arrays["initial_state"], behind = rng.standard_normal((2, 1, 2, 3, 3))
    gradient = rng.standard_normal((1, 2, 9, 3))
    found = gradients(**arrays, gradient=gradient, state_gradient=behind)

    def loss(**changed):
        out, state = reference(**arrays | changed, return_state=True)
        return (out * gradient).sum() + (state * behind).sum()

    for name, wanted in zip(("q", "k", "v", "decay", "initial_state"), found, strict=False):
        way = rng.standard_normal(arrays[name].shape)
        ends = [loss(**{name: arrays[name] + step * way}) for step in (1e-5, -1e-5)]
        np.testing.assert_allclose((ends[0] - ends[1]) / 2e-5, (wanted * way).sum(), rtol=1e-6)


def test_what_does_not_fit_is_refused():
    arrays = given(length=20)
    arrays |= {"gradient": arrays["v"].copy()}
    for words, message in (
        ({"state_gradient": np.zeros((1, 2, 32, 31), np.float32)}, "`state_gradient` must have"),
        ({"gradient": arrays["v"][:, :, :19]}, "`gradient` must have the shape"),
        ({"gradient": arrays["v"].astype(np.float16)}, "`gradient` must have the dtype"),
        ({"segments": 0}, "`segments` must be a positive int or None, not 0"),
    ):
        with pytest.raises(ArgumentError, match=message):
            linear_attention_backward(**arrays | words)
    wide = given(length=3, width=272)
    with pytest.raises(ArgumentError, match="width must be at most 256, not 272"):
        linear_attention_backward(**wide, gradient=wide["v"].copy())


@needs_compiler
@pytest.mark.parametrize("decay", ["none", "head", "position"])
def test_calls_of_a_form_compute_with_their_own_arrays(decay, emulated):
    pytest.importorskip("torch")
    for seed in range(2):
        arrays = given(heads=4, length=70, decay=decay, seed=seed)
        arrays |= {x: arrays[x][:, :2] for x in "qk"}
        rng = np.random.default_rng(seed)
        arrays["gradient"] = rng.standard_normal(arrays["v"].shape).astype(BF16)
        behind = rng.standard_normal((1, 4, 32, 32)).astype(np.float32)
        for more in ({}, {"initial_state": behind, "state_gradient": behind.copy()}):
            words = arrays | more
            wanted = linear_attention_backward(**words)
            found = linear_attention_backward(**{n: tensor_of(x) for n, x in words.items()})
            for x, y in zip(found, wanted, strict=True):
                assert x.tolist() == tensor_of(y).tolist()


@pytest.mark.parametrize(("decay", "segments"), halved(["none", "head", "position"], [2, 1]))
def test_no_pass_has_a_fault(segments, decay):
    """Of several chunks, so that memory is written again; with all states, and heads that share."""
    arrays = given(heads=2, length=200, d=72, width=40, decay=decay)
    arrays |= {x: arrays[x][:, :1] for x in "qk"}
    before = np.ones((1, 2, 72, 40), np.float32)
    of_state = {"initial_state": before, "state_gradient": before.copy()}
    plans = [
        linear_attention.plan(**arrays, segments=segments),
        linear_attention.plan(**arrays, segments=segments, initial_state=before, return_state=True),
        linear_attention_backward.plan(
            **arrays, gradient=np.ones_like(arrays["v"]), segments=segments, **of_state
        ),
    ]
    for plan in plans:
        check_plan(plan)
