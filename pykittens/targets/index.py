"""Integers in an emitted program: what is known when it is written is computed here, so that the text reads easily."""

from __future__ import annotations

import re
from functools import lru_cache
from operator import add, floordiv, mod, mul, sub

# How tightly the operators of an expression bind; an operand of another operator needs parentheses below its own.
_ATOM, _PRODUCT, _SUM, _OTHER = 3, 2, 1, 0
_RANKS = {"*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT, "+": _SUM, "-": _SUM}
_APPLIED = {"*": mul, "/": floordiv, "%": mod, "+": add, "-": sub}
# What is in brackets, template arguments among them, is part of one operand.
_BRACKETS = re.compile(r"\([^()]*\)|\[[^][]*\]|(?<=\w)<[^<>]*>")
_OPERAND = re.compile(r"[\w.]+|-\d+")
_LIMIT = 2**31  # of an int: what is beyond is left to C++


class Index:
    """A number, or an expression of C++ that is one when the program runs.

    Sums, differences, products, quotients and remainders of numbers are numbers; what changes nothing is left out. The
    order in which the rest is computed stays. Quotients and remainders are of numbers that are not negative.
    """

    def __init__(self, what: int | str | Index) -> None:
        self.text, self.number, self._rank = _parsed(str(what))

    def __str__(self) -> str:
        return self.text

    @property
    def operand(self) -> str:
        """The expression as an operand of any operator."""
        return self._in(_ATOM)

    def __add__(self, other: int | str | Index) -> Index:
        return _joined(self, "+", Index(other))

    def __sub__(self, other: int | str | Index) -> Index:
        return _joined(self, "-", Index(other))

    def __mul__(self, other: int | str | Index) -> Index:
        return _joined(self, "*", Index(other))

    def __floordiv__(self, by: int) -> Index:
        return _joined(self, "/", Index(by))

    def __mod__(self, by: int) -> Index:
        return _joined(self, "%", Index(by))

    def _in(self, rank: int) -> str:
        """The expression as an operand where what binds less tightly than `rank` needs parentheses."""
        return self.text if self._rank >= rank else f"({self.text})"


def _joined(a: Index, operator: str, b: Index) -> Index:
    match a.number, operator, b.number:
        case int(x), _, int(y) if abs(known := _APPLIED[operator](x, y)) < _LIMIT:
            return Index(known)
        case (0, "*", _) | (_, "*", 0) | (_, "%", 1):
            return Index(0)
        case (0, "+", _) | (1, "*", _):
            return b
        case (_, "+" | "-", 0) | (_, "*" | "/", 1):
            return a
    rank = _RANKS[operator]
    return Index(f"{a._in(rank)} {operator} {b._in(rank + 1)}")


def least(a: int | str | Index, b: int | str | Index) -> Index:
    """The smaller of two."""
    a, b = Index(a), Index(b)
    if a.number is not None and b.number is not None:
        return Index(min(a.number, b.number))
    return Index(f"min({a}, {b})")


def _flat(text: str) -> str:
    """An expression with `_` for each pair of brackets and what is in it."""
    while (shorter := _BRACKETS.sub("_", text)) != text:
        text = shorter
    return text


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[str, int | None, int]:
    """An expression without parentheses round all of it, the number that it is, and how tightly it binds."""
    if '"' in text or "'" in text:
        return text, None, _OTHER  # brackets in a string are none
    while (flat := _flat(text)) == "_" and text.startswith("("):
        text = text[1:-1]
    number = int(text) if re.fullmatch(r"-?\d+", text) else None
    operands = flat.split(" ")
    if not all(_OPERAND.fullmatch(x) for x in operands[::2]) or len(operands) % 2 == 0:
        return text, number, _OTHER  # neither a sum nor a product
    ranks = (_RANKS.get(operator, _OTHER) for operator in operands[1::2])
    return text, number, min(ranks, default=_ATOM)
