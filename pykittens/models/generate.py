"""Text generation: the tokens that follow those of a prompt, one decode step of a model after another."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from pykittens.errors import ArgumentError
from pykittens.ir.numbers import is_int, number
from pykittens.ir.values import describe
from pykittens.models.sampling import Sampler, Seed

Stop = Literal["end", "limit", "capacity"]


class Described(Protocol):
    """The part of a model's configuration that generation reads."""

    @property
    def vocabulary(self) -> int:
        """The number of tokens."""

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end a text."""


class Model(Protocol):
    """A loaded model with a cache of `capacity` positions."""

    @property
    def config(self) -> Described:
        """Its configuration."""

    @property
    def capacity(self) -> int:
        """The number of positions of its cache."""

    def prefill(self, tokens: Sequence[int]) -> object:
        """Compute with the tokens of the positions from 0."""

    def step(self, token: int, position: int) -> int:
        """Compute with one more token; returns the most likely next token."""

    def logits(self) -> np.ndarray[Any, Any]:
        """The logits after the last token, in f32."""


def generate(
    model: Model,
    tokens: Sequence[int],
    *,
    limit: int | None = None,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: Seed = None,
    ends: Sequence[int] | None = None,
) -> Generation:
    """The tokens that follow a prompt, an iterator that computes each when it is asked for.

    It stops before an end token, which is not among its tokens, after `limit` tokens, or if the cache of the model is
    full. A prompt that the model cannot take is refused by the call, before anything is computed.

    tokens: the prompt. temperature: 0 takes the most likely token, of several the one with the lowest index; above, a
    token is drawn from softmax(logits / temperature), cut to the smallest set whose probability is at least top_p.
    seed: the same seed draws the same tokens. ends: the end tokens; those of the model's configuration if not given.
    """
    check_limit(limit)
    sampler = Sampler(temperature, top_p, seed)
    prompt = check_prompt(tokens, model.config.vocabulary, model.capacity)
    return Generation(
        model, prompt, limit, sampler, {*(model.config.ends if ends is None else ends)}
    )


class Generation(Iterator[int]):
    """Tokens as they are generated, with the seconds that they took.

    prompt: its tokens. count: of the tokens so far. stopped: "end", "limit" or "capacity", None before. The first token
    comes with the prompt, in `prompt_seconds`; each later one by a step, `steps` of them in `step_seconds`.
    """

    def __init__(
        self, model: Model, prompt: list[int], limit: int | None, sampler: Sampler, ends: set[int]
    ) -> None:
        self.prompt = prompt
        self.count = self.steps = 0
        self.prompt_seconds = self.step_seconds = 0.0
        self.stopped: Stop | None = None
        self._tokens = self._generated(model, limit, sampler, ends)

    def __next__(self) -> int:
        return next(self._tokens)

    @property
    def rate(self) -> float | None:
        """Steps a second, None if there was no step."""
        return self.steps / self.step_seconds if self.step_seconds else None

    def _generated(
        self, model: Model, limit: int | None, sampler: Sampler, ends: set[int]
    ) -> Iterator[int]:
        start = time.perf_counter()
        model.prefill(self.prompt)
        token = sampler(model.logits())
        self.prompt_seconds = time.perf_counter() - start
        for position in range(len(self.prompt), model.capacity + 1):
            if token in ends:
                self.stopped = "end"
                return
            self.count += 1
            if self.count == limit:
                self.stopped = "limit"
            elif position == model.capacity:
                self.stopped = "capacity"
            yield token
            if self.stopped:
                return
            start = time.perf_counter()
            greedy = model.step(token, position)
            token = greedy if sampler.is_greedy else sampler(model.logits())
            self.steps += 1
            self.step_seconds += time.perf_counter() - start


def check_limit(limit: int | None) -> None:
    """Raise an error unless the limit is None or at least one token."""
    if limit is not None and (not is_int(number(limit)) or limit < 1):
        raise ArgumentError(f"`limit` must be an int of at least 1 or None, not {describe(limit)}")


def check_prompt(tokens: Sequence[int], vocabulary: int, capacity: int) -> list[int]:
    """The tokens of a prompt as integers; raises an error unless a model with this vocabulary and cache takes them."""
    prompt = [number(token) for token in tokens]
    if not prompt:
        raise ArgumentError("the prompt is empty", help="a model needs at least one token")
    for place, token in enumerate(prompt):
        if not is_int(token) or not 0 <= token < vocabulary:
            raise ArgumentError(
                f"a token must be an int from 0 to {vocabulary - 1}; "
                f"token {place} of the prompt is {describe(token)}",
                help="is the tokenizer that of the model?",
            )
    if len(prompt) > capacity:
        raise ArgumentError(
            f"the prompt has {len(prompt)} tokens, and the cache of the model has {capacity} positions",
            help="load the model with a larger capacity; `pykittens generate` has the option --capacity",
        )
    return prompt
