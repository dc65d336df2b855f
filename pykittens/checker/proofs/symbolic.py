"""Formulas of a kernel's values, which hold for all arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pykittens.checker.proofs.formula import Formula, Quantity
from pykittens.errors import KernelError
from pykittens.ir.evaluate import definition
from pykittens.ir.nodes import Call, Grid, Kernel, Require, Sharing
from pykittens.ir.operators import OPERATORS
from pykittens.ir.structure import definitions
from pykittens.ir.text import Names
from pykittens.ir.values import Global, Scalar, Value
from pykittens.types.dtypes import int32


class Formulas:
    """The formulas of a kernel's values, as far as arguments, static extents and requirements tell."""

    def __init__(self, kernel: Kernel) -> None:
        self.names = Names()
        self.known: dict[Value, Formula] = {v: Formula.of(int(n)) for v, n in kernel.statics}
        self.found: dict[Value, Formula] = {}
        # Appended to the names of values that differ between the groups of the role.
        self.group = ""
        # The values that all groups see.
        self.outside = set(definitions(kernel.outside))
        for param in kernel.params:
            extents = param.extents if isinstance(param, Global) else ()
            for axis, extent in enumerate(extents):
                quantity = Quantity(f"{param.name}.shape[{axis}]", least=0)
                self.known.setdefault(extent, Formula.of(quantity))
        for node in kernel.body.nodes:
            match node:
                case Require():
                    self._equate(node.condition)
                case Grid() | Sharing():
                    for i in node.index:
                        self.known[i] = Formula.of(Quantity(self.names(i), least=0))
                case _:
                    pass
        self.found.clear()

    def _equate(self, condition: Any) -> None:
        """Take one name for two extents or arguments that a requirement says are equal."""
        call = definition(condition)
        if call is None:
            return
        sides = list(call.args.values())
        if call.op is OPERATORS["and"]:
            for side in sides:
                self._equate(side)
        elif call.op is OPERATORS["=="] and all(map(_is_whole, sides)):
            kept, named = (self.formula(side) for side in sides)
            plain = isinstance(sides[1], Scalar) and sides[1].source is None
            if named.constant is not None or (kept.constant is None and not plain):
                kept, named = named, kept
            for value in [v for v, f in self.known.items() if f == named]:
                self.known[value] = kept
            for side in sides:
                if isinstance(side, Scalar) and side.source is None:
                    self.known[side] = kept

    @contextmanager
    def bound(self, formulas: Mapping[Value, Formula], group: str | None = None) -> Iterator[None]:
        """Inside, these values have these formulas: the index of a loop, the number of a group."""
        before = self.known, self.found, self.group
        self.known, self.found = {**self.known, **formulas}, {}
        self.group = self.group if group is None else group
        yield
        self.known, self.found, self.group = before

    def formula(self, value: Any) -> Formula:
        """The formula of an int or a truth."""
        if not isinstance(value, Value):
            return Formula.of(int(value))
        if value in self.known:
            return self.known[value]
        if value not in self.found:
            self.found[value] = self._made(value)
        return self.found[value]

    def _made(self, value: Value) -> Formula:
        call = definition(value)
        if call is None or not all(map(_is_whole, call.args.values())):
            ours = self.group if value.block is not None and value not in self.outside else ""
            return Formula.of(_quantity(value, self.names(value) + ours))
        given = {name: self.formula(a) for name, a in call.args.items()}
        if all(f.constant is not None for f in given.values()):
            number = _evaluated(call, given)
            return Formula.of(_quantity(value, self.names(value)) if number is None else number)
        truths = all(map(_is_truth, call.args.values()))
        rules = _RULES | _RULES_OF_TRUTHS if truths else _RULES
        if (symbol := _symbol(call, rules)) in rules:
            return rules[symbol](*given.values())
        whole, rest = _divided(call, given)
        if whole.terms and all(f.constant is not None for f in rest.values()):
            return whole + Formula.of(_evaluated(call, rest) or 0)
        text = f"{call.op.name}({', '.join(map(str, rest.values()))})"
        return whole + Formula.of(_quantity(value, text, _least_of(call, rest)))

    def trips(self, start: Any, stop: Any, step: int) -> Formula:
        """The number of iterations of a loop over range(start, stop, step)."""
        first, end = self.formula(start), self.formula(stop)
        span, step = (end - first, step) if step > 0 else (first - end, -step)
        if span.constant is not None:
            return Formula.of(max(0, -(-span.constant // step)))
        if span.least is None or span.least < 0:
            inside = f"{span}" if step == 1 else f"cdiv({span}, {step})"
            return Formula.of(Quantity(f"max({inside}, 0)", least=0))
        if step == 1:
            return span
        return Formula.of(Quantity(f"cdiv({span}, {step})", least=-(-span.least // step)))


def _is_whole(arg: Any) -> bool:
    if isinstance(arg, Value):
        return isinstance(arg, Scalar) and arg.dtype.kind in ("int", "bool")
    return isinstance(arg, int)


def _is_truth(value: Any) -> bool:
    return isinstance(value, Scalar) and value.dtype.kind == "bool"


def _quantity(value: Value, name: str, least: int | None = None) -> Quantity:
    truth = _is_truth(value)
    return Quantity(name, 0 if truth else least, truth)


def _evaluated(call: Call, given: Mapping[str, Formula]) -> int | None:
    """The number a call gives for numbers; None where it is no int32, or a division by 0."""
    numbers = {n: f.constant for n, f in given.items()}
    args = {n: bool(numbers[n]) if _is_truth(a) else numbers[n] for n, a in call.args.items()}
    try:
        number = int(call.op.evaluate(args))
    except KernelError:
        return None
    return number if int32.represents(number) else None


_ONE = Formula.of(1)


def _above_zero(f: Formula) -> Formula:
    """The truth that a formula is more than 0."""
    if f.constant is not None:
        return Formula.of(int(f.constant > 0))
    if f.least is not None and f.least > 0:
        return _ONE
    opposite = (-f).least
    if opposite is not None and opposite >= 0:
        return Formula()
    # One text for a condition and its opposite: of f > 0 and 1 - f > 0, whose truths sum up to 1, the first of the two.
    other = _ONE - f
    if _simpler(other) < _simpler(f):
        return _ONE - Formula.of(Quantity(f"{other} > 0", least=0, is_truth=True))
    return Formula.of(Quantity(f"{f} > 0", least=0, is_truth=True))


def _simpler(f: Formula) -> tuple[bool, int, str]:
    text = str(f)
    return text.startswith("-"), len(text), text


def _same(a: Formula, b: Formula) -> Formula:
    difference = min(a - b, b - a, key=_simpler)
    if difference.constant is not None:
        return Formula.of(int(difference.constant == 0))
    return Formula.of(Quantity(f"{difference} == 0", least=0, is_truth=True))


_RULES: dict[str, Callable[..., Formula]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "neg": lambda a: -a,
    ">": lambda a, b: _above_zero(a - b),
    "<": lambda a, b: _above_zero(b - a),
    ">=": lambda a, b: _above_zero(a - b + _ONE),
    "<=": lambda a, b: _above_zero(b - a + _ONE),
    "==": _same,
    "!=": lambda a, b: _ONE - _same(a, b),
    "and": lambda a, b: a * b,
    "or": lambda a, b: a + b - a * b,
    "not": lambda a: _ONE - a,
}


_RULES_OF_TRUTHS = {"&": _RULES["and"], "|": _RULES["or"], "~": _RULES["not"]}


def _symbol(call: Call, symbols: Iterable[str]) -> str:
    return next((s for s in symbols if OPERATORS[s] is call.op), "")


def _divided(call: Call, given: dict[str, Formula]) -> tuple[Formula, dict[str, Formula]]:
    """What of a quotient is whole, and the operands that are left: (4 n + m) // 4 is n + m // 4."""
    (name, a), *others = given.items()
    by = others[0][1].constant if len(others) == 1 else None
    symbol = _symbol(call, ("cdiv", "//", "%"))
    if not symbol or by is None or by <= 0:
        return Formula(), given
    divisible = Formula(tuple((q, n) for q, n in a.terms if n % by == 0))
    whole = Formula() if symbol == "%" else divisible.over(by)
    return whole, {**given, name: a - divisible}


_BOUNDED = ("cdiv", "//", "%", "maximum", "minimum")


def _least_of(call: Call, given: Mapping[str, Formula]) -> int | None:
    """A lower bound of a quotient, a remainder or a maximum, where one follows from those of the operands."""
    bounds = [f.least for f in given.values()]
    known = [b for b in bounds if b is not None]
    by = list(given.values())[-1].constant or 0
    match _symbol(call, _BOUNDED):
        case "cdiv" if by > 0 and bounds[0] is not None:
            return -(-bounds[0] // by)
        case "//" if by > 0 and bounds[0] is not None:
            return bounds[0] // by
        case "%" if by > 0:
            return 0
        case "maximum" if known:
            return max(known)
        case "minimum" if len(known) == len(bounds):
            return min(known)
    return None
