"""Based linear attention beside all pairs of positions in float64: lengths, widths, divisions, segments, and states."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.kernels.linear import based_attention, based_attention_backward
from pykittens.kernels.linear.based.function import inputs
from pykittens.kernels.linear.based.reference import factors, features, reference
from tests import tolerance
from tests.kernels.checked import check_plan
from tests.tiers import halved


def given(heads=2, length=100, d=16, width=64, seed=0):
    return inputs(np.random.default_rng(seed), 1, heads, length, d, width)


def state_of(arrays, normalize):
    """The state of some positions before."""
    shape, rng = arrays["k"].shape, np.random.default_rng(1)
    k = rng.standard_normal((*shape[:2], 20, shape[3]))
    v = rng.standard_normal((*shape[:2], 20, arrays["v"].shape[3] + normalize))
    if normalize:
        v[..., -1] = 1
    return (features(k).swapaxes(2, 3) @ v).astype(np.float32)


def check(arrays, normalize=False, **words):
    """Outputs and states."""
    words = {"initial_state": state_of(arrays, normalize), "return_state": True} | words
    found = based_attention(**arrays, normalize=normalize, **words)
    words.pop("segments", None)
    wanted = reference(**arrays, normalize=normalize, **words)
    for x, y in zip(found, wanted, strict=True):
        assert x.shape == y.shape
        error = np.abs(x.astype(np.float64) - y).max()
        assert error <= 2 * tolerance.unit(arrays["v"].dtype) * np.abs(y).max()


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("length", [1, 17, 63, 64, 65, 200])
def test_any_length(length, normalize):
    check(given(length=length), normalize)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("d", "width"), [(1, 16), (5, 40), (15, 72), (24, 64), (32, 130)])
def test_any_widths(d, width, normalize):
    check(given(heads=1, length=70, d=d, width=width), normalize)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("segments", [2, 3, 5])
def test_segments_are_one_sequence(segments, normalize):
    check(given(length=330), normalize, segments=segments)


def test_without_states_and_in_float16():
    arrays = {n: x.astype(np.float16) for n, x in given().items()}
    for normalize in (False, True):
        found = based_attention(**arrays, normalize=normalize, scale=0.3)
        wanted = reference(**arrays, normalize=normalize, scale=0.3)
        assert np.abs(found - wanted).max() <= 2**-9 * np.abs(wanted).max()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sums_have_more_digits_and_range_than_the_dtype(dtype):
    """Those of a state of very many positions; without it, an output is that of the rounded weights."""
    arrays = {n: x.astype(dtype) for n, x in given(length=150).items()}
    before = np.zeros((1, 2, 153, 65), np.float32)
    before[..., -1, -1] = 3333333
    found = based_attention(
        **arrays, normalize=True, initial_state=before, return_weights=True, return_state=True
    )
    q, k = (arrays[x].astype(np.float64) for x in "qk")
    s = np.einsum("bhid,bhjd->bhij", q, k) / 4
    wanted = 3333333 + np.tril(1 + s + s * s / 2).sum(3)
    np.testing.assert_allclose(found[2], wanted, rtol=2**-17)
    np.testing.assert_allclose(found[1][..., -1, -1], 3333333 + 150)
    alone = based_attention(**arrays, normalize=True)
    # The sums of one position are the weight that is multiplied, but for eps.
    np.testing.assert_array_equal(alone[:, :, 0], arrays["v"][:, :, 0])


@pytest.mark.parametrize("seed", range(2))
def test_errors_are_no_larger_than_those_of_weights_in_the_dtype(seed):
    """The largest is at most 1.5 times that of all pairs of positions with weights in bf16 and f32 sums."""
    arrays = given(heads=1, length=300, seed=seed)
    bf16 = arrays["v"].dtype
    q, k, v = (arrays[x][0, 0].astype(np.float32) for x in "qkv")
    s = (q @ k.T).astype(bf16).astype(np.float32) / 4
    weights = np.tril(1 + s + s * s / 2)
    other = (weights.astype(bf16).astype(np.float32) @ v).astype(bf16).astype(np.float32)
    other = (other / weights.sum(1, keepdims=True)).astype(bf16)
    wanted = reference(**arrays, normalize=True)
    found = based_attention(**arrays, normalize=True, segments=2)
    errors = [np.abs(np.float64(x) - wanted).max() for x in (found, other[None, None])]
    assert errors[0] <= 1.5 * errors[1]


def test_features_have_the_products_of_the_series():
    q, k = np.random.default_rng(0).standard_normal((2, 9, 7))
    s = 0.3 * q @ k.T
    found = (features(q) * factors(7, 0.3)) @ features(k).T
    np.testing.assert_allclose(found, 1 + s + s * s / 2)


def test_what_does_not_fit_is_refused():
    arrays = given(length=20)
    for words, message in (
        ({"q": arrays["v"], "k": arrays["v"]}, "d must be from 1 to 32, not 64"),
        ({"initial_state": np.zeros((1, 2, 153, 65), np.float32)}, "`initial_state` must have"),
        ({"return_weights": True}, "`return_weights` goes with `normalize`"),
        ({"segments": 0}, "`segments` must be a positive int or None, not 0"),
    ):
        with pytest.raises(ArgumentError, match=message):
            based_attention(**arrays | words)
    with pytest.raises(ArgumentError, match="batch must be at least 1, not 0"):
        based_attention(**{n: x[:0] for n, x in arrays.items()})
    with pytest.raises(ArgumentError, match="`out` goes with `weights`, which is missing"):
        based_attention_backward(**arrays, gradient=arrays["v"].copy(), out=arrays["v"].copy())


@pytest.mark.parametrize(("segments", "normalize"), halved([1, 2], [False, True]))
def test_no_pass_has_a_fault(segments, normalize):
    """Of several chunks, so that memory is written again; with all states."""
    arrays, words = given(heads=1, length=330, d=5, width=40), {}
    before = state_of(arrays, normalize)
    how = {"initial_state": before, "segments": segments}
    if normalize:
        v = arrays["v"]
        words = {"out": v.copy(), "weights": np.ones(v.shape[:3], np.float32)}
    plans = [
        based_attention.plan(**arrays, **how, normalize=normalize, return_state=True),
        based_attention_backward.plan(
            **arrays, **how, **words, gradient=arrays["v"].copy(), state_gradient=before.copy()
        ),
    ]
    for plan in plans:
        check_plan(plan)
