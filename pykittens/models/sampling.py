"""The next token, by the logits of a model: the most likely token, or one that is drawn at random."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pykittens.errors import ArgumentError
from pykittens.ir.numbers import is_int, number
from pykittens.ir.values import describe

Array = np.ndarray[Any, Any]
# A seed, None for another draw each time, or a generator that goes on where an earlier text has left it.
Seed = int | np.random.Generator | None


def check_sampling(temperature: float, top_p: float, seed: Seed) -> None:
    """Raise an error unless tokens can be drawn with these."""
    if not (_is_real(temperature) and 0 <= temperature < math.inf):
        raise ArgumentError(
            f"`temperature` must be a number of at least 0, not {describe(temperature)}",
            help="0 takes the most likely token, 1 draws with the probabilities of the model",
        )
    if not (_is_real(top_p) and 0 < top_p <= 1):
        raise ArgumentError(
            f"`top_p` must be a number above 0 and at most 1, not {describe(top_p)}",
            help="1 draws from all tokens, 0.9 from the most likely ones that have 90% together",
        )
    if seed is None or isinstance(seed, np.random.Generator):
        return
    if not is_int(number(seed)) or seed < 0:
        raise ArgumentError(f"`seed` must be an int of at least 0 or None, not {describe(seed)}")


def _is_real(value: object) -> bool:
    return isinstance(number(value), int | float) and not isinstance(value, bool)


class Sampler:
    """Chooses tokens: the most likely one at temperature 0, else one drawn from `kept(logits, temperature, top_p)`.

    The same seed draws the same tokens.
    """

    def __init__(self, temperature: float = 0.0, top_p: float = 1.0, seed: Seed = None) -> None:
        check_sampling(temperature, top_p, seed)
        self.temperature, self.top_p = temperature, top_p
        self._random = np.random.default_rng(seed)

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken, of several the one with the lowest index."""
        return self.temperature == 0

    def __call__(self, logits: Array) -> int:
        """The next token."""
        if not np.isfinite(most := logits.max()):
            raise ArgumentError(
                f"the largest logit of the model is {most}", help="are its weights finite numbers?"
            )
        if self.is_greedy:
            return int(logits.argmax())
        tokens, probabilities = kept(logits, self.temperature, self.top_p)
        sums = probabilities.cumsum()
        return int(tokens[np.searchsorted(sums / sums[-1], self._random.random(), side="right")])


def kept(logits: Array, temperature: float, top_p: float) -> tuple[Array, Array]:
    """Tokens and their probabilities: the smallest set of softmax(logits / temperature) that has at least top_p.

    Of equally likely tokens, those with lower indices are kept. The probabilities add up to those of the set, not to 1.
    """
    # In place, because a step of a small model takes no longer than this.
    probabilities = logits.astype(np.float64)
    probabilities -= probabilities.max()
    with np.errstate(over="ignore", under="ignore"):  # a low temperature leaves probabilities of 0
        probabilities /= temperature
        np.exp(probabilities, out=probabilities)
        probabilities /= probabilities.sum()
    if top_p == 1:
        return np.arange(len(probabilities)), probabilities
    # The others have at most 1 - top_p together, and to sort them takes several milliseconds.
    least = min((1 - top_p) / len(probabilities), probabilities.max())
    tokens = np.flatnonzero(probabilities >= least)
    tokens = tokens[np.argsort(-probabilities[tokens], kind="stable")]
    count = 1 + int(np.searchsorted(probabilities[tokens].cumsum(), top_p))
    tokens = tokens[:count]
    return tokens, probabilities[tokens]
