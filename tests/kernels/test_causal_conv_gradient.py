"""The gradients of causal convolutions beside those in float64, which are beside finite differences."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.kernels.causal_conv import call, causal_conv_backward
from pykittens.kernels.causal_conv.reference import reference
from tests import tolerance
from tests.kernels.checked import check_plan
from tests.kernels.host_functions import tensor_of
from tests.kernels.test_causal_conv import BOTH, given, long_blocks, moved, state_of  # noqa: F401
from tests.runtime.c_programs import needs_compiler
from tests.tiers import halved, paired

BF16 = ml_dtypes.bfloat16


def gradients(
    x,
    weight,
    bias=None,
    *,
    gradient,
    initial_state=None,
    state_gradient=None,
    activation="",
    ends=None,
    channels_first=False,
):
    """Those of x, weight, bias and initial_state in float64."""
    if channels_first:
        x, gradient = x.swapaxes(1, 2), gradient.swapaxes(1, 2)
    ends = np.cumsum([0] + [x.shape[1]] * len(x)) if ends is None else ends
    x, gradient = (a.reshape(-1, a.shape[2]).astype(np.float64) for a in (x, gradient))
    weight, taps = weight.astype(np.float64), weight.shape[1]
    dx, d_weight, d_bias = np.zeros_like(x), np.zeros_like(weight), np.zeros(x.shape[1])
    d_states = []
    for s, (i, j) in enumerate(zip(ends, ends[1:], strict=False)):
        states = []
        for state in (initial_state, state_gradient):
            state = np.zeros((taps - 1, x.shape[1])) if state is None else state[s]
            states.append(state.T if channels_first and state.shape[0] != taps - 1 else state)
        rows, dy = np.concatenate([states[0].astype(np.float64), x[i:j]]), gradient[i:j]
        z = sum(rows[k : k + j - i] * weight[:, k] for k in range(taps))
        z = z if bias is None else z + bias.astype(np.float64)
        if activation:
            sigmoid = 1 / (1 + np.exp(-z))
            dy = dy * sigmoid * (1 + z * (1 - sigmoid))
        of_rows = np.zeros_like(rows)
        for k in range(taps):
            of_rows[k : k + j - i] += dy * weight[:, k]
            d_weight[:, k] += (dy * rows[k : k + j - i]).sum(axis=0)
        of_rows[j - i :] += states[1]
        d_bias += dy.sum(axis=0)
        dx[i:j] = of_rows[taps - 1 :]
        d_states.append(of_rows[: taps - 1])
    return dx, d_weight, d_bias, np.stack(d_states)


def check(arrays, seed=1, **words):
    """All gradients, with a state before and a gradient of the state behind."""
    words = arrays | words
    x, turned = arrays["x"], arrays.get("channels_first")
    sequences = len(words["ends"]) - 1 if "ends" in words else len(x)
    rng = np.random.default_rng(seed)
    words["gradient"] = rng.standard_normal(x.shape).astype(x.dtype)
    words["initial_state"] = state_of(arrays, sequences)
    words["state_gradient"] = state_of(arrays, sequences, seed=2)
    dx, d_weight, d_bias, d_state = gradients(**words)
    if turned:
        d_state = d_state.swapaxes(1, 2)
        dx = dx.reshape(x.shape[0], x.shape[2], x.shape[1]).swapaxes(1, 2)
    # Sums in f32 have some roundings of their own, which those of narrow results hide.
    found, unit = causal_conv_backward(**words), max(2 * tolerance.unit(x.dtype), 2.0**-20)
    wanted = [dx.reshape(x.shape), d_weight, d_bias, d_state]
    for name, f, w in zip(("dx", "d_weight", "d_bias", "d_state"), found, wanted, strict=True):
        assert f.shape == w.shape, name
        error = np.abs(f.astype(np.float64) - w).max()
        assert error <= unit * np.abs(w).max() + 1e-6, (name, error)
    return found


@pytest.mark.parametrize(
    ("length", "taps", "activation"), halved([1, 2, 16, 17, 70], [2, 4, 8], ["", "silu"])
)
def test_any_length_and_taps(length, taps, activation):
    check(given(length, taps=taps), activation=activation)


@pytest.mark.parametrize(("length", "taps"), halved([1, 3, 257, 1000, 2100], [2, 4, 8]))
def test_lines_of_any_length_and_taps(length, taps):
    check(given(length, 5, taps, channels_first=True), activation="silu")


@BOTH
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_any_dtype(dtype, channels_first):
    check(given(40, 130, dtype=dtype, channels_first=channels_first), activation="silu")


@BOTH
def test_packed_sequences(channels_first):
    arrays = given(60, 8, batch=1, channels_first=channels_first)
    check(arrays, ends=np.array([0, 1, 1, 3, 40, 60], np.int32), activation="silu")


@BOTH
def test_without_bias_and_states(channels_first):
    arrays = given(40, 9, channels_first=channels_first)
    del arrays["bias"]
    gradient = np.random.default_rng(1).standard_normal(arrays["x"].shape).astype(BF16)
    found = causal_conv_backward(**arrays, gradient=gradient)
    dx, d_weight, *_ = gradients(**arrays, gradient=gradient)
    assert len(found) == 2
    of_x = found[0].swapaxes(1, 2) if channels_first else found[0]
    for f, w in ((of_x, dx.reshape(of_x.shape)), (found[1], d_weight)):
        assert np.abs(f.astype(np.float64) - w).max() <= 2**-8 * np.abs(w).max()


@pytest.mark.parametrize(
    ("length", "taps", "units", "channels_first"),
    paired([1, 9, 1025, 2051, 3504, 5120, 6001], [2, 4, 8], [1, 5], [False, True]),
)
def test_lines_and_rows_without_states(length, taps, units, channels_first, monkeypatch):
    monkeypatch.setattr(call, "SPANS", (units,))
    n, channels = (length, 4) if channels_first else (length % 101, 72)
    arrays = given(n, channels, taps, channels_first=channels_first)
    x = arrays["x"]
    gradient = np.random.default_rng(1).standard_normal(x.shape).astype(BF16)
    wanted = gradients(**arrays, gradient=gradient, activation="silu")
    others = (
        slice(1, None, 2),
        slice(None, None, 2),
    )  # channels that are not numbers, and those beside
    if channels_first:
        x[:, others[0]] = gradient[:, others[0]] = np.nan
    found = causal_conv_backward(**arrays, gradient=gradient, activation="silu")
    turned = found[0].swapaxes(1, 2) if channels_first else found[0]
    pairs = zip((turned.reshape(-1, channels), *(f.T for f in found[1:])), wanted, strict=False)
    for f, w in ((f, w if i == 0 else w.T) for i, (f, w) in enumerate(pairs)):
        error = np.abs(f.astype(np.float64) - w)[..., others[1]].max()
        assert error <= 2 * tolerance.unit(BF16) * np.abs(w).max() + 1e-6


def test_the_reference_is_beside_finite_differences():
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal(s) for n, s in (("x", (1, 9, 3)), ("weight", (3, 4)))}
    arrays |= {"bias": rng.standard_normal(3), "initial_state": rng.standard_normal((2, 3, 3))}
    how = {"ends": np.array([0, 2, 9]), "activation": "silu"}
    gradient, behind = rng.standard_normal((1, 9, 3)), rng.standard_normal((2, 3, 3))
    found = gradients(**arrays, **how, gradient=gradient, state_gradient=behind)

    def loss(**changed):
        out, state = reference(**arrays | changed, **how, return_state=True)
        return (out * gradient).sum() + (state * behind).sum()

    for (name, x), of_x in zip(arrays.items(), found, strict=True):
        way = rng.standard_normal(x.shape)
        ends = [loss(**{name: x + step * way}) for step in (1e-5, -1e-5)]
        wanted = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose((of_x.reshape(x.shape) * way).sum(), wanted, rtol=1e-6)


def test_what_does_not_fit_is_refused():
    arrays = given(20)
    arrays["gradient"] = arrays["x"].copy()
    for words, message in (
        ({"gradient": arrays["x"][:, :19]}, "`gradient` must have the shape"),
        ({"gradient": arrays["x"].astype(np.float32)}, "`gradient` must have the dtype"),
        ({"state_gradient": np.zeros((2, 4, 72), BF16)}, "`state_gradient` must have the shape"),
    ):
        with pytest.raises(ArgumentError, match=message):
            causal_conv_backward(**arrays | words)


@needs_compiler
@BOTH
def test_calls_of_a_form_compute_with_their_own_arrays(channels_first, emulated):
    pytest.importorskip("torch")
    for seed in range(2):
        arrays = given(40, 9, channels_first=channels_first)
        how = {"channels_first": channels_first, "activation": "silu"}
        arrays.pop("channels_first", None)
        rng = np.random.default_rng(seed)
        arrays["gradient"] = rng.standard_normal(arrays["x"].shape).astype(BF16)
        wanted = causal_conv_backward(**arrays, **how)
        found = causal_conv_backward(**{n: tensor_of(x) for n, x in arrays.items()}, **how)
        for x, y in zip(found, wanted, strict=True):
            assert x.tolist() == tensor_of(y).tolist()


@BOTH
@pytest.mark.parametrize("packed", [False, True])
def test_no_launch_has_a_fault(packed, channels_first):
    arrays = given(2200 if channels_first else 50, 6, batch=1, channels_first=channels_first)
    sequences = 2 if packed else 1
    words = {"initial_state": state_of(arrays, sequences), "gradient": arrays["x"].copy()}
    words |= {"state_gradient": state_of(arrays, sequences), "activation": "silu"}
    if packed:
        words["ends"] = np.array([0, 20, 50], np.int32)
    plan = causal_conv_backward.plan(**arrays, **words)
    check_plan(plan)


def test_lines_at_any_address_have_no_fault():
    arrays = given(515, 6, batch=2, channels_first=True)
    check_plan(causal_conv_backward.plan(**arrays, gradient=arrays["x"].copy(), activation="silu"))


@BOTH
@pytest.mark.parametrize("length", [4160, 4163])
def test_rounds_of_stages_have_no_fault(length, channels_first, long_blocks):  # noqa: F811
    arrays = given(length, 2, channels_first=True) if channels_first else given(length % 79, 72)
    check_plan(causal_conv_backward.plan(**arrays, gradient=arrays["x"].copy(), activation="silu"))


def test_lines_of_memory_at_any_address():
    arrays = given(515, 6, channels_first=True)
    gradient = np.random.default_rng(1).standard_normal(arrays["x"].shape).astype(BF16)
    wanted = causal_conv_backward(**arrays, gradient=gradient)
    found = causal_conv_backward(**arrays, gradient=moved(gradient))
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(f.astype(np.float32), w.astype(np.float32), rtol=0.01, atol=0.02)
