"""Which of the cases of a table the default tier runs: the first of each kind."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
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


def _first(cases: list[Any], kind: Callable[[Any], Hashable]) -> list[Any]:
    return list({kind(case): case for case in reversed(cases)}.values())
