"""Linear attention with a gate for each channel beside its recurrence in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pykittens import settings
from pykittens.errors import ArgumentError
from pykittens.kernels.linear import gated_linear_attention, linear_attention_step
from pykittens.kernels.linear.gated import inputs
from pykittens.kernels.linear.reference import reference
from pykittens.kernels.linear.step import reference as step_reference
from tests import tolerance
from tests.kernels.checked import check_plan
from tests.kernels.host_functions import tensor_of
from tests.runtime.c_programs import needs_compiler
from tests.tiers import halved

BF16 = ml_dtypes.bfloat16


def given(batch=1, heads=2, length=100, d=32, width=32, seed=0):
    return inputs(np.random.default_rng(seed), batch, heads, length, d, width)


def check(arrays, **words):
    """The results are those of the recurrence; returns them."""
    v, d = arrays["v"], arrays["q"].shape[3]
    state = np.random.default_rng(1).standard_normal((*v.shape[:2], d, v.shape[3]))
    words = {"initial_state": state.astype(np.float32), "return_state": True} | words
    found = gated_linear_attention(**arrays, **words)
    words.pop("segments", None)
    for x, y in zip(found, reference(**arrays, **words), strict=True):
        assert x.shape == y.shape
        error = np.abs(x.astype(np.float64) - y).max()
        assert error <= 4 * tolerance.unit(v.dtype) * np.abs(y).max()
    return found


@pytest.mark.parametrize("length", [1, 17, 63, 64, 65, 200])
def test_any_length(length):
    check(given(length=length))


@pytest.mark.parametrize(
    ("d", "width"), [(16, 16), (17, 30), (48, 40), (64, 72), (80, 128), (128, 130), (256, 256)]
)
def test_any_widths(d, width):
    check(given(heads=1, length=70, d=d, width=width))


@pytest.mark.parametrize("segments", [2, 3, 5])
def test_segments_are_one_sequence(segments):
    arrays = given(length=330)
    found, one = check(arrays, segments=segments), check(arrays, segments=1)
    assert np.abs(found[1] - one[1]).max() <= 2**-15 * np.abs(one[1]).max()


@pytest.mark.parametrize("gates", [2, 3, 6])
def test_heads_share_queries_keys_and_gates(gates):
    """Gates may have the heads of q and k, those of v, or a number between."""
    arrays = given(heads=6)
    shared = {3: 1}.get(gates, 2)
    arrays |= {x: arrays[x][:, :shared] for x in "qk"}
    arrays["decay"] = arrays["decay"][:, :gates]
    check(arrays)
    check(arrays, segments=2)


def test_any_strides():
    """(batch, n, heads, d), and an array whose last axis is not contiguous."""
    arrays = given(heads=3)
    turned = {n: np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for n, x in arrays.items()}
    turned = {n: x.transpose(0, 2, 1, 3) for n, x in turned.items()}
    out = np.zeros((1, 100, 3, 32), BF16).transpose(0, 2, 1, 3)
    found = gated_linear_attention(**turned, out=out)
    assert found is out
    np.testing.assert_array_equal(out, gated_linear_attention(**arrays))
    twice = np.repeat(arrays["decay"], 2, axis=3)[..., ::2]
    np.testing.assert_array_equal(gated_linear_attention(**arrays | {"decay": twice}), out)


@pytest.mark.parametrize("log", [-0.0, -1.0, -30.0, -100.0, -1e30, -np.inf])
def test_no_decay_is_too_strong(log):
    """Of all channels and positions, of some, and beside weak ones."""
    arrays = given(length=150)
    weak = arrays["decay"]
    for is_strong in (True, np.arange(150)[:, None] % 20 == 19, np.arange(32) % 3 == 0):
        check(arrays | {"decay": np.where(is_strong, np.float32(log), weak)})


def test_dtypes():
    arrays = given()
    check(arrays | {n: arrays[n].astype(np.float16) for n in "qkv"})
    for dtype in (BF16, np.float16):
        check(arrays | {"decay": arrays["decay"].astype(dtype)})


def test_a_state_goes_on_where_it_was_left():
    arrays = given(length=150)
    whole, last = gated_linear_attention(**arrays, return_state=True)
    state, parts = None, []
    for part in (slice(0, 70), slice(70, 71), slice(71, 150)):
        some = {n: x[:, :, part] for n, x in arrays.items()}
        out, state = gated_linear_attention(**some, initial_state=state, return_state=True)
        parts.append(out)
    found = np.concatenate(parts, axis=2).astype(np.float32)
    assert np.abs(found - whole.astype(np.float32)).max() <= 2**-6 * np.abs(found).max()
    assert np.abs(state - last).max() <= 2**-15 * np.abs(last).max()


@pytest.mark.parametrize("segments", [1, 3])
def test_states_have_the_accuracy_of_f32(segments):
    arrays = given(length=200)
    _, state = gated_linear_attention(**arrays, return_state=True, segments=segments)
    _, wanted = reference(**arrays, return_state=True)
    assert np.abs(state - wanted).max() <= 2**-15 * np.abs(wanted).max()


@pytest.mark.parametrize("strength", [1.0, 16.0])
def test_errors_are_no_larger_than_those_of_products_in_bf16(strength):
    """The largest is at most 1.5 times that of the chunk form with states in f32, and products of bf16."""
    for seed in range(4):
        arrays = given(heads=1, length=256, d=64, width=64, seed=seed)
        arrays["decay"] *= np.float32(strength)
        wanted = reference(**arrays)
        errors = [
            np.abs(np.asarray(x, np.float64) - wanted).max()
            for x in (gated_linear_attention(**arrays), by_chunks(**arrays))
        ]
        assert errors[0] <= 1.5 * errors[1]


def by_chunks(q, k, v, decay):
    """The chunk form of one head in f32, with a state in f32; weights of values are rounded to bf16."""
    q, k, v, log = (x[0, 0].astype(np.float32) for x in (q, k, v, decay))
    state, out = np.zeros((q.shape[1], v.shape[1]), np.float32), np.zeros_like(v)
    for at in range(0, len(q), 64):
        a, b, c = (x[at : at + 64] for x in (q, k, v))
        sums = np.cumsum(log[at : at + 64], axis=0)
        kept = np.exp(np.minimum(sums[:, None] - sums, 0))
        pairs = np.tril(np.einsum("id,jd,ijd->ij", a, b, kept))
        out[at : at + 64] = pairs.astype(BF16).astype(np.float32) @ c + (a * np.exp(sums)) @ state
        state = np.exp(sums[-1])[:, None] * state + (b * np.exp(sums[-1] - sums)).T @ c
    return (out * np.float32(q.shape[1] ** -0.5)).astype(BF16)[None, None]


@pytest.mark.parametrize("dtype", [np.float32, BF16])
@pytest.mark.parametrize("gates", [2, 4])
def test_steps_are_a_sequence(gates, dtype):
    arrays = given(heads=4, length=6, d=72, width=136)
    arrays |= {x: arrays[x][:, :2] for x in "qk"}
    arrays["decay"] = arrays["decay"][:, :gates].astype(dtype)
    arrays["decay"][:, :, 3, ::3] = -np.inf
    wanted, last = reference(**arrays, return_state=True)
    state = np.zeros((1, 4, 72, 136), np.float32)
    for i in range(6):
        some = {n: x[:, :, i] for n, x in arrays.items()}
        one = step_reference(**some, state=state)
        out = linear_attention_step(**some, state=state).astype(np.float64)
        np.testing.assert_allclose(one, wanted[:, :, i], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(out, wanted[:, :, i], rtol=2**-7, atol=0.02)
    np.testing.assert_allclose(state, last, rtol=1e-5, atol=1e-5)


def test_what_does_not_fit_is_refused():
    arrays = given(heads=4)
    for words, message in (
        ({"decay": arrays["decay"][..., 0]}, "`decay` must have the shape"),
        ({"decay": arrays["decay"].astype(np.float64)}, "`decay` must be bf16, f16 or f32"),
        (
            {"decay": arrays["decay"][:, :3]},
            "3 heads of decay do not share 4 of q and k, or 4 of v",
        ),
        ({"q": arrays["q"][:, :3], "k": arrays["k"][:, :3]}, "4 heads of v do not share 3"),
        ({"segments": 0}, "`segments` must be a positive int"),
    ):
        with pytest.raises(ArgumentError, match=message):
            gated_linear_attention(**arrays | words)
    some = {n: x[:, :, 0] for n, x in arrays.items()} | {"decay": arrays["decay"][:, :3, 0]}
    with pytest.raises(ArgumentError, match="3 heads of decay do not share 4"):
        linear_attention_step(**some, state=np.zeros((1, 4, 32, 32), np.float32))


@needs_compiler
def test_calls_of_a_form_compute_with_their_own_arrays(emulated):
    pytest.importorskip("torch")
    for seed in range(2):
        arrays = given(length=70, seed=seed)
        for words in ({}, {"return_state": True}):
            wanted = gated_linear_attention(**arrays, **words)
            found = gated_linear_attention(**{n: tensor_of(x) for n, x in arrays.items()}, **words)
            pairs = zip(found, wanted, strict=True) if words else ((found, wanted),)
            for x, y in pairs:
                assert x.tolist() == tensor_of(y).tolist()


@pytest.mark.parametrize(("segments", "exact"), halved([1, 2], [False, True]))
def test_no_launch_has_a_fault(segments, exact):
    """Of several chunks a segment, so that memory is written again; with heads that share, and rows loaded twice."""
    d = 136 if exact else 72
    arrays = given(heads=2, length=330, d=d, width=40)
    arrays |= {x: arrays[x][:, :1] for x in ("q", "k", "decay")}
    before = np.ones((1, 2, d, 40), np.float32)
    plan = gated_linear_attention.plan(
        **arrays, segments=segments, initial_state=before, return_state=exact
    )
    check_plan(plan)


@pytest.mark.parametrize(
    ("arch", "d", "resident"),
    [("sm_80", 16, 3), ("sm_80", 64, 2), ("sm_89", 16, 2), ("sm_89", 128, 1), ("sm_90a", 128, 3)],
)
def test_as_many_blocks_share_a_multiprocessor_as_its_memory_holds(arch, d, resident, monkeypatch):
    """A kernel that takes more than was counted for it is refused when it is emitted."""
    monkeypatch.setattr(settings, "target", lambda: arch)
    arrays = given(heads=1, length=70, d=d, width=d)
    for words in ({}, {"return_state": True}):
        plan = gated_linear_attention.plan(**arrays, **words)
        step, memory = plan.steps[0], plan.memory()
        step.kernel.source(*(memory[n] for n in step.args), arch=arch, **step.constants)
        assert step.constants["resident"] == resident
