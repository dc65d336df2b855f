"""Hedgehog attention beside all pairs of positions in float64: lengths, widths, maps, segments, and states."""

from __future__ import annotations

import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.kernels.linear import hedgehog_attention
from pykittens.kernels.linear.hedgehog.function import inputs
from pykittens.kernels.linear.hedgehog.reference import features, reference
from tests import tolerance
from tests.kernels.checked import check_plan


def given(heads=2, length=100, d=32, width=40, count=16, seed=0):
    return inputs(np.random.default_rng(seed), 1, heads, length, d, width, count)


def state_of(arrays):
    """The state of some positions before."""
    shape, rng = arrays["k"].shape, np.random.default_rng(1)
    k = rng.standard_normal((*shape[:2], 20, shape[3]))
    v = rng.standard_normal((*shape[:2], 20, arrays["v"].shape[3] + 1))
    v[..., -1] = 1
    of_k = features(k, arrays["key_map"].astype(np.float64))
    return (of_k.swapaxes(2, 3) @ v).astype(np.float32)


def check(arrays, **words):
    """Outputs and states."""
    words = {"return_state": True} | words
    found = hedgehog_attention(**arrays, **words)
    words.pop("segments", None)
    for x, y in zip(found, reference(**arrays, **words), strict=True):
        assert x.shape == y.shape
        error = np.abs(x.astype(np.float64) - y).max()
        assert error <= 2 * tolerance.unit(arrays["v"].dtype) * np.abs(y).max()


@pytest.mark.parametrize("length", [1, 17, 64, 65, 128, 129, 200, 256, 270])
def test_any_length(length):
    arrays = given(length=length)
    check(arrays)
    check(arrays, initial_state=state_of(arrays))


@pytest.mark.parametrize(
    ("d", "width", "count"), [(1, 16, 1), (24, 130, 24), (72, 64, 64), (128, 128, 64)]
)
def test_any_widths(d, width, count):
    arrays = given(heads=1, length=210, d=d, width=width, count=count)
    check(arrays, initial_state=state_of(arrays))


@pytest.mark.parametrize("segments", [2, 3, 5])
@pytest.mark.parametrize("length", [384, 400])
def test_segments_are_one_sequence(length, segments):
    arrays = given(length=length)
    check(arrays, segments=segments)
    check(arrays, segments=segments, initial_state=state_of(arrays))


def test_without_factors_and_in_float16():
    arrays = given(length=200)
    factors = arrays.pop("factors")
    arrays = {n: x.astype(np.float16) for n, x in arrays.items()}
    check(arrays, scale=0.4)
    factors[:] = [[1], [0]]  # a sliding window alone
    check(arrays, factors=factors)


def test_scores_may_be_large():
    arrays = given(length=200)
    arrays["q"] *= 30
    check(arrays)


def test_a_constant_shift_of_values_shifts_results():
    arrays = given(length=200)
    arrays["v"][...] = 3
    assert (hedgehog_attention(**arrays).astype(np.float32) == 3).all()


def test_what_does_not_fit_is_refused():
    arrays = given(length=20)
    wide = given(length=3, d=144)
    many = given(length=3, count=65)
    state = np.zeros((1, 2, 32, 40), np.float32)
    for words, message in (
        (wide, "d must be from 1 to 128, not 144"),
        (many, "features must be from 1 to 64, not 65"),
        (arrays | {"initial_state": state}, "`initial_state` must have the shape"),
        (arrays | {"factors": np.ones((2, 3), np.float32)}, "`factors` must have the shape"),
        (arrays | {"key_map": arrays["key_map"].astype(np.float16)}, "`key_map` must have the dt"),
        (arrays | {"segments": -1}, "`segments` must be a positive int or None, not -1"),
    ):
        with pytest.raises(ArgumentError, match=message):
            hedgehog_attention(**words)


@pytest.mark.parametrize("width", [40, 72])
@pytest.mark.parametrize("segments", [1, 2])
def test_no_pass_has_a_fault(segments, width):
    """Of several chunks, so that memory is written again; with all states and of two groups."""
    arrays = given(heads=1, length=390, width=width)
    how = {"initial_state": state_of(arrays), "segments": segments, "return_state": True}
    plan = hedgehog_attention.plan(**arrays, **how)
    check_plan(plan)
