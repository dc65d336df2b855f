"""Causal convolutions beside float64: lengths, channels, taps, states, strides, and what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.kernels.arrays import Arrays
from pykittens.kernels.causal_conv import call, causal_conv, sequences
from pykittens.kernels.causal_conv.call import span_of
from pykittens.kernels.causal_conv.function import inputs
from pykittens.kernels.causal_conv.reference import reference
from tests import tolerance
from tests.kernels.checked import check_plan
from tests.tiers import halved

BF16 = ml_dtypes.bfloat16
BOTH = pytest.mark.parametrize("channels_first", [False, True])


def given(length=50, channels=72, taps=4, dtype="bf16", batch=2, channels_first=False):
    rng = np.random.default_rng(0)
    return inputs(rng, batch, length, channels, taps, dtype, channels_first)


def state_of(arrays, sequences=2, seed=1):
    """A random state."""
    channels, taps = arrays["weight"].shape
    shape = (sequences, taps - 1, channels)
    if arrays.get("channels_first"):
        shape = (sequences, channels, taps - 1)
    return np.random.default_rng(seed).standard_normal(shape).astype(arrays["x"].dtype)


def check(arrays, **words):
    words = arrays | {"return_state": True} | words
    found, wanted = causal_conv(**words), reference(**words)
    unit = max(tolerance.unit(arrays["x"].dtype), 2.0**-22)  # of sums in f32
    for y, exact in zip(found, wanted, strict=True):
        assert y.shape == exact.shape
        error = np.abs(y.astype(np.float64) - exact).max()
        assert error <= unit * np.abs(exact).max() + 1e-6
    return found[0]


@pytest.mark.parametrize(
    ("length", "taps", "activation"),
    halved([1, 2, 7, 16, 17, 70], [2, 3, 4, 5, 8], ["", "silu"]),
)
def test_any_length_and_taps(length, taps, activation):
    check(given(length, taps=taps), activation=activation)


@pytest.mark.parametrize(("length", "taps"), halved([1, 3, 256, 257, 1000, 1100], [2, 3, 4, 8]))
def test_lines_of_any_length_and_taps(length, taps):
    arrays = given(length, 6, taps, channels_first=True)
    check(arrays, activation="silu")
    check(arrays, initial_state=state_of(arrays))


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("channels", [1, 63, 128, 513])
def test_any_channels(channels, dtype):
    arrays = given(20, channels, dtype=dtype)
    check(arrays, activation="silu")
    del arrays["bias"]
    check(arrays)


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_lines_of_any_dtype(dtype):
    arrays = given(300, 5, dtype=dtype, channels_first=True)
    del arrays["bias"]
    check(arrays)


@BOTH
@pytest.mark.parametrize("length", [1, 2, 3, 40])
def test_a_sequence_goes_on_with_its_state(length, channels_first):
    arrays, axis = given(60, channels_first=channels_first), 2 if channels_first else 1
    x = arrays.pop("x")
    whole = check(arrays | {"x": x})
    state, parts = None, []
    for some in np.split(x, [length], axis=axis):
        out, state = causal_conv(some, **arrays, initial_state=state, return_state=True)
        parts.append(out)
    np.testing.assert_array_equal(np.concatenate(parts, axis=axis), whole)
    np.testing.assert_array_equal(state, np.split(x, [57], axis=axis)[1])


@BOTH
def test_steps_of_one_position_are_a_sequence(channels_first):
    arrays, axis = given(9, channels_first=channels_first), 2 if channels_first else 1
    state = state_of(arrays)
    whole = check(arrays, initial_state=state)
    x = arrays.pop("x")
    for i, some in enumerate(np.split(x, 9, axis=axis)):
        out, state = causal_conv(some, **arrays, initial_state=state, return_state=True)
        np.testing.assert_array_equal(out, np.split(whole, 9, axis=axis)[i])


@BOTH
@pytest.mark.parametrize("ends", [[0, 60], [0, 1, 1, 3, 40, 60], [0, 0, 33, 34, 50, 60, 60]])
def test_packed_sequences_do_not_see_one_another(ends, channels_first):
    arrays = given(60, 8, batch=1, channels_first=channels_first)
    words = {"ends": np.array(ends, np.int32), "activation": "silu"}
    check(arrays, **words)
    check(arrays, **words, initial_state=state_of(arrays, len(ends) - 1))


def test_more_sequences_than_are_looked_through_at_a_time(monkeypatch):
    monkeypatch.setattr(sequences, "RUN", 32)
    lengths = np.random.default_rng(0).integers(0, 4, 80)
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    check(given(int(ends[-1]), 8, batch=1), ends=ends)


@BOTH
def test_any_strides(channels_first):
    arrays = given(30, channels_first=channels_first)
    turned = np.ascontiguousarray(arrays["x"].transpose(0, 2, 1)).transpose(0, 2, 1)
    wide = np.repeat(arrays["x"], 2, axis=1)[:, ::2]
    for x in (turned, wide):
        np.testing.assert_array_equal(causal_conv(**arrays | {"x": x}), causal_conv(**arrays))


def test_rows_and_lines_are_the_same():
    arrays = given(300, 7)
    lines = arrays | {"x": arrays["x"].swapaxes(1, 2), "channels_first": True}
    found = causal_conv(**lines).swapaxes(1, 2).astype(np.float32)
    np.testing.assert_allclose(found, causal_conv(**arrays).astype(np.float32), atol=2**-6)


def test_blocks_fill_the_gpu():
    arrays = Arrays("causal_conv", x=np.zeros(1))
    for sizes, of_rows, of_lines in (
        ((1, 512, 1000), 16, 1024),
        ((8, 4096, 4096), 256, 4096),
        ((3, 3000, 5001), 80, 5120),
        ((8, 4096, 65536), 608, 32768),
    ):
        arrays.dims |= dict(zip(("batch", "channels", "n"), sizes, strict=True))
        assert (span_of(arrays, False, 5), span_of(arrays, True, 6)) == (of_rows, of_lines)
        assert span_of(arrays, False, 5, most=64) <= min(of_rows, 64)


def stages_of(plan):
    """The stages of the first launch of a plan."""
    return plan.steps[0].constants["stages"]


@pytest.fixture
def long_blocks(monkeypatch):
    """Blocks of several rounds, which small problems do not have."""
    monkeypatch.setattr(call, "SPANS", (4,))


@pytest.mark.parametrize(
    ("length", "taps", "channels_first"),
    halved([80, 200, 4096, 5120, 5125, 12000], [2, 4, 8], [False, True]),
)
def test_rounds_of_stages(length, taps, channels_first, long_blocks):
    arrays = (
        given(length, 3, taps, channels_first=True)
        if channels_first
        else given(length % 999, 72, taps)
    )
    assert stages_of(causal_conv.plan(**arrays)) == 2
    check(arrays, activation="silu")


@BOTH
@pytest.mark.parametrize("length", [4160, 4163])
def test_rounds_of_stages_have_no_fault(length, channels_first, long_blocks):
    arrays = given(length, 2, channels_first=True) if channels_first else given(length % 79, 72)
    check_plan(causal_conv.plan(**arrays, activation="silu", return_state=True))


def test_blocks_of_one_stage_load_it_themselves():
    assert stages_of(causal_conv.plan(**given(40, 72))) == 0
    assert stages_of(causal_conv.plan(**given(515, 6, channels_first=True))) == 0


def test_the_copy_engine_moves_aligned_elements_of_one_sequence(long_blocks):
    lines, rows = given(515, 6, channels_first=True), given(40, 72)
    assert stages_of(causal_conv.plan(**lines)) == 2
    ends = np.array([0, 40], np.int32)
    apart = np.repeat(lines["x"], 2, axis=1)[:, ::2]
    for arrays in (
        lines | {"x": apart},
        lines | {"initial_state": state_of(lines)},
        given(40, 71),
        given(40, 72, dtype="f32"),
        rows | {"x": rows["x"][:1], "ends": ends},
    ):
        assert stages_of(causal_conv.plan(**arrays)) == 0


def moved(x):
    """The array, which starts at no multiple of 16 bytes."""
    memory = np.zeros(x.size + 9, x.dtype)
    place = next(i for i in range(9) if (memory.ctypes.data + i * x.itemsize) % 16)
    memory[place : place + x.size] = x.reshape(-1)
    return memory[place : place + x.size].reshape(x.shape)


def test_lines_of_memory_at_any_address(long_blocks):
    arrays = given(515, 6, channels_first=True)
    arrays["x"] = moved(arrays["x"])
    assert stages_of(causal_conv.plan(**arrays)) == 0
    check(arrays, activation="silu")


@pytest.mark.parametrize("length", [1, 7, 1023, 1025, 2051, 6001])
def test_lines_at_any_address_end_where_others_begin(length, long_blocks):
    arrays = given(length, 5, channels_first=True)
    exact = reference(**arrays, activation="silu")
    arrays["x"][:, 1::2] = np.nan
    found = causal_conv(**arrays, activation="silu")[:, ::2].astype(np.float64)
    assert np.abs(found - exact[:, ::2]).max() <= tolerance.unit(BF16) * np.abs(exact).max()


def test_what_does_not_fit_is_refused():
    arrays = given(20)
    one = arrays | {"x": arrays["x"][:1]}
    for words, message in (
        ({"weight": np.zeros((72, 9), BF16)}, "`weight` must have 2 to 8 taps, not 9"),
        ({"weight": np.zeros((71, 4), BF16)}, "`weight` must have the shape"),
        ({"activation": "relu"}, "`activation` must be"),
        ({"initial_state": np.zeros((2, 4, 72), BF16)}, "`initial_state` must have the shape"),
        ({"channels_first": True}, "`weight` must have the shape"),
        ({"x": arrays["x"][:, :0]}, "`x` must have elements"),
        ({"ends": np.zeros(3, np.int32)}, "with `ends` the batch of `x` must be 1, not 2"),
        ({"x": one["x"], "ends": np.zeros(1, np.int32)}, "`ends` must have where"),
        ({"x": one["x"], "ends": np.zeros(3, np.int64)}, "`ends` must be int32"),
    ):
        with pytest.raises(ArgumentError, match=message):
            causal_conv(**arrays | words)


@BOTH
@pytest.mark.parametrize("packed", [False, True])
def test_no_launch_has_a_fault(packed, channels_first):
    arrays = given(2200 if channels_first else 50, 6, batch=1, channels_first=channels_first)
    words = {"initial_state": state_of(arrays, 2 if packed else 1), "return_state": True}
    if packed:
        words["ends"] = np.array([0, 20, 50], np.int32)
    plan = causal_conv.plan(**arrays, **words)
    check_plan(plan)


def test_lines_at_any_address_have_no_fault():
    arrays = given(515, 6, batch=2, channels_first=True)
    check_plan(causal_conv.plan(**arrays, activation="silu", return_state=True))
