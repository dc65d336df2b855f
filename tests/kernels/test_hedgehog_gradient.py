"""Gradients of Hedgehog attention beside finite differences in float64: all that is given, segments, and states."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.kernels.linear import hedgehog_attention, hedgehog_attention_backward
from pykittens.kernels.linear.hedgehog.function import inputs
from pykittens.kernels.linear.hedgehog.reference import features, reference
from tests.kernels.checked import check_plan

NAMES = "q", "k", "v", "query_map", "key_map", "factors", "initial_state"
STEP = 1e-5


def given(length=200, d=16, width=24, count=8, heads=2, seed=0, states=True):
    """What a call takes, and the gradients of its result and of its state."""
    rng = np.random.default_rng(seed)
    arrays = inputs(rng, 1, heads, length, d, width, count)
    of_results = [rng.standard_normal(arrays["v"].shape).astype(ml_dtypes.bfloat16)]
    if states:
        k, v = (
            rng.standard_normal((1, heads, 20, d)),
            rng.standard_normal((1, heads, 20, width + 1)),
        )
        v[..., -1] = 1
        state = features(k, arrays["key_map"].astype(np.float64)).swapaxes(2, 3) @ v
        arrays["initial_state"] = state.astype(np.float32)
        of_results.append(rng.standard_normal(state.shape).astype(np.float32))
    return arrays, of_results


def backward(arrays, of_results, **words):
    """The gradients by name, from those of the result and of the state."""
    scale = {name: x for name, x in words.items() if name == "scale"}
    out, rows = hedgehog_attention(**arrays, **scale, return_rows=True)
    words["gradient"], *state = of_results
    words |= {"state_gradient": state[0]} if state else {}
    found = hedgehog_attention_backward(**arrays, out=out, rows=rows, **words)
    return dict(zip([x for x in NAMES if x in arrays], found, strict=True))


def loss(arrays, of_results, **words):
    """The sum of results times their gradients, in float64."""
    found = reference(**arrays, **words, return_state=True)
    pairs = zip(found, of_results, strict=False)
    return sum((x * y.astype(np.float64)).sum() for x, y in pairs)


def slope(arrays, of_results, name, direction, **words):
    """The derivative of the loss along a direction of one of the arrays."""
    x, ends = arrays[name].astype(np.float64), []
    for step in (-STEP, STEP):
        wide = {other: y.astype(np.float64) for other, y in arrays.items()}
        ends.append(loss(wide | {name: x + step * direction}, of_results, **words))
    return (ends[1] - ends[0]) / (2 * STEP)


def check(arrays, of_results, found, **words):
    """Gradients along their own direction and along random ones, within some roundings of their lengths."""
    rng = np.random.default_rng(1)
    for name, x in found.items():
        assert x.shape == arrays[name].shape
        assert x.dtype == arrays[name].dtype
        x = x.astype(np.float64)
        size = np.sqrt((x * x).sum())
        for direction in (x / max(size, 1e-9), *rng.standard_normal((3, *x.shape))):
            wanted = slope(arrays, of_results, name, direction, **words)
            is_own = (direction * direction).sum() < 1.1
            bound = 2**-6 * (size if is_own else 3 * size) + 2**-6
            assert abs((x * direction).sum() - wanted) <= bound, name


@pytest.mark.parametrize("length", [17, 65, 200, 256])
@pytest.mark.parametrize("states", [False, True])
def test_gradients_are_those_of_finite_differences(length, states):
    arrays, of_results = given(length=length, states=states)
    check(arrays, of_results, backward(arrays, of_results))


def test_other_widths_of_several_blocks():
    arrays, of_results = given(length=140, d=40, width=136, count=24, heads=1)
    check(arrays, of_results, backward(arrays, of_results))


def test_gradients_go_through_the_largest_score():
    """The weights of features do not scale with it: to take it as a constant is wrong by more than the gradient."""
    arrays, of_results = given(length=260, states=False)
    arrays["factors"][0] = 0.05  # so that features weigh most
    found = backward(arrays, of_results, scale=1.0)
    check(arrays, of_results, found, scale=1.0)
    out, rows = hedgehog_attention(**arrays, scale=1.0, return_rows=True)
    q, k, index = *(arrays[x].astype(np.float64) for x in "qk"), rows[:, :, 2]
    near = np.arange(260) // 64 * 64 - 64 + index.astype(int)  # the key of the largest score
    of_largest = np.einsum("bhnd,bhnd->bhn", q, np.take_along_axis(k, near[..., None], axis=2))
    np.testing.assert_allclose(rows[:, :, 0], of_largest / np.log(2), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("segments", [2, 3])
@pytest.mark.parametrize(("length", "width"), [(384, 24), (330, 136)])
def test_segments_are_one_sequence(length, width, segments):
    arrays, of_results = given(length=length, width=width, heads=1)
    one = backward(arrays, of_results, segments=1)
    parts = backward(arrays, of_results, segments=segments)
    for name, x in one.items():
        x, y = x.astype(np.float64), parts[name].astype(np.float64)
        assert np.abs(x - y).max() <= 2**-7 * np.abs(x).max() + 1e-3, name


@pytest.mark.parametrize("length", [320, 350])
def test_a_state_carries_gradients(length):
    """A sequence in two calls: the first one's state, of all but its last chunk, which the second has again."""
    arrays, of_results = given(length=length, heads=1)
    whole, cut = backward(arrays, of_results), 192
    first, second = (
        arrays | {x: arrays[x][:, :, part] for x in "qkv"}
        for part in (slice(0, cut), slice(cut - 64, None))
    )
    out, second["initial_state"] = hedgehog_attention(**first, return_state=True)
    gradient = of_results[0][:, :, cut - 64 :].copy()
    gradient[:, :, :64] = 0
    late = backward(second, [gradient, of_results[1]])
    early = backward(first, [of_results[0][:, :, :cut], late.pop("initial_state")])
    for name, x in whole.items():
        found = np.zeros(x.shape)
        for part, start in ((early, 0), (late, cut - 64)):
            if name in part:
                y = part[name].astype(np.float64)
                at = slice(start, start + y.shape[2]) if name in "qkv" else slice(None)
                (found[:, :, at] if name in "qkv" else found)[...] += y
        size = np.abs(x.astype(np.float64)).max()
        assert np.abs(x.astype(np.float64) - found).max() <= 2**-6 * size + 2**-5, name


