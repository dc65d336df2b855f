"""The gradients of the gated delta rule beside those of its recurrence in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pykittens import settings
from pykittens.errors import ArgumentError
from pykittens.kernels.delta import gated_delta_rule, gated_delta_rule_backward
from pykittens.kernels.delta.reference import reference
from pykittens.runtime import nvrtc
from tests import tolerance
from tests.kernels.checked import check_plan
from tests.kernels.host_functions import tensor_of
from tests.kernels.test_delta import DECAYS, given
from tests.runtime.c_programs import needs_compiler
from tests.tiers import halved

torch = pytest.importorskip("torch")
recurrence = pytest.importorskip("tests.delta_random").recurrence

BF16 = ml_dtypes.bfloat16
NAMES = ("q", "k", "v", "beta", "decay", "initial_state")


def gradients(arrays, gradient, state_gradient=None):
    """Those of all arrays that are given, in float64."""
    leaves = [
        None
        if (x := arrays.get(name)) is None
        # exp(-1000) is 0, as that of -inf, whose products are NaN.
        else torch.from_numpy(np.maximum(x.astype(np.float64), -1e3)).requires_grad_()
        for name in NAMES
    ]
    out, state = recurrence(*leaves)
    loss = (out * torch.from_numpy(gradient.astype(np.float64))).sum()
    if state_gradient is not None:
        loss = loss + (state * torch.from_numpy(state_gradient.astype(np.float64))).sum()
    own = [x for x in leaves if x is not None]
    return [x.numpy() for x in torch.autograd.grad(loss, own)]


def check(arrays, seed=1, states=True, **words):
    """All gradients, with a state before and a gradient of the state behind."""
    rng, v = np.random.default_rng(seed), arrays["v"]
    state = (*v.shape[:2], arrays["q"].shape[3], v.shape[3])
    more = {}
    if states:
        arrays = arrays | {"initial_state": rng.standard_normal(state).astype(np.float32)}
        more = {"state_gradient": rng.standard_normal(state).astype(np.float32)}
    gradient = rng.standard_normal(v.shape).astype(v.dtype)
    found = gated_delta_rule_backward(**arrays, gradient=gradient, **more, **words)
    for x, y in zip(found, gradients(arrays, gradient, **more), strict=True):
        assert x.shape == y.shape
        error = np.abs(x.astype(np.float64) - y).max()
        assert error <= 8 * tolerance.unit(v.dtype) * np.abs(y).max(), (x.shape, error)


@pytest.mark.parametrize(("length", "decay"), halved([1, 17, 64, 65, 150], DECAYS))
def test_any_length(length, decay):
    check(given(length=length, decay=decay))


@pytest.mark.parametrize(("d", "width"), [(16, 40), (72, 64), (128, 128), (256, 48), (64, 256)])
def test_any_widths(d, width):
    check(given(heads=1, length=70, d=d, width=width))


@pytest.mark.parametrize(
    ("length", "segments", "decay"), halved([(150, 2), (330, 3), (64, 2), (200, 7)], DECAYS)
)
def test_segments_are_one_sequence(length, segments, decay):
    """Also more segments than there are chunks."""
    check(given(length=length, decay=decay), segments=segments)
    check(given(length=length, decay=decay), segments=segments, states=False)


def test_segments_of_a_wide_state():
    check(given(heads=1, length=200, d=136, width=72), segments=3)


def test_heads_share_queries_and_keys():
    arrays = given(heads=6)
    check(arrays | {x: arrays[x][:, :2] for x in "qk"})


def test_without_states_and_in_float16():
    """Also with beta of that dtype, which its gradient has, too."""
    arrays = given(length=80)
    arrays |= {n: arrays[n].astype(np.float16) for n in (*"qkv", "beta")}
    check(arrays, states=False)
    found = gated_delta_rule_backward(**arrays, gradient=arrays["v"].copy())
    assert found[3].dtype == np.float16


@pytest.mark.parametrize("log", [-30.0, -1e30, -np.inf])
def test_no_decay_is_too_strong(log):
    arrays = given(length=130)
    arrays["decay"][...] = np.where(np.arange(130) % 40 == 39, np.float32(log), arrays["decay"])
    check(arrays)


def test_keys_may_be_all_equal_and_beta_0():
    arrays = given(length=100)
    arrays["k"][...] = arrays["k"][:, :, :1]
    arrays["beta"][:, :, ::3] = 0
    check(arrays)


def test_the_recurrence_is_the_reference():
    arrays = given(heads=2, length=9) | {"initial_state": np.ones((1, 2, 32, 32), np.float32)}
    found = recurrence(*(torch.from_numpy(arrays[n].astype(np.float64)) for n in NAMES))
    wanted = reference(**arrays, return_state=True)
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x.numpy(), y, rtol=1e-9, atol=1e-9)


def test_what_does_not_fit_is_refused():
    arrays = given(length=20)
    arrays |= {"gradient": arrays["v"].copy()}
    for words, message in (
        ({"state_gradient": np.zeros((1, 2, 32, 31), np.float32)}, "`state_gradient` must have"),
        ({"gradient": arrays["v"][:, :, :19]}, "`gradient` must have the shape"),
        ({"gradient": arrays["v"].astype(np.float16)}, "`gradient` must have the dtype"),
        ({"beta": arrays["beta"].astype(np.float64)}, "`beta` must be f32 or bf16"),
    ):
        with pytest.raises(ArgumentError, match=message):
            gated_delta_rule_backward(**arrays | words)
    wide = given(length=3, width=272)
    with pytest.raises(ArgumentError, match="width must be at most 256, not 272"):
        gated_delta_rule_backward(**wide, gradient=wide["v"].copy())


@needs_compiler
@pytest.mark.parametrize("decay", DECAYS)
def test_calls_of_a_form_compute_with_their_own_arrays(decay, emulated):
    for seed in range(2):
        arrays = given(length=70, decay=decay, seed=seed)
        arrays |= {x: arrays[x][:, :1] for x in "qk"}
        rng = np.random.default_rng(seed)
        gradient = rng.standard_normal(arrays["v"].shape).astype(BF16)
        last = rng.standard_normal((1, 2, 32, 32)).astype(np.float32)
        for function, words in (
            (gated_delta_rule, {"segments": 2, "return_state": True}),
            (gated_delta_rule_backward, {"gradient": gradient}),
            (
                gated_delta_rule_backward,
                {"gradient": gradient, "initial_state": last, "state_gradient": last.copy()},
            ),
        ):
            wanted = function(**arrays, **words)
            both = arrays | words
            both = {n: tensor_of(x) if isinstance(x, np.ndarray) else x for n, x in both.items()}
            for x, y in zip(function(**both), wanted, strict=True):
                assert x.tolist() == tensor_of(y).tolist()


@pytest.mark.parametrize(
    ("decay", "d", "width", "segments"),
    halved([("none", 72, 72), ("head", 72, 72), ("position", 136, 40)], [2, 1]),
)
def test_no_launch_has_a_fault(decay, d, width, segments):
    """Of several chunks, so that memory is written again; with all states, and heads that share."""
    arrays = given(heads=2, length=192 * segments - 30, d=d, width=width, decay=decay)
    arrays |= {x: arrays[x][:, :1] for x in "qk"}
    state = np.ones((1, 2, d, width), np.float32)
    plan = gated_delta_rule_backward.plan(
        **arrays,
        gradient=np.ones_like(arrays["v"]),
        initial_state=state,
        state_gradient=state.copy(),
        segments=segments,
    )
    check_plan(plan)


@pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
@pytest.mark.parametrize(
    ("arch", "d"),
    [
        pytest.param(arch, d, marks=pytest.mark.units if often else pytest.mark.soak)
        for arch, d, often in (
            ("sm_80", 64, True),
            ("sm_80", 192, False),
            ("sm_90a", 64, False),
            ("sm_90a", 192, True),
        )
    ],
)
def test_the_launches_compile(arch, d, monkeypatch):
    """Those of segments, too, with states in registers and in shared memory."""
    monkeypatch.setattr(settings, "target", lambda: arch)
    arrays = given(length=130, d=d, width=64)
    state = np.ones((1, 2, d, 64), np.float32)
    words = {"initial_state": state, "return_state": True, "segments": 2}
    gated_delta_rule.plan(**arrays, **words).compile(arch)
    words = {"gradient": arrays["v"], "initial_state": state, "segments": 2}
    gated_delta_rule_backward.plan(**arrays, **words).compile(arch)
