"""Causal convolutions beside float64: lengths, channels, taps, states, strides, and what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import ArgumentError
from pykittens.kernels.causal_conv import causal_conv, inputs, reference, rows_of
from tests import tolerance

BF16 = ml_dtypes.bfloat16


def given(length=50, channels=72, taps=4, dtype="bf16", batch=2):
    return inputs(np.random.default_rng(0), batch, length, channels, taps, dtype)


def check(arrays, **words):
    found, wanted = causal_conv(**arrays, **words), reference(**arrays, **words)
    unit = tolerance.unit(arrays["x"].dtype)
    assert np.abs(found.astype(np.float64) - wanted).max() <= unit * np.abs(wanted).max() + 1e-6
    return found


@pytest.mark.parametrize("activation", ["", "silu"])
@pytest.mark.parametrize("taps", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("length", [1, 2, 7, 16, 17, 70])
def test_any_length_and_taps(length, taps, activation):
    check(given(length, taps=taps), activation=activation)


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("channels", [1, 63, 128, 513])
def test_any_channels(channels, dtype):
    arrays = given(20, channels, dtype=dtype)
    check(arrays)
    del arrays["bias"]
    check(arrays)


@pytest.mark.parametrize("length", [1, 2, 3, 40])
def test_a_sequence_goes_on_with_its_state(length):
    arrays = given(60)
    x = arrays.pop("x")
    whole = check(arrays | {"x": x})
    state, parts = None, []
    for start in (0, length):
        some = x[:, :length] if start == 0 else x[:, length:]
        out, state = causal_conv(some, **arrays, initial_state=state, return_state=True)
        parts.append(out)
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)
    np.testing.assert_array_equal(state, x[:, -3:])


def test_any_strides():
    arrays = given(30)
    turned = np.ascontiguousarray(arrays["x"].transpose(0, 2, 1)).transpose(0, 2, 1)
    wide = np.repeat(arrays["x"], 2, axis=1)[:, ::2]
    for x in (turned, wide):
        np.testing.assert_array_equal(causal_conv(**arrays | {"x": x}), causal_conv(**arrays))


def test_few_rows_are_cut_so_that_many_blocks_run():
    assert rows_of({"batch": 1, "channels": 512, "n": 1000}, 132) == 16
    assert rows_of({"batch": 8, "channels": 4096, "n": 65536}, 132) == 256


def test_what_does_not_fit_is_refused():
    arrays = given(20)
    for words, message in (
        ({"weight": np.zeros((72, 9), BF16)}, "`weight` must have 2 to 8 taps, not 9"),
        ({"weight": np.zeros((71, 4), BF16)}, "`weight` must have the shape"),
        ({"activation": "relu"}, "`activation` must be"),
        ({"initial_state": np.zeros((2, 4, 72), BF16)}, "`initial_state` must have the shape"),
        ({"x": arrays["x"][:, :0]}, "`x` must have elements"),
    ):
        with pytest.raises(ArgumentError, match=message):
            causal_conv(**arrays | words)


def test_no_launch_has_a_fault():
    plan = causal_conv.plan(**given(), initial_state=np.ones((2, 3, 72), BF16), return_state=True)
    memory, (step,) = plan.memory(), plan.steps
    report = pk.check(step.kernel, *[memory[n] for n in step.args], **step.constants)
    assert report.ok, str(report)
