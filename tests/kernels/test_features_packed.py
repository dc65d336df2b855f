"""Packed sequences of Based and Hedgehog attention: they are calls of each sequence, bit for bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pykittens import settings
from pykittens.errors import ArgumentError
from pykittens.kernels.linear import (
    based_attention,
    based_attention_backward,
    hedgehog_attention,
    hedgehog_attention_backward,
)
from pykittens.kernels.linear.based.function import inputs as based_inputs
from pykittens.kernels.linear.based.reference import reference as based_reference
from pykittens.kernels.linear.hedgehog.function import inputs as hedgehog_inputs
from pykittens.kernels.linear.hedgehog.reference import reference as hedgehog_reference
from pykittens.runtime import nvrtc
from tests.kernels.checked import check_plan
from tests.kernels.test_linear_packed import ends_of, gradient_of
from tests.tiers import halved

BF16 = ml_dtypes.bfloat16
LENGTHS = (17, 0, 64, 1, 150, 0)
NAMES = "based", "divided based", "hedgehog"
SHARED = "query_map", "key_map", "factors"  # by all sequences
OF_ALL = pytest.mark.parametrize("name", NAMES)


def given(name, n, heads=2, width=40):
    rng = np.random.default_rng(n)
    if name == "hedgehog":
        return hedgehog_inputs(rng, 1, heads, n, 16, width, 8)
    return based_inputs(rng, 1, heads, n, 5, width)


def states_of(name, arrays, count):
    """States, all above 0, so that no sum of weights is near 0, and gradients of states."""
    rows, more = {"hedgehog": (16, 1), "based": (21, 0)}.get(name, (21, 1))
    _, heads, _, width = arrays["v"].shape
    shape = (2, count, heads, rows, width + more)
    return np.abs(np.random.default_rng(1).standard_normal(shape)).astype(np.float32)


def part_of(arrays, first, stop):
    return {n: x if n in SHARED else x[:, :, first:stop] for n, x in arrays.items()}


def forward(name, arrays, **words):
    """The result, what gradients take beside it, and the state."""
    if name == "hedgehog":
        out, state, rows = hedgehog_attention(
            **arrays, **words, return_state=True, return_rows=True
        )
        return out, {"out": out, "rows": rows}, state
    if name == "based":
        out, state = based_attention(**arrays, **words, return_state=True)
        return out, {}, state
    how = {"normalize": True, "return_state": True, "return_weights": True}
    out, state, weights = based_attention(**arrays, **words, **how)
    return out, {"out": out, "weights": weights}, state


def backward(name):
    return hedgehog_attention_backward if name == "hedgehog" else based_attention_backward


def reference(name, arrays, **words):
    if name == "hedgehog":
        return hedgehog_reference(**arrays, **words)
    return based_reference(**arrays, **words, normalize=name != "based")


@pytest.mark.parametrize(
    ("name", "width", "segments"), halved([*((x, 40) for x in NAMES), ("hedgehog", 136)], [1, 3])
)
def test_results_and_gradients_are_those_of_each_sequence(name, width, segments):
    """Gradients of what sequences share are sums over all, which are rounded once."""
    arrays, ends = given(name, sum(LENGTHS) + 14, width=width), ends_of(LENGTHS, first=9)
    states, of_states = states_of(name, arrays, len(LENGTHS))
    gradient, words = gradient_of(arrays), {"segments": segments}
    out, more, after = forward(name, arrays, initial_state=states, ends=ends, **words)
    whole = {"initial_state": states, "state_gradient": of_states, "ends": ends}
    found = backward(name)(**arrays, **more, gradient=gradient, **whole, **words)
    shared = [x for x in arrays if x in SHARED]
    totals = [np.zeros(arrays[x].shape) for x in shared]
    for i, (first, stop) in enumerate(zip(ends, ends[1:], strict=False)):
        at = slice(i, i + 1)
        if first == stop:
            np.testing.assert_array_equal(after[i], states[i])
            np.testing.assert_allclose(found[-1][i], of_states[i], rtol=2**-22)
            continue
        own, of_own = part_of(arrays, first, stop), gradient[:, :, first:stop]
        alone, more, last = forward(name, own, initial_state=states[at], **words)
        np.testing.assert_array_equal(out[:, :, first:stop], alone)
        np.testing.assert_array_equal(after[at], last)
        how = {"initial_state": states[at], "state_gradient": of_states[at]}
        grads = backward(name)(**own, **more, gradient=of_own, **how, **words)
        for x, y in zip(found[:3], grads[:3], strict=True):
            np.testing.assert_array_equal(x[:, :, first:stop], y)
        np.testing.assert_array_equal(found[-1][at], grads[-1])
        totals = [x + y.astype(np.float64) for x, y in zip(totals, grads[3:-1], strict=True)]
    for label, x, total in zip(shared, found[3:-1], totals, strict=True):
        bound = 2**-18 if label == "factors" else 2**-7
        assert np.abs(x.astype(np.float64) - total).max() <= bound * np.abs(total).max(), label


@OF_ALL
def test_results_are_those_of_the_reference(name):
    """Without a state before, in as many segments as are chosen."""
    lengths = 63, 300, 129
    arrays, ends = given(name, sum(lengths)), ends_of(lengths)
    out, _, state = forward(name, arrays, ends=ends)
    wanted = reference(name, arrays, ends=ends, return_state=True)
    for x, y in zip((out, state), wanted, strict=True):
        assert x.shape == y.shape
        assert np.abs(x.astype(np.float64) - y).max() <= 2**-6 * np.abs(y).max()


@OF_ALL
def test_nothing_passes_from_one_sequence_to_another(name):
    """Not even NaN, in results, gradients and states; nor do positions outside of all sequences."""
    ends = ends_of((70, 33, 100), first=9)
    arrays = given(name, 220)
    gradient, (states, of_states) = gradient_of(arrays), states_of(name, arrays, 3)
    other = {n: x.copy() for n, x in arrays.items()} | {"gradient": gradient.copy()}
    for label, x in other.items():
        for part in (slice(0, 9), slice(79, 112), slice(212, 220)):
            if label not in SHARED:
                x[:, :, part] = np.nan
    words, results = {"initial_state": states, "ends": ends}, []
    for some in (arrays | {"gradient": gradient}, other):
        own = {n: x for n, x in some.items() if n != "gradient"}
        out, more, after = forward(name, own, **words)
        found = backward(name)(**some, **more, **words, state_gradient=of_states)
        results.append([out, *found[:3], after[[0, 2]], found[-1][[0, 2]]])
    for x, y in zip(*results, strict=True):
        if len(x) == 2:
            np.testing.assert_array_equal(x, y)
        else:
            for part in (slice(9, 79), slice(112, 212)):
                np.testing.assert_array_equal(x[:, :, part], y[:, :, part])


@OF_ALL
def test_positions_outside_are_not_written(name):
    arrays = given(name, 150)
    function = hedgehog_attention if name == "hedgehog" else based_attention
    out = np.full(arrays["v"].shape, 7, BF16)
    function(**arrays, out=out, ends=np.int32([10, 80, 141]))
    assert (out[:, :, :10] == 7).all()
    assert (out[:, :, 141:] == 7).all()
    assert not (out[:, :, 10:141] == 7).all(axis=(0, 1, 3)).any()


@OF_ALL
def test_many_short_sequences(name):
    lengths = np.random.default_rng(3).integers(1, 6, 40)
    arrays, ends = given(name, int(lengths.sum()), 1, 16), ends_of(lengths)
    out, *_ = forward(name, arrays, ends=ends)
    wanted = reference(name, arrays, ends=ends)
    assert np.abs(out.astype(np.float64) - wanted).max() <= 2**-6 * np.abs(wanted).max()


def plans(name, ends, segments, heads=2):
    """Those of a call with all states, and of its gradients."""
    arrays = given(name, int(ends[-1]), heads)
    states, of_states = states_of(name, arrays, len(ends) - 1)
    words = {"initial_state": states, "ends": ends, "segments": segments}
    rows = np.ones((1, heads, 3, int(ends[-1])), np.float32)
    v, how, more = arrays["v"], {"normalize": name != "based"}, {}
    if name == "hedgehog":
        how, more = {"return_rows": True}, {"out": v.copy(), "rows": rows}
    elif name != "based":
        more = {"out": v.copy(), "weights": rows[:, :, 0].copy()}
    function = hedgehog_attention if name == "hedgehog" else based_attention
    yield function.plan(**arrays, **words, **how, return_state=True)
    gradient = {"gradient": gradient_of(arrays), "state_gradient": of_states}
    yield backward(name).plan(**arrays, **words, **more, **gradient)


@pytest.mark.parametrize(("name", "segments"), halved(NAMES, [2, 1]))
def test_no_launch_has_a_fault(name, segments):
    """Of several sequences and chunks, so that memory is written again; with all states."""
    for plan in plans(name, np.int32([0, 130, 130, 390]), segments, 1):
        check_plan(plan)


@pytest.mark.units
@pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@OF_ALL
def test_the_launches_compile(name, arch, monkeypatch):
    monkeypatch.setattr(settings, "target", lambda: arch)
    for plan in plans(name, np.int32([0, 150, 150, 350]), 2):
        plan.compile(arch)


@OF_ALL
def test_what_does_not_fit_is_refused(name):
    arrays = given(name, 20)
    states, _ = states_of(name, arrays, 2)
    both = {n: x if n in SHARED else np.concatenate([x, x]) for n, x in arrays.items()}
    for some, words, message in (
        (arrays, {"ends": np.zeros(3, np.int64)}, "`ends` must be int32, not int64"),
        (arrays, {"ends": np.zeros(1, np.int32)}, "`ends` must have where a sequence starts"),
        (arrays, {"ends": np.zeros(4, np.int32), "initial_state": states}, "`initial_state` must"),
        (both, {"ends": np.zeros(3, np.int32)}, "with `ends` the batch of `v` must be 1, not 2"),
    ):
        with pytest.raises(ArgumentError, match=message):
            forward(name, some, **words)
