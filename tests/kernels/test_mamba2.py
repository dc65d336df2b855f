"""Mamba-2: results and gradients beside the recurrence in float64, states, steps inside, and passes without faults."""

import ml_dtypes
import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.kernels.linear import mamba2, mamba2_backward
from pykittens.kernels.linear.mamba2 import inputs, reference
from tests.kernels.checked import check_plan

NAMES = ("x", "dt", "A", "B", "C", "D", "dt_bias", "initial_state")


def given(heads=2, length=100, d=24, width=40, groups=1, seed=0):
    """Steps that need softplus, a bias, and a state before the first position."""
    rng = np.random.default_rng(seed)
    arrays = inputs(rng, 1, heads, length, d, width)
    arrays |= {n: np.repeat(arrays[n], groups, axis=1) for n in "BC"}
    arrays["dt"] = (rng.standard_normal((1, heads, length)) - 2).astype(np.float32)
    arrays["dt_bias"] = rng.standard_normal(heads).astype(np.float32)
    arrays["initial_state"] = rng.standard_normal((1, heads, d, width)).astype(np.float32)
    return arrays


def close(found, wanted, roundings=2):
    error = np.abs(found.astype(np.float64) - wanted).max()
    assert error <= roundings * 2.0**-8 * np.abs(wanted).max(), (error, np.abs(wanted).max())


@pytest.mark.parametrize("length", [1, 17, 63, 65, 200])
@pytest.mark.parametrize("segments", [None, 2])
def test_results_and_states(length, segments):
    arrays = given(length=length)
    words = {"softplus": True, "return_state": True}
    out, state = mamba2(**arrays, **words, segments=segments)
    wanted, last = reference(**arrays, **words)
    close(out, wanted)
    assert np.abs(state - last).max() <= 1e-4 * np.abs(last).max()


@pytest.mark.parametrize(("d", "width"), [(16, 64), (128, 64), (64, 128), (256, 32)])
def test_sizes_without_a_bias(d, width):
    arrays = inputs(np.random.default_rng(1), 1, 4, 130, d, width)
    close(mamba2(**arrays), reference(**arrays))
    del arrays["D"]
    close(mamba2(**arrays), reference(**arrays))


def test_half_precision_steps_and_layouts_by_positions():
    arrays = given()
    arrays["dt"] = arrays["dt"].astype(ml_dtypes.bfloat16)
    wanted = reference(**arrays, softplus=True)
    for name in ("x", "B", "C"):
        by_rows = np.ascontiguousarray(arrays[name].swapaxes(1, 2))
        arrays[name] = by_rows.swapaxes(1, 2)
    close(mamba2(**arrays, softplus=True), wanted)


def test_a_state_goes_on_where_it_was_left():
    arrays = given(length=150)
    whole = mamba2(**arrays, softplus=True)
    parts, state = [], arrays.pop("initial_state")
    for some in (slice(0, 70), slice(70, 150)):
        own = {n: x[:, :, some] if n in ("x", "B", "C", "dt") else x for n, x in arrays.items()}
        part, state = mamba2(**own, softplus=True, initial_state=state, return_state=True)
        parts.append(part.astype(np.float64))
    close(np.concatenate(parts, axis=2), whole.astype(np.float64))


def test_steps_of_0_and_strong_decays():
    """A step of 0 leaves the state as it is; a step of 1,000 forgets all before it."""
    arrays = given()
    del arrays["dt_bias"]
    arrays["dt"] = np.zeros_like(arrays["dt"])
    arrays["dt"][:, :, 40] = 1000
    close(mamba2(**arrays), reference(**arrays))
    gradient = np.ones_like(arrays["x"])
    assert all(
        np.isfinite(x.astype(float)).all() for x in mamba2_backward(**arrays, gradient=gradient)
    )


