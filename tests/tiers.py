"""Which cases of a table the default tier runs: the first of each kind, half of all combinations, or all pairs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import pytest


def sampled(
    cases: Iterable[Any], kind: Callable[[Any], Hashable], rest: Any = pytest.mark.units
) -> list[Any]:
    """Parameters, a tuple's elements for each case; all except the first of each kind are in the tier `rest`."""
    cases = list(cases)
    chosen = _first(cases, kind)
    return [
        pytest.param(*(c if isinstance(c, tuple) else (c,)), marks=() if c in chosen else rest)
        for c in cases
    ]


def sampled_together(
    cases: Iterable[Any], kind: Callable[[Any], Hashable], rest: Any = pytest.mark.units
) -> list[Any]:
    """Two parameters, for a test that takes many cases: the first of each kind, and all others in the tier `rest`."""
    cases = list(cases)
    chosen = _first(cases, kind)
    others = [c for c in cases if c not in chosen]
    return [pytest.param(chosen, id="one of a kind"), pytest.param(others, id="others", marks=rest)]


def halved(*axes: Sequence[Any], rest: Any = pytest.mark.soak) -> list[Any]:
    """Parameters for all combinations of the values of axes, half of which are in the tier `rest`.

    A value that is a tuple is several parameters. The places of those that stay add up to even numbers, so that with
    three axes or more every two values of two axes meet.
    """
    found = []
    for chosen in itertools.product(*map(enumerate, axes)):
        values = [x for _, v in chosen for x in (v if isinstance(v, tuple) else (v,))]
        marks = rest if sum(place for place, _ in chosen) % 2 else ()
        found.append(pytest.param(*values, marks=marks))
    return found


def paired(*axes: Sequence[Any], rest: Any = pytest.mark.soak) -> list[Any]:
    """Parameters for all combinations of the values of axes, of which a few stay: every two values of two axes meet.

    A value that is a tuple is several parameters. All others are in the tier `rest`.
    """
    places = list(itertools.product(*(range(len(axis)) for axis in axes)))
    pairs = {chosen: set(itertools.combinations(enumerate(chosen), 2)) for chosen in places}
    kept, left = set(), set().union(*pairs.values())
    while left:
        best = max(places, key=lambda chosen: len(pairs[chosen] & left))
        kept.add(best)
        left -= pairs[best]
    found = []
    for chosen in places:
        values = [axis[place] for axis, place in zip(axes, chosen, strict=True)]
        flat = [x for v in values for x in (v if isinstance(v, tuple) else (v,))]
        found.append(pytest.param(*flat, marks=() if chosen in kept else rest))
    return found


def _first(cases: list[Any], kind: Callable[[Any], Hashable]) -> list[Any]:
    return list({kind(case): case for case in reversed(cases)}.values())
