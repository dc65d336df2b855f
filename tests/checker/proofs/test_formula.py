"""Formulas: one text for what is equal, bounds that hold, and comparisons that are right for every value."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pykittens.checker.proofs.formula import Comparison, Formula, Quantity, compare

A, B = Quantity("a", least=0), Quantity("b", least=2)
C, D = Quantity("c", least=0, is_truth=True), Quantity("d", least=0, is_truth=True)
FREE = Quantity("free")


def value(formula: Formula, numbers: dict[Quantity, int]) -> int:
    """What a formula is for numbers in place of its quantities."""
    return sum(n * int(np.prod([numbers[q] for q in qs])) for qs, n in formula.terms)


@st.composite
def formulas(draw, quantities=(A, B, C, D)):
    leaf = st.one_of(
        st.integers(-3, 3).map(Formula.of), st.sampled_from(quantities).map(Formula.of)
    )
    made = draw(leaf)
    for _ in range(draw(st.integers(0, 5))):
        other, kind = draw(leaf), draw(st.sampled_from("+-*"))
        made = made + other if kind == "+" else made - other if kind == "-" else made * other
    return made


NUMBERS = [
    dict(zip((A, B, C, D), ns, strict=True))
    for ns in itertools.product((0, 1, 5), (2, 3), (0, 1), (0, 1))
]


@settings(max_examples=200, derandomize=True)
@given(formulas(), formulas())
def test_sums_and_products_are_those_of_numbers(f, g):
    for numbers in NUMBERS:
        x, y = value(f, numbers), value(g, numbers)
        assert value(f + g, numbers) == x + y
        assert value(f - g, numbers) == x - y
        assert value(f * g, numbers) == x * y


@settings(max_examples=300, derandomize=True)
@given(formulas(), formulas())
def test_comparisons_and_bounds_hold_for_all_numbers(f, g):
    pairs = [(value(f, n), value(g, n)) for n in NUMBERS]
    if f.least is not None:
        assert all(x >= f.least for x, _ in pairs)
    match compare(f, g):
        case Comparison.EQUAL:
            assert all(x == y for x, y in pairs)
        case Comparison.UNEQUAL:
            assert any(x != y for x, y in pairs)
            assert all(x >= y for x, y in pairs) or all(x <= y for x, y in pairs)


@settings(max_examples=100, derandomize=True)
@given(formulas(), formulas(), formulas())
def test_equal_formulas_are_one_text(f, g, h):
    assert str(f * (g + h) - h) == str(h * f - h + g * f)


@settings(max_examples=100, derandomize=True)
@given(formulas((A, B)), st.sampled_from((A, B)), st.integers(1, 3))
def test_what_is_multiplied_is_divided(f, q, n):
    by = Formula.of(q) * Formula.of(n)
    assert (f * by).divided(by) == f
    assert (f * by + Formula.of(1)).divided(by) is None
    assert f.divided(Formula.of(A) + Formula.of(B)) is None


def test_comparisons_that_can_be_made():
    a, b, c, free = (Formula.of(q) for q in (A, B, C, FREE))
    one = Formula.of(1)
    assert compare(a + b, b + a) is Comparison.EQUAL
    assert compare(a, a + one) is compare(a + b, a) is Comparison.UNEQUAL
    assert compare(a, a + a) is compare(a * b, a + a * c * b + a * b) is Comparison.UNEQUAL
    assert compare(one, c) is compare(a, a * c) is Comparison.UNEQUAL
    assert compare(a, b) is compare(free, free + free) is Comparison.UNKNOWN
    assert compare(c * b + (one - c), Formula()) is Comparison.UNEQUAL


def test_a_text_is_read_as_it_is_meant():
    a, b = Formula.of(A), Formula.of(B)
    assert str(Formula.of(3) - b + a * b) == "a * b - b + 3"
    assert str(Formula()) == "0"
    assert str(-Formula.of(C)) == "-(c)"
