"""Index arithmetic: an expression has the value of the operations, and known values are numbers."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykittens.targets.index import Index, least

NAMES = {"x": 7, "y": 3, "lane": 19}
CALLS = {"tile_row": lambda i: i + 5, "held": [2, 3, 5, 7, 11]}
TEXTS = ["x", "lane % 8", "x + 1", "(y - 1)", "x * 2 + y", "tile_row(x, )", "held[y + 1]", "x+1"]
leaves = st.integers(0, 9) | st.sampled_from(TEXTS)
OPERATORS = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod]


def value(text: str) -> int:
    """The value of an expression for these names."""
    return eval(text.replace("/", "//"), NAMES | CALLS)


def combined(inner):
    return st.tuples(st.sampled_from(OPERATORS), inner, inner)


@given(st.recursive(leaves, combined, max_leaves=8))
def test_an_expression_has_the_value_of_what_was_computed(tree):
    index, expected = built(tree)
    assert value(str(index)) == value(index.operand) == expected
    assert value(f"100 - {index.operand} * 2") == 100 - expected * 2
    if index.number is not None:
        assert str(index) == str(expected)


def built(tree):
    """The index of a tree and its value; quotients and remainders of positive numbers only, as in C++ they differ."""
    if not isinstance(tree, tuple):
        return Index(tree), tree if isinstance(tree, int) else value(tree)
    apply, (a, left), (b, right) = tree[0], *map(built, tree[1:])
    if apply in (operator.floordiv, operator.mod):
        right = abs(right) + 1
        return (apply(a, right), apply(left, right)) if left >= 0 else (a, left)
    return apply(a, b), apply(left, right)


def test_what_changes_nothing_is_left_out():
    i, warp = Index("i"), Index("warp")
    assert str(i * 1 + 0) == str(Index(0) + i) == str(Index(1) * i - 0) == str(i // 1) == "i"
    assert str((i // 1 * 1 + warp) * 16) == "(i + warp) * 16"
    assert (i * 0).number == (i % 1).number == (Index(0) * "w").number == 0
    assert str(Index("SCRATCH") + Index(0) * "SCRATCH_BYTES") == "SCRATCH"


def test_numbers_are_computed():
    assert str(Index(0) + 1 + 0) == "1"
    assert str(Index("smem") + Index(8) * 1024) == "smem + 8192"
    assert str(Index(100) // 8 % 5 * 2 - 5) == "-1"
    assert str(Index(2**16) * 2**15) == "65536 * 32768"  # C++ has its own way with what is no int
    assert (str(least(2048, 2048)), str(least("n", 1000))) == ("2048", "min(n, 1000)")


@pytest.mark.parametrize(
    ("text", "product"),
    [
        ("x", "x * 4"),
        ("((x + 1))", "(x + 1) * 4"),
        ("(a)(b)", "(a)(b) * 4"),
        ("(i64)rows[i + 1]", "(i64)rows[i + 1] * 4"),
        ("tile_row<64, 4>(i + 1, warp)", "tile_row<64, 4>(i + 1, warp) * 4"),
        ("a % b", "a % b * 4"),
        ("a < b ? a : b", "(a < b ? a : b) * 4"),
        ("a+b", "(a+b) * 4"),
        ("-a", "(-a) * 4"),
        ("a << 2", "(a << 2) * 4"),
        ('(f("(") + g(")"))', '((f("(") + g(")"))) * 4'),
    ],
)
def test_an_operand_has_the_parentheses_it_needs_and_no_more(text, product):
    assert str(Index(text) * 4) == product
    assert str(Index(4) * text) == (f"4 * ({text})" if text == "a % b" else f"4 * {product[:-4]}")


def test_the_order_of_the_rest_stays():
    a, b, c = map(Index, "abc")
    assert str(a + (b + c)) == "a + (b + c)"
    assert str(a + b - c + 1) == "a + b - c + 1"
    assert str(a - (b - c)) == "a - (b - c)"
    assert str(a * (b * c)) == "a * (b * c)"
    assert str(a * b // 4 % 2) == "a * b / 4 % 2"
