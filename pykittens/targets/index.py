"""Integer expressions of an emitted program; known numbers are folded, so that the text is easy to read."""

from __future__ import annotations

import re
from functools import lru_cache
from operator import add, floordiv, mod, mul, sub

# The precedence of operators; an operand whose operator has lower precedence needs parentheses.
_ATOM, _PRODUCT, _SUM, _OTHER = 3, 2, 1, 0
_RANKS = {"*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT, "+": _SUM, "-": _SUM}
_APPLIED = {"*": mul, "/": floordiv, "%": mod, "+": add, "-": sub}
# Brackets and their contents, template arguments included, are part of one operand.
_BRACKETS = re.compile(r"\([^()]*\)|\[[^][]*\]|(?<=\w)<[^<>]*>")
_OPERAND = re.compile(r"[\w.]+|-\d+")
_LIMIT = 2**31  # of an int; C++ computes larger results


class Index:
    """A number, or a C++ expression of an integer.

    Sums, differences, products, quotients and remainders of numbers are folded, and operations without an effect are
    omitted; the other operations keep their order. Operands of quotients and remainders must not be negative.
    """

    def __init__(self, value: int | str | Index) -> None:
        self.text, self.number, self._rank = _parsed(str(value))

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
        """The expression as an operand, in parentheses if its precedence is below `rank`."""
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
    """An expression with `_` for each pair of brackets and its contents."""
    while (shorter := _BRACKETS.sub("_", text)) != text:
        text = shorter
    return text


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[str, int | None, int]:
    """An expression without enclosing parentheses, its value if it is a number, and its precedence."""
    if '"' in text or "'" in text:
        return text, None, _OTHER  # brackets in a string do not count
    while (flat := _flat(text)) == "_" and text.startswith("("):
        text = text[1:-1]
    number = int(text) if re.fullmatch(r"-?\d+", text) else None
    operands = flat.split(" ")
    if not all(_OPERAND.fullmatch(x) for x in operands[::2]) or len(operands) % 2 == 0:
        return text, number, _OTHER  # neither a sum nor a product
    ranks = (_RANKS.get(operator, _OTHER) for operator in operands[1::2])
    return text, number, min(ranks, default=_ATOM)
