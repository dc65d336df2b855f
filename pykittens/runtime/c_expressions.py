"""Numbers that the host knows as C: extents, scalar arguments and what a kernel computes from them.

Integers are computed in int64, floats in f32. A kernel's integers are those of Python on the host, so the range of each
is followed, and what may leave int64 or divide by 0 stands behind a check.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pykittens.errors import LanguageError
from pykittens.ir.nodes import Call, Kernel
from pykittens.ir.values import Global, Scalar, Value
from pykittens.runtime.c_text import c_string, free_name
from pykittens.types.dtypes import DType, f32, int32

# The ends of int64, but for the least number: it has no negative, and no quotient by -1.
_INT64 = (1 - 2**63, 2**63 - 1)
_INT32, _EXTENTS = (-(2**31), 2**31 - 1), (0, 2**31 - 1)

# How tightly an operator binds. Comparisons are never chained, and && inside || has parentheses, as compilers ask.
ATOM, UNARY, TIMES, PLUS, COMPARISON, AND, OR, CHOICE = 9, 8, 7, 6, 5, 4, 3, 0
_OPERATORS = {
    "add": ("+", PLUS),
    "sub": ("-", PLUS),
    "mul": ("*", TIMES),
    "div": ("/", TIMES),
    "less": ("<", COMPARISON),
    "less_equal": ("<=", COMPARISON),
    "greater": (">", COMPARISON),
    "greater_equal": (">=", COMPARISON),
    "equal": ("==", COMPARISON),
    "not_equal": ("!=", COMPARISON),
    "logical_and": ("&&", AND),
    "logical_or": ("||", OR),
}
_BITS = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
_DIVISIONS = {"floor_div": "floor_div", "floor_mod": "floor_mod", "cdiv": "ceil_div"}
_CHOICES = {"maximum": "larger", "minimum": "smaller"}

_LONG = 100  # characters of an expression that gets a name of its own

Range = tuple[int, int]


@dataclass(frozen=True)
class Expression:
    """A number in C. binding: how tightly its outermost operator binds; range: of an int, None for others."""

    text: str
    binding: int
    range: Range | None

    def inside(self, binding: int) -> str:
        """The text as an operand of an operator that binds so tightly."""
        return self.text if self.binding >= binding else f"({self.text})"


class HostNumbers:
    """Writes host values as C. `lines` collects what must stand before an expression: named numbers and checks."""

    def __init__(self, kernel: Kernel, names: dict[str, str], taken: set[str]) -> None:
        self.kernel, self.taken = kernel, taken
        self.lines: list[str] = []
        self.known: dict[Value, Expression] = {}
        for param in kernel.params:
            name = names[param.name]
            if isinstance(param, Global):
                for axis, extent in enumerate(param.extents):
                    self.known[extent] = Expression(f"{name}->shape[{axis}]", ATOM, _EXTENTS)
            elif param.dtype.kind == "int":
                self.known[param] = Expression(f"(int64_t){name}", UNARY, _INT32)
            else:
                self.known[param] = Expression(name, ATOM, None)

    def __call__(self, value: object, dtype: DType = int32) -> Expression:
        """A host value, or a Python number that is a `dtype`, as C."""
        if not isinstance(value, Value):
            assert isinstance(value, bool | int | float)
            return _literal(value, dtype)
        if value not in self.known:
            made = self._computed(value)
            named = value.name or len(made.text) > _LONG
            self.known[value] = self._named(value, made) if named else made
        return self.known[value]

    def take_lines(self) -> list[str]:
        """The lines that have come together since they were last taken."""
        lines, self.lines = self.lines, []
        return lines

    def _named(self, value: Value, made: Expression) -> Expression:
        """A number that the user named, under that name."""
        stem = "condition" if value.dtype.kind == "bool" else "number"
        name = free_name(value.name or stem, self.taken)
        self.lines.append(f"const {_c_type(value.dtype)} {name} = {made.text};")
        return Expression(name, ATOM, made.range)

    def _computed(self, value: Value) -> Expression:
        call = value.source
        assert isinstance(value, Scalar), "the host knows scalars only"
        assert isinstance(call, Call), "a host value is computed from arguments"
        # A Python number takes the dtype of the operand beside it.
        chosen = value.dtype if call.op.name == "where" else None
        like = chosen or next(a.dtype for a in call.args.values() if isinstance(a, Value))
        operands = [a if isinstance(a, DType) else self(a, like) for a in call.args.values()]
        match call.op.name, operands:
            case ("where", [Expression() as condition, Expression() as a, Expression() as b]):
                text = f"{condition.inside(OR)} ? {a.inside(OR)} : {b.inside(OR)}"
                return Expression(text, CHOICE, _union(a.range, b.range))
            case ("neg", [Expression() as a]):
                return Expression(f"-{a.inside(ATOM)}", UNARY, _negated(a.range))
            case ("logical_not", [Expression() as a]):
                return Expression(f"!{a.inside(ATOM)}", UNARY, None)
            case (name, [Expression() as a, Expression() as b]) if name in _OPERATORS:
                return self._operator(name, a, b)
            case (name, [Expression() as a, Expression() as b]) if name in _DIVISIONS:
                return self._division(name, a, b)
            case (name, [Expression() as a, Expression() as b]) if name in _BITS:
                text = f"{a.inside(UNARY)} {_BITS[name]} {b.inside(UNARY)}"
                made = Expression(text, CHOICE, _power_of_two(a.range, b.range))
                return self._in_int64(made, f"({text}) != INT64_MIN")
            case (name, [Expression() as a, Expression() as b]) if name in _CHOICES:
                floats = "_float" if like.is_float else ""
                text = f"{_CHOICES[name]}{floats}({a.text}, {b.text})"
                return Expression(text, ATOM, _union(a.range, b.range))
            case (_, [Expression(range=range_) as a, DType() as to]) if range_ is not None:
                if to == f32:
                    return Expression(f"(float){a.inside(ATOM)}", UNARY, None)
                if to.kind == "int" and to.bits >= 32 and _within(range_, _ends(to.bits)):
                    return a
        raise LanguageError(
            f"{self.kernel.name}: a C program cannot compute `{call.op.name}` of its arguments on the host",
            loc=call.loc,
            help="pk.require, pk.static and the grid may use arithmetic, comparisons, & | ^, maximum, minimum, where",
        )

    def _operator(self, name: str, a: Expression, b: Expression) -> Expression:
        symbol, binding = _OPERATORS[name]
        # && and || group either way; of other operators only the left operand may be of the same kind.
        left = binding + 1 if binding == COMPARISON else binding
        right = binding if binding in (AND, OR) else binding + 1
        if binding == OR:
            left, right = (
                COMPARISON if e.binding == AND else OR for e in (a, b)
            )  # parentheses round &&
        text = f"{a.inside(left)} {symbol} {b.inside(right)}"
        if a.range is None or b.range is None or name not in ("add", "sub", "mul"):
            return Expression(text, binding, None)
        return self._in_int64(
            Expression(text, binding, _arithmetic(name, a.range, b.range)),
            f"fits((double){a.inside(ATOM)} {symbol} (double){b.inside(ATOM)})",
        )

    def _division(self, name: str, a: Expression, b: Expression) -> Expression:
        assert a.range is not None
        assert b.range is not None
        if b.range[0] <= 0 <= b.range[1]:
            what = c_string(
                f"{self.kernel.name}: a number is divided by `{shown(b.text)}`, which is 0"
            )
            self.lines.append(
                f"if ({b.inside(COMPARISON + 1)} == 0) return refuse(PK_RANGE, {what});"
            )
        most = max(abs(end) for end in (b.range if name == "floor_mod" else a.range))
        text = f"{_DIVISIONS[name]}({a.text}, {b.text})"
        return Expression(text, ATOM, (-most, most))

    def _in_int64(self, made: Expression, check: str) -> Expression:
        """The expression, behind a check that it stays inside int64 where that is not sure."""
        if made.range is None or _within(made.range, _INT64):
            return made
        what = c_string(f"{self.kernel.name}: `{shown(made.text)}` is outside the range of int64")
        self.lines.append(f"if (!({check})) return refuse(PK_RANGE, {what});")
        return Expression(made.text, made.binding, _INT64)


def _c_type(dtype: DType) -> str:
    return {"int": "int64_t", "float": "float", "bool": "bool"}[dtype.kind]


def _literal(value: bool | int | float, dtype: DType) -> Expression:
    if dtype.kind == "bool":
        return Expression("true" if value else "false", ATOM, None)
    if dtype.is_float:
        number = float(value)
        if math.isnan(number) or math.isinf(number):
            name = "NAN" if math.isnan(number) else "INFINITY"
            return Expression(f"-{name}" if number < 0 else name, UNARY, None)
        text = repr(float(f32.numpy.type(number)))
        text = text if "." in text or "e" in text else f"{text}.0"
        return Expression(f"{text}f", UNARY if number < 0 else ATOM, None)
    number = int(value)
    text = str(number) if _within((number, number), _INT32) else f"INT64_C({number})"
    return Expression(text, UNARY if number < 0 else ATOM, (number, number))


def _ends(bits: int) -> Range:
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _within(inner: Range, outer: Range) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _union(a: Range | None, b: Range | None) -> Range | None:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def _power_of_two(a: Range | None, b: Range | None) -> Range | None:
    """The least range of two's complement that has room for both."""
    both = _union(a, b)
    return both and _ends(max(both[0].bit_length(), both[1].bit_length()) + 1)


def _negated(a: Range | None) -> Range | None:
    return None if a is None else (-a[1], -a[0])


def _arithmetic(name: str, a: Range, b: Range) -> Range:
    match name:
        case "add":
            return a[0] + b[0], a[1] + b[1]
        case "sub":
            return a[0] - b[1], a[1] - b[0]
        case _:
            ends = [x * y for x in a for y in b]
            return min(ends), max(ends)


def shown(text: str) -> str:
    """An expression as the user writes it."""
    return text.replace("->", ".").replace("(int64_t)", "")