def explicit(torch, x, dt, A, B, C, D, dt_bias, initial_state, softplus=True):
    """One position after another."""
    step = dt + dt_bias[:, None]
    step = torch.nn.functional.softplus(step) if softplus else step
    B, C = (y.repeat_interleave(x.shape[1] // y.shape[1], dim=1) for y in (B, C))
    rows, state = [], initial_state
    for i in range(x.shape[2]):
        kept = torch.exp(A * step[:, :, i])[..., None, None]
        values = step[:, :, i, None] * x[:, :, i]
        state = kept * state + B[:, :, i, :, None] * values[:, :, None]
        rows.append((C[:, :, i, :, None] * state).sum(2) + D[:, None] * x[:, :, i])
    return torch.stack(rows, dim=2), state


@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_gradients(segments, groups):
    torch = pytest.importorskip("torch")
    arrays = given(length=150, groups=groups)
    rng = np.random.default_rng(5)
    gradient = rng.standard_normal(arrays["x"].shape).astype(ml_dtypes.bfloat16)
    of_state = rng.standard_normal(arrays["initial_state"].shape).astype(np.float32)
    leaves = {n: torch.tensor(arrays[n].astype(np.float64), requires_grad=True) for n in NAMES}
    given_back = [torch.tensor(x.astype(np.float64)) for x in (gradient, of_state)]
    wanted = torch.autograd.grad(explicit(torch, **leaves), [leaves[n] for n in NAMES], given_back)
    how = {"softplus": True, "state_gradient": of_state, "segments": segments}
    found = mamba2_backward(**arrays, gradient=gradient, **how)
    for name, x, y in zip(NAMES, found, wanted, strict=True):
        assert x.dtype == arrays[name].dtype
        close(x, y.numpy())


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("is_tiny", [False, True])
def test_gradients_of_small_steps(dtype, is_tiny):
    """From 1e-7 to 0.1, beside steps of 0, or none of them above 1e-5: products with them are 0 in f16."""
    torch = pytest.importorskip("torch")
    arrays, rng = given(length=150), np.random.default_rng(6)
    shape = arrays["dt"].shape
    steps = 10 ** rng.uniform(-7, -5 if is_tiny else -1, shape) * (rng.random(shape) > 0.2)
    arrays["dt"], arrays["dt_bias"] = steps.astype(np.float32), np.zeros(2, np.float32)
    arrays |= {n: arrays[n].astype(dtype) for n in ("x", "B", "C")}
    gradient = rng.standard_normal(arrays["x"].shape).astype(dtype)
    leaves = {n: torch.tensor(arrays[n].astype(np.float64), requires_grad=True) for n in NAMES}
    out, _ = explicit(torch, **leaves, softplus=False)
    given_back = torch.tensor(gradient.astype(np.float64))
    wanted = torch.autograd.grad(out, [leaves[n] for n in NAMES], given_back)
    found = dict(zip(NAMES, mamba2_backward(**arrays, gradient=gradient), strict=True))
    for name, y in zip(NAMES, wanted, strict=True):
        close(found[name], y.numpy())
    small = (steps > 0) & (steps < 1e-5)  # alone, as those of others may be larger
    close(found["dt"][small], wanted[1].numpy()[small])


@pytest.mark.parametrize("segments", [1, 2])
def test_no_pass_has_a_fault(segments):
    arrays = given(length=200, d=72)
    gradient = {"gradient": np.ones_like(arrays["x"]), "softplus": True, "segments": segments}
    for plan in (
        mamba2.plan(**arrays, softplus=True, segments=segments, return_state=True),
        mamba2_backward.plan(**arrays, **gradient),
    ):
        check_plan(plan)


def test_a_call_that_does_not_fit_is_refused():
    arrays = given()
    with pytest.raises(ArgumentError, match="`A` must"):
        mamba2(**arrays | {"A": arrays["A"].astype(np.float64)})
    with pytest.raises(ArgumentError, match="`dt`"):
        mamba2(**arrays | {"dt": arrays["dt"][:, :, 1:]})
    with pytest.raises(ArgumentError, match="`D`"):
        mamba2(**arrays | {"D": arrays["D"][:1]})
