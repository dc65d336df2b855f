"""The gradients of linear attention with a gate for each channel beside those of its recurrence in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.kernels.linear import gated_linear_attention, gated_linear_attention_backward
from pykittens.kernels.linear.reference import reference
from pykittens.runtime import nvrtc
from tests import tolerance
from tests.kernels.checked import check_plan
from tests.kernels.host_functions import tensor_of
from tests.kernels.test_gated_linear import given as given_forward
from tests.runtime.c_programs import needs_compiler
from tests.targets.clean import frame, spills

BF16 = ml_dtypes.bfloat16
NAMES = "dq", "dk", "dv", "d_decay", "d_initial_state"


def given(seed=0, **sizes):
    """The arrays of a call, with a gradient of its result."""
    arrays = given_forward(seed=seed, **sizes)
    gradient = np.random.default_rng(seed + 1).standard_normal(arrays["v"].shape)
    return arrays | {"gradient": gradient.astype(arrays["v"].dtype)}


def gradients(q, k, v, gradient, decay, *, initial_state=None, state_gradient=None, scale=None):
    """Those of q, k, v, decay and the initial state, one position after another in float64."""
    shapes = [x.shape for x in (q, k, decay)]
    (batch, heads, n, width), d = v.shape, q.shape[3]
    q, k, log = (np.repeat(x.astype(float), heads // x.shape[1], axis=1) for x in (q, k, decay))
    v, gradient, kept = v.astype(float), gradient.astype(float), np.exp(log)[..., None]
    scale = d**-0.5 if scale is None else scale
    zeros = np.zeros((batch, heads, d, width))
    states = [zeros if initial_state is None else initial_state.astype(float)]
    for i in range(n):
        states.append(kept[:, :, i] * states[-1] + k[:, :, i, :, None] * v[:, :, i, None])
    of_state = zeros if state_gradient is None else state_gradient.astype(float)
    found = [np.empty_like(x) for x in (q, k, v, log)]
    for i in reversed(range(n)):
        own = scale * gradient[:, :, i]
        of_state = of_state + q[:, :, i, :, None] * own[:, :, None]
        found[0][:, :, i] = np.einsum("bhdw,bhw->bhd", states[i + 1], own)
        found[1][:, :, i] = np.einsum("bhdw,bhw->bhd", of_state, v[:, :, i])
        found[2][:, :, i] = np.einsum("bhdw,bhd->bhw", of_state, k[:, :, i])
        of_state = kept[:, :, i] * of_state
        found[3][:, :, i] = (states[i] * of_state).sum(axis=3)
    for place, (of_batch, own, *rest) in zip((0, 1, 3), shapes, strict=True):
        found[place] = found[place].reshape(of_batch, own, -1, *rest).sum(axis=2)
    return *found, of_state


def of_states(arrays, seed=2):
    """A state before the first position, and a gradient of the one after the last."""
    rng, v = np.random.default_rng(seed), arrays["v"]
    shape = (*v.shape[:2], arrays["q"].shape[3], v.shape[3])
    names = "initial_state", "state_gradient"
    return {name: rng.standard_normal(shape).astype(np.float32) for name in names}


def check(arrays, **words):
    """All gradients, with a state before and a gradient of the state behind; returns them."""
    states = of_states(arrays)
    found = gated_linear_attention_backward(**arrays, **states, **words)
    compare(found, gradients(**arrays, **states), arrays)
    return found


def compare(found, wanted, arrays):
    """Errors are some roundings of the largest, of gradients whose result is f32, too."""
    for name, x, y in zip(NAMES, found, wanted, strict=False):
        assert x.shape == y.shape, name
        assert np.isfinite(x.astype(np.float64)).all(), name
        error = np.abs(x.astype(np.float64) - y).max()
        assert error <= 4 * tolerance.unit(arrays["v"].dtype) * np.abs(y).max(), (name, error)


@pytest.mark.parametrize("length", [1, 17, 63, 64, 65, 150])
def test_any_length(length):
    check(given(length=length))


def test_a_long_sequence():
    check(given(heads=1, length=600, d=16, width=16))


@pytest.mark.parametrize(("d", "width"), [(16, 16), (17, 30), (72, 64), (128, 130), (256, 48)])
def test_any_widths(d, width):
    check(given(heads=1, length=70, d=d, width=width))


@pytest.mark.parametrize("segments", [2, 3])
def test_segments_are_one_sequence(segments):
    arrays = given(heads=1, length=330, d=16, width=16)
    found, one = check(arrays, segments=segments), check(arrays, segments=1)
    assert np.abs(found[4] - one[4]).max() <= 2**-15 * np.abs(one[4]).max()


@pytest.mark.parametrize(("groups", "gates"), [(1, 3), (2, 2), (2, 6), (6, 6)])
def test_heads_share_queries_keys_and_gates(groups, gates):
    """Gradients of shared ones are sums in f32."""
    arrays = given(heads=6, length=70, d=16, width=16)
    arrays |= {x: arrays[x][:, :groups] for x in "qk"}
    check(arrays | {"decay": arrays["decay"][:, :gates]})


def test_any_strides():
    """(batch, n, heads, d), and an array whose last axis is not contiguous."""
    arrays = given(heads=3, length=70)
    wanted = gated_linear_attention_backward(**arrays)
    turned = {n: np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for n, x in arrays.items()}
    turned = {n: x.transpose(0, 2, 1, 3) for n, x in turned.items()}
    turned["decay"] = np.repeat(arrays["decay"], 2, axis=3)[..., ::2]
    for x, y in zip(gated_linear_attention_backward(**turned), wanted, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("log", [-0.0, -1.0, -30.0, -1e30, -np.inf])
def test_no_decay_is_too_strong(log):
    """Of all channels and positions, of some, and beside weak ones."""
    arrays = given(heads=1, length=130)
    weak = arrays["decay"]
    for is_strong in (True, np.arange(130)[:, None] % 20 == 19, np.arange(32) % 3 == 0):
        check(arrays | {"decay": np.where(is_strong, np.float32(log), weak)})


def test_without_states():
    arrays = given(length=80)
    found = gated_linear_attention_backward(**arrays, scale=0.5)
    assert len(found) == 4
    compare(found, gradients(**arrays, scale=0.5), arrays)


@pytest.mark.parametrize("dtype", [BF16, np.float16, np.float32])
def test_dtypes(dtype):
    arrays = given(length=80)
    of_gates = arrays | {"decay": arrays["decay"].astype(dtype)}
    found = gated_linear_attention_backward(**of_gates)
    assert found[3].dtype == dtype
    compare(found, gradients(**of_gates), arrays)
    if dtype == np.float16:
        check({n: x.astype(dtype) for n, x in arrays.items()})


def test_a_gradient_goes_on_where_it_was_left():
    """The gradient of the first state of a part is that of the last state of the part before."""
    arrays = given(length=150)
    whole = gated_linear_attention_backward(**arrays, **of_states(arrays))
    ends = of_states(arrays)
    parts = [slice(0, 70), slice(70, 71), slice(71, 150)]
    state, states = ends["initial_state"], []
    for part in parts:
        some = {n: x[:, :, part] for n, x in arrays.items() if n != "gradient"}
        states.append(state)
        _, state = gated_linear_attention(**some, initial_state=state, return_state=True)
    found, behind = [], ends["state_gradient"]
    for part, state in zip(reversed(parts), reversed(states), strict=True):
        some = {n: x[:, :, part] for n, x in arrays.items()}
        *own, behind = gated_linear_attention_backward(
            **some, initial_state=state, state_gradient=behind
        )
        found.insert(0, own)
    compare([np.concatenate(x, axis=2) for x in zip(*found, strict=True)], whole, arrays)
    assert np.abs(behind - whole[4]).max() <= 2**-15 * np.abs(whole[4]).max()


@pytest.mark.parametrize("strength", [0.01, 16.0])
def test_gradients_of_gates_have_more_than_the_accuracy_of_a_product_in_bf16(strength):
    """Of weak gates, too, where most comes from states, and pairs cancel."""
    arrays = given(heads=1, length=330)
    arrays["decay"] *= np.float32(strength)
    found, wanted = gated_linear_attention_backward(**arrays)[3], gradients(**arrays)[3]
    assert np.abs(found - wanted).max() <= 2**-9 * np.abs(wanted).max()


def test_the_reference_is_beside_finite_differences():
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal((1, 2, 9, 3)) for n in "qkv"}
    arrays["decay"] = -rng.random((1, 2, 9, 3))
    arrays["initial_state"], behind = rng.standard_normal((2, 1, 2, 3, 3))
    gradient = rng.standard_normal((1, 2, 9, 3))
    found = gradients(**arrays, gradient=gradient, state_gradient=behind)

    def loss(**changed):
        out, state = reference(**arrays | changed, return_state=True)
        return (out * gradient).sum() + (state * behind).sum()

    for name, wanted in zip(arrays, found, strict=True):
        way = rng.standard_normal(arrays[name].shape)
        ends = [loss(**{name: arrays[name] + step * way}) for step in (1e-5, -1e-5)]
        np.testing.assert_allclose((ends[0] - ends[1]) / 2e-5, (wanted * way).sum(), rtol=1e-6)


def test_what_does_not_fit_is_refused():
    arrays = given(heads=4, length=20)
    for words, message in (
        ({"decay": arrays["decay"][..., 0]}, "`decay` must have the shape"),
        ({"decay": arrays["decay"][:, :3]}, "3 heads of decay do not share 4 of q and k"),
        ({"gradient": arrays["v"][:, :, :19]}, "`gradient` must have the shape"),
        ({"state_gradient": np.zeros((1, 4, 32, 31), np.float32)}, "`state_gradient` must have"),
        ({"segments": 0}, "`segments` must be a positive int"),
    ):
        with pytest.raises(ArgumentError, match=message):
            gated_linear_attention_backward(**arrays | words)


@needs_compiler
def test_calls_of_a_form_compute_with_their_own_arrays(emulated):
    pytest.importorskip("torch")
    for seed in range(2):
        arrays = given(length=70, d=16, width=16, seed=seed)
        arrays |= {x: arrays[x][:, :1] for x in "qk"}
        for more in ({}, of_states(arrays, seed)):
            words = arrays | more
            wanted = gated_linear_attention_backward(**words)
            found = gated_linear_attention_backward(**{n: tensor_of(x) for n, x in words.items()})
            for x, y in zip(found, wanted, strict=True):
                assert x.tolist() == tensor_of(y).tolist()


@pytest.mark.parametrize(
    ("segments", "sizes", "gates"),
    [(1, {"length": 140, "d": 72, "width": 136}, 1), (2, {"length": 330, "d": 24, "width": 24}, 2)],
)
def test_no_launch_has_a_fault(segments, sizes, gates):
    """Of several chunks a segment, channels and columns, so that memory is written again; with heads that share."""
    arrays = given(heads=2, **sizes)
    arrays |= {x: arrays[x][:, :1] for x in "qk"}
    arrays["decay"] = arrays["decay"][:, :gates]
    words = of_states(arrays) | {"segments": segments}
    check_plan(gated_linear_attention_backward.plan(**arrays, **words))


@pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
@pytest.mark.parametrize(
    "d",
    [pytest.param(64, marks=pytest.mark.soak), pytest.param(128, marks=pytest.mark.units)],
)
def test_no_launch_spills_registers_on_hopper(d):
    arrays = given(length=64, d=d, width=d)
    plan = gated_linear_attention_backward.plan(**arrays, **of_states(arrays), segments=2)
    memory = plan.memory()
    for step in plan.steps:
        args = [memory[name] for name in step.args]
        compiled = step.kernel.compile(*args, arch="sm_90a", **step.constants)
        name = step.kernel.__name__
        # With d = 128 14 registers wait in memory, stored and loaded once a block, outside of all loops.
        known = 56 if (name, d) == ("channel_gradients", 128) else 0
        assert frame(compiled) == known, name
        assert known or spills(compiled) == [], name
