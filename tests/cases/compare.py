"""Comparisons, `where` and logic on bools."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import bool_
from tests.cases.arithmetic import NUMBERS, Table, table_cases
from tests.cases.core import Case

COMPARISONS: Table = {
    "less": (lambda a, b, c: a < b, lambda a, b, c: a < b),
    "less_equal": (lambda a, b, c: a <= b, lambda a, b, c: a <= b),
    "greater": (lambda a, b, c: a > b, lambda a, b, c: a > b),
    "greater_equal": (lambda a, b, c: a >= b, lambda a, b, c: a >= b),
    "equal": (lambda a, b, c: a == b, lambda a, b, c: a == b),
    "not_equal": (lambda a, b, c: a != b, lambda a, b, c: a != b),
}
CHOICE: Table = {
    "where": (lambda a, b, c: pk.where(a < b, b, c), lambda a, b, c: np.where(a < b, b, c)),
}


@pk.kernel
def truths(x, y, both, either, one, none, chosen):
    pk.grid(1)
    a, b = (pk.load(t[0], rows=64, cols=32) for t in (x, y))
    pk.store(both[0], pk.logical_and(a, b) == (a & b))
    pk.store(either[0], pk.logical_or(a, b) & (a | b))
    pk.store(one[0], pk.logical_xor(a, b) | (a ^ b))
    pk.store(none[0], pk.logical_not(a) & ~b)
    pk.store(chosen[0], pk.where(a, b, ~b))


@pk.kernel(warps=1)
def truths_of_vectors(x, y, both, either, one, none, chosen):
    pk.grid(1)
    a, b = (pk.load(t, cols=77) for t in (x, y))
    pk.store(both, pk.logical_and(a, b))
    pk.store(either, a | b)
    pk.store(one, a != b)
    pk.store(none, ~(a | b))
    pk.store(chosen, pk.where(a, b, True))


def _truths(kernel, shape, meaning) -> Case:
    return Case(
        f"map-truths-{'x'.join(map(str, shape))}",
        ("logical_and", "logical_or", "logical_xor", "logical_not", "where")
        + ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"),
        kernel,
        lambda rng: [rng.random(shape) < 0.5 for _ in range(2)],
        ((shape, bool_),) * 5,
        meaning,
    )


CASES = [
    *table_cases("compare", COMPARISONS, NUMBERS, to=bool_),
    *table_cases("where", CHOICE, NUMBERS),
    _truths(
        truths,
        (64, 32),
        lambda a, b: [np.ones_like(a), a | b, a ^ b, ~a & ~b, np.where(a, b, ~b)],
    ),
    _truths(truths_of_vectors, (77,), lambda a, b: [a & b, a | b, a ^ b, ~(a | b), ~a | b]),
]