def test_in_float16_and_without_factors():
    arrays, of_results = given(length=150)
    del arrays["factors"]
    half = {n: x if x.dtype == np.float32 else x.astype(np.float16) for n, x in arrays.items()}
    of_results[0] = of_results[0].astype(np.float16)
    check(half, of_results, backward(half, of_results, scale=0.4), scale=0.4)


def test_what_does_not_fit_is_refused():
    arrays, (gradient, state) = given(length=20)
    out, rows = hedgehog_attention(**arrays, return_rows=True)
    call = arrays | {"out": out, "rows": rows, "gradient": gradient}
    for words, message in (
        ({"gradient": gradient[:, :, 1:]}, "`gradient` must have the shape"),
        ({"rows": rows[:, :, :2]}, "`rows` must have the shape"),
        ({"state_gradient": state[..., 1:]}, "`state_gradient` must have the shape"),
        ({"out": out.astype(np.float16)}, "`out` must have the dtype of `q`"),
        ({"segments": 0}, "`segments` must be a positive int or None, not 0"),
    ):
        with pytest.raises(ArgumentError, match=message):
            hedgehog_attention_backward(**call | words)


@pytest.mark.parametrize(("segments", "width"), [(1, 40), (2, 136)])
def test_no_pass_has_a_fault(segments, width):
    """Of several chunks, so that memory is written again; with all states, and of several blocks of columns."""
    arrays, (gradient, state) = given(length=330, width=width, heads=1)
    out, rows = hedgehog_attention(**arrays, return_rows=True)
    how = {"state_gradient": state, "segments": segments}
    plan = hedgehog_attention_backward.plan(**arrays, out=out, rows=rows, gradient=gradient, **how)
    check_plan(plan)
