"""Tokens are drawn with the probabilities of a softmax in float64, cut to the most likely tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.models.sampling import Sampler, check_sampling, kept

LOGITS = np.array([1.0, -2.0, 3.0, 0.5, 3.0, -math.inf, 2.5], np.float32)


def softmax(logits, temperature):
    powers = [math.exp(float(x) / temperature) for x in logits]
    return np.array([p / math.fsum(powers) for p in powers])


def smallest_set(probabilities, top_p):
    """Tokens, the most likely first, until they have top_p together."""
    tokens, sums = [], 0.0
    for token in sorted(range(len(probabilities)), key=lambda t: (-probabilities[t], t)):
        if sums >= top_p:
            break
        tokens.append(token)
        sums += probabilities[token]
    return tokens


def test_at_temperature_0_the_most_likely_token_is_taken_of_several_the_first():
    sampler = Sampler()
    assert sampler.is_greedy
    assert [sampler(LOGITS) for _ in range(5)] == [2] * 5


@pytest.mark.parametrize("temperature", [0.5, 1, 3])
@pytest.mark.parametrize("top_p", [0.3, 0.6, 0.95, 1])
def test_tokens_come_as_often_as_they_are_likely(temperature, top_p):
    probabilities = softmax(LOGITS, temperature)
    tokens = [*range(len(LOGITS))] if top_p == 1 else smallest_set(probabilities, top_p)
    expected = np.zeros(len(LOGITS))
    expected[tokens] = probabilities[tokens]
    expected /= expected.sum()
    draws = 20000
    sampler = Sampler(temperature, top_p, seed=1)
    counts = np.bincount([sampler(LOGITS) for _ in range(draws)], minlength=len(LOGITS))
    possible = expected > 0
    assert counts[~possible].sum() == 0
    expected *= draws
    distance = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    freedom = possible.sum() - 1
    # The mean and five standard deviations of a chi-squared distribution.
    assert distance <= freedom + 5 * math.sqrt(2 * freedom)


def test_the_smallest_set_of_tokens_is_kept():
    rng = np.random.default_rng(0)
    for _ in range(200):
        logits = (rng.standard_normal(50) * rng.uniform(0, 4)).astype(np.float32)
        temperature, top_p = rng.uniform(0.2, 2), rng.uniform(0.01, 0.999)
        tokens, probabilities = kept(logits, temperature, top_p)
        expected = softmax(logits, temperature)
        assert [*tokens] == smallest_set(expected, top_p)
        np.testing.assert_allclose(probabilities, expected[tokens], rtol=1e-12)


def test_of_equally_likely_tokens_those_with_lower_indices_are_kept():
    tokens, probabilities = kept(np.zeros(8, np.float32), 1.0, 0.5)
    assert [*tokens] == [0, 1, 2, 3]
    assert [*probabilities] == [1 / 8] * 4


def test_a_tiny_top_p_takes_the_most_likely_token():
    for top_p in (1e-300, 1e-9, 0.01):
        sampler = Sampler(5.0, top_p, seed=0)
        assert {sampler(LOGITS) for _ in range(50)} == {2}
        for count in (1, 3, 7, 1000):  # equally likely tokens, whose probabilities are rounded
            assert Sampler(0.7, top_p)(np.full(count, 3.3, np.float32)) < max(1, count * top_p)


def test_top_p_1_keeps_all_tokens():
    tokens, probabilities = kept(LOGITS, 1.0, 1)
    assert [*tokens] == [*range(len(LOGITS))]
    np.testing.assert_allclose(probabilities, softmax(LOGITS, 1), rtol=1e-12)


def test_top_p_just_below_1_keeps_all_that_rounding_distinguishes():
    tokens, _ = kept(np.zeros(1000, np.float32), 1.0, math.nextafter(1, 0))
    assert len(tokens) >= 999


@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 1e-3])
def test_a_temperature_near_0_takes_one_of_the_most_likely_tokens(temperature):
    sampler = Sampler(temperature, seed=3)
    assert {sampler(LOGITS) for _ in range(50)} == {2, 4}


def test_large_logits_do_not_overflow():
    large = np.array([3e38, -3e38, 3e38], np.float32)
    assert {Sampler(0.5, seed=s)(large) for s in range(20)} == {0, 2}


def test_a_seed_draws_the_same_tokens():
    def drawn(seed):
        sampler = Sampler(1.0, 0.9, seed)
        return [sampler(LOGITS) for _ in range(30)]

    assert drawn(7) == drawn(7) == drawn(np.random.default_rng(7))
    assert drawn(7) != drawn(8)
    assert drawn(None) != drawn(None)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_refused(bad, temperature):
    with pytest.raises(ArgumentError, match=f"the largest logit of the model is {bad}"):
        Sampler(temperature)(np.array([0, bad, 1], np.float32))
    with pytest.raises(ArgumentError, match="the largest logit of the model is -inf"):
        Sampler(temperature)(np.full(3, -math.inf, np.float32))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ((-0.1, 1.0, None), "`temperature` must be a number of at least 0, not -0.1"),
        ((math.nan, 1.0, None), "`temperature` must be a number of at least 0, not nan"),
        ((math.inf, 1.0, None), "`temperature` must be a number of at least 0, not inf"),
        (("1", 1.0, None), "`temperature` must be a number of at least 0, not '1'"),
        ((1.0, 0, None), "`top_p` must be a number above 0 and at most 1, not 0"),
        ((1.0, 1.1, None), "`top_p` must be a number above 0 and at most 1, not 1.1"),
        ((1.0, math.nan, None), "`top_p` must be a number above 0 and at most 1, not nan"),
        ((1.0, True, None), "`top_p` must be a number above 0 and at most 1, not True"),
        ((1.0, 1.0, -1), "`seed` must be an int of at least 0 or None, not -1"),
        ((1.0, 1.0, 0.5), "`seed` must be an int of at least 0 or None, not 0.5"),
    ],
)
def test_bad_options_are_refused(options, text):
    for function in (Sampler, check_sampling):
        with pytest.raises(ArgumentError) as error:
            function(*options)
        assert error.value.message == text


def test_numbers_of_numpy_are_numbers():
    check_sampling(np.float32(0.5), np.float64(0.9), np.int64(3))
