"""Tokens follow a prompt until an end token, a limit, or the end of the model's cache."""

from __future__ import annotations

import time

import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.models.generate import generate
from pykittens.models.sampling import kept
from tests.models.fakes import FakeModel, chain


@pytest.fixture
def model():
    return FakeModel(chain([5, 6, 7, 8, 9]))


@pytest.fixture
def random_model():
    rng = np.random.default_rng(0)
    return FakeModel(rng.standard_normal((40, 40)).astype(np.float32), ends=())


def test_the_most_likely_tokens_follow_until_an_end(model):
    generation = generate(model, [1, 2, 5])
    assert [*generation] == [6, 7, 8, 9]
    assert generation.stopped == "end"
    assert model.prompts == [[1, 2, 5]]
    assert model.steps == [(6, 3), (7, 4), (8, 5), (9, 6)]


def test_greedy_tokens_are_those_with_the_largest_logits(random_model):
    tokens = [*generate(random_model, [3], limit=20)]
    for token, following in zip([3, *tokens], tokens, strict=False):
        assert following == random_model.table[token].argmax()


def test_of_equal_logits_the_first_token_is_taken():
    table = np.zeros((9, 9))
    table[:, [4, 2, 7]] = 1
    assert [*generate(FakeModel(table), [1], limit=3)] == [2, 2, 2]


def test_a_limit_ends_the_text_without_another_step(model):
    generation = generate(model, [5], limit=2)
    assert [*generation] == [6, 7]
    assert generation.stopped == "limit"
    assert generation.count == 2
    assert model.steps == [(6, 1)]


@pytest.mark.parametrize("length", [1, 4, 5])
def test_a_full_cache_ends_the_text(length):
    model = FakeModel(chain([7, 7]), capacity=5)
    generation = generate(model, [7] * length)
    assert len([*generation]) == 5 - length + 1
    assert generation.stopped == "capacity"
    assert [position for _, position in model.steps] == [*range(length, 5)]


def test_an_end_may_be_the_first_token(model):
    generation = generate(model, [9])
    assert [*generation] == []
    assert (generation.stopped, generation.count, generation.rate) == ("end", 0, None)


def test_an_end_in_the_last_position_is_an_end():
    model = FakeModel(chain([5, 6]), capacity=2)
    generation = generate(model, [5])
    assert [*generation] == [6]
    assert generation.stopped == "end"


def test_other_ends_may_be_given(model):
    assert [*generate(model, [5], ends=[8])] == [6, 7]
    assert [*generate(model, [5], ends=(), limit=6)] == [6, 7, 8, 9, 0, 0]


def test_nothing_is_computed_before_a_token_is_asked_for(model):
    generation = generate(model, [5])
    assert model.prompts == []
    assert next(generation) == 6
    assert (model.prompts, model.steps) == ([[5]], [])
    assert generation.stopped is None


def test_a_seed_generates_the_same_text(random_model):
    def text(seed):
        return [*generate(random_model, [1], limit=25, temperature=1.5, top_p=0.9, seed=seed)]

    assert text(3) == text(3)
    assert text(3) != text(4)


def test_drawn_tokens_are_among_those_that_are_kept(random_model):
    last = 1
    for token in generate(random_model, [1], limit=30, temperature=1.0, top_p=0.3, seed=0):
        assert token in kept(random_model.table[last], 1.0, 0.3)[0]
        last = token


def test_a_tiny_top_p_is_greedy(random_model):
    greedy = [*generate(random_model, [1], limit=20)]
    assert [*generate(random_model, [1], limit=20, temperature=9.0, top_p=1e-9)] == greedy


def test_the_time_of_the_prompt_and_of_steps_is_kept(model, monkeypatch):
    clock = iter([10.0, 10.5, 20.0, 20.25, 30.0, 30.25, 40.0, 40.5, 50.0, 51.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    generation = generate(model, [5])
    assert generation.rate is None
    assert len([*generation]) == 4
    assert generation.prompt_seconds == 0.5
    assert generation.step_seconds == 2
    assert generation.steps == 4
    assert generation.rate == 2


def test_tokens_of_numpy_are_tokens(model):
    generation = generate(model, np.array([1, 5]))
    assert [*generation] == [6, 7, 8, 9]
    assert model.prompts == [[1, 5]]
    assert type(model.prompts[0][0]) is int


@pytest.mark.parametrize(
    ("tokens", "options", "text"),
    [
        ([], {}, "the prompt is empty"),
        ([1] * 33, {}, "the prompt has 33 tokens, and the cache of the model has 32 positions"),
        (
            [1, 300],
            {},
            "a token must be an int from 0 to 299; token 1 of the prompt is 300",
        ),
        ([-1], {}, "a token must be an int from 0 to 299; token 0 of the prompt is -1"),
        ([1, True], {}, "a token must be an int from 0 to 299; token 1 of the prompt is True"),
        ("ab", {}, "a token must be an int from 0 to 299; token 0 of the prompt is 'a'"),
        ([1], {"limit": 0}, "`limit` must be an int of at least 1 or None, not 0"),
        ([1], {"limit": 2.5}, "`limit` must be an int of at least 1 or None, not 2.5"),
        ([1], {"temperature": -1}, "`temperature` must be a number of at least 0, not -1"),
        ([1], {"top_p": 2}, "`top_p` must be a number above 0 and at most 1, not 2"),
    ],
)
def test_bad_arguments_are_refused_by_the_call(model, tokens, options, text):
    with pytest.raises(ArgumentError) as error:
        generate(model, tokens, **options)
    assert error.value.message == text
    assert error.value.loc.file == __file__
    assert model.prompts == []
