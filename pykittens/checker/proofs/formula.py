"""Formulas of run-time values in a canonical form: equal formulas have equal text.

A formula is a sum of products of quantities with integer coefficients. Sums, differences, products and negations of
integers are expanded; any other expression, such as cdiv(n, 64), is a quantity. A product in which one quantity counts
the iterations of a loop stands for the sum of the other quantities over the iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import product
from math import prod

MOST_TRUTHS = 6  # conditions whose cases are enumerated


@dataclass(frozen=True, order=True)
class Quantity:
    """A number, named by its expression. `least` is a lower bound; a truth is 0 or 1."""

    name: str
    least: int | None = None
    is_truth: bool = False


@dataclass(frozen=True)
class Formula:
    """A sum: each term is a sorted product of quantities and a nonzero coefficient."""

    terms: tuple[tuple[tuple[Quantity, ...], int], ...] = ()

    @staticmethod
    def of(number: int | Quantity) -> Formula:
        """The formula of a number or of one quantity."""
        if isinstance(number, Quantity):
            return Formula((((number,), 1),))
        return Formula((((), int(number)),)) if number else Formula()

    @staticmethod
    def _summed(terms: Iterable[tuple[tuple[Quantity, ...], int]]) -> Formula:
        total: dict[tuple[Quantity, ...], int] = {}
        for quantities, factor in terms:
            total[quantities] = total.get(quantities, 0) + factor
        return Formula(tuple(sorted((q, n) for q, n in total.items() if n)))

    def __add__(self, other: Formula) -> Formula:
        return Formula._summed((*self.terms, *other.terms))

    def __neg__(self) -> Formula:
        return Formula(tuple((q, -n) for q, n in self.terms))

    def __sub__(self, other: Formula) -> Formula:
        return self + -other

    def __mul__(self, other: Formula) -> Formula:
        return Formula._summed(
            (_joined(a, b), n * m) for a, n in self.terms for b, m in other.terms
        )

    def over(self, divisor: int) -> Formula:
        """The formula divided by a common divisor of its coefficients."""
        return Formula(tuple((q, n // divisor) for q, n in self.terms))

    def divided(self, by: Formula) -> Formula | None:
        """The quotient by a formula of a single term; None if the division leaves a remainder."""
        if len(by.terms) != 1:
            return None
        ((divisors, divisor),) = by.terms
        terms = []
        for quantities, factor in self.terms:
            rest = list(quantities)
            for quantity in divisors:
                if quantity not in rest:
                    return None
                rest.remove(quantity)
            terms.append((tuple(rest), factor // divisor))
        quotient = Formula._summed(terms)
        return quotient if quotient * by == self else None

    @property
    def constant(self) -> int | None:
        """The value; None if it depends on a quantity."""
        if not self.terms:
            return 0
        ((quantities, factor), *others) = self.terms
        return factor if not quantities and not others else None

    @cached_property
    def least(self) -> int | None:
        """A lower bound, None if none is known; the cases of the conditions are enumerated."""
        truths = self.truths
        if len(truths) > MOST_TRUTHS:
            return None
        bounds = [
            self.given(dict(zip(truths, values, strict=True)))._bound()
            for values in product((False, True), repeat=len(truths))
        ]
        known = [b for b in bounds if b is not None]
        return min(known) if len(known) == len(bounds) else None

    def _bound(self) -> int | None:
        """A lower bound of a formula without conditions: the sum of the bounds of the terms."""
        bound = 0
        for quantities, factor in self.terms:
            leasts = [q.least for q in quantities if q.least is not None and q.least >= 0]
            if len(leasts) < len(quantities) or (quantities and factor < 0):
                return None
            bound += factor * prod(leasts)
        return bound

    @property
    def truths(self) -> tuple[Quantity, ...]:
        """The conditions it depends on."""
        return tuple(sorted({q for qs, _ in self.terms for q in qs if q.is_truth}))

    def given(self, truths: Mapping[Quantity, bool]) -> Formula:
        """The formula if these conditions are true or false."""
        return Formula._summed(
            (tuple(q for q in qs if q not in truths), n)
            for qs, n in self.terms
            if all(truths.get(q, True) for q in qs)
        )

    def __str__(self) -> str:
        text = ""
        # Positive terms first, then negative ones, then the constant.
        for quantities, factor in sorted(self.terms, key=lambda t: (not t[0], t[1] < 0)):
            size = [str(abs(factor))] if abs(factor) != 1 or not quantities else []
            names = [f"({q.name})" if q.is_truth else q.name for q in quantities]
            sign = "-" if factor < 0 else "+"
            text += f" {sign} " if text else "-" if factor < 0 else ""
            text += " * ".join([*size, *names])
        return text or "0"


def _joined(a: tuple[Quantity, ...], b: tuple[Quantity, ...]) -> tuple[Quantity, ...]:
    """The product of two products; a truth times itself is itself."""
    return tuple(sorted((*a, *(q for q in b if not q.is_truth or q not in a))))


class Comparison(Enum):
    """How two counts compare. UNEQUAL: one is never smaller than the other, and larger for some arguments."""

    EQUAL = "equal"
    UNEQUAL = "unequal"
    UNKNOWN = "unknown"


def compare(a: Formula, b: Formula) -> Comparison:
    """How two counts compare for all arguments."""
    difference = a - b
    if not difference.terms:
        return Comparison.EQUAL
    for one_way in (difference, -difference):
        if one_way.least is not None and one_way.least >= 0:
            return Comparison.UNEQUAL
    return Comparison.UNKNOWN
