"""Host values as C expressions: extents, scalar arguments and numbers computed from them.

Integers are computed in int64, floats in f32. Python's integers have no range, so an operation that may leave int64 or
divide by 0 is checked before its result is used.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pykittens.aot.text import c_string, template
from pykittens.errors import LanguageError
from pykittens.ir.evaluate import definition
from pykittens.ir.nodes import Call, Kernel
from pykittens.ir.values import Global, Value
from pykittens.ops.scalars import INTEGER
from pykittens.targets.names import free_name
from pykittens.targets.source import number
from pykittens.types.dtypes import DType, f32, int32

# An operation is spelled as on the device, provided that numbers.c defines every function of the spelling.
_DEFINED = set(
    re.findall(r"^(?:UNUSED static int64_t|#define) (\w+)\(", template("numbers.c"), re.MULTILINE)
)
_CHECKED = set(re.findall(r"(?:CHECKED\(|checked_)(\w+)[,(]", template("numbers.c")))
_C_TYPES = {"int": "int64_t", "float": "float", "bool": "bool"}
# Operands that need no parentheses: names, extents, numbers that are not negative, calls.
_OPERAND = re.compile(r"[\w.]+((->|\.)shape\[\d\])?|\w+\([^()]*\)")
_LONG = 100  # characters of an expression that gets a name of its own


class Expression(NamedTuple):
    """A number in C, and as an error message shows it."""

    text: str
    shown: str


class HostNumbers:
    """Writes host values as C. `lines` collects the statements that must precede an expression."""

    def __init__(self, kernel: Kernel, names: dict[str, str], taken: set[str]) -> None:
        self.kernel, self.taken = kernel, taken
        self.lines: list[str] = []
        self.known: dict[Value, Expression] = {}
        for param in kernel.params:
            name = names[param.name]
            if isinstance(param, Global):
                for axis, extent in enumerate(param.extents):
                    place = f"shape[{axis}]"
                    self.known[extent] = Expression(f"{name}->{place}", f"{name}.{place}")
            else:
                self.known[param] = Expression(name, name)

    def __call__(self, value: object, dtype: DType = int32) -> Expression:
        """A host value, or a Python number that is a `dtype`, as C."""
        if not isinstance(value, Value):
            assert isinstance(value, bool | int | float)
            text = number(value, dtype)
            return Expression(text, text)
        if value not in self.known:
            self.known[value] = self._computed(value)
        return self.known[value]

    def take_lines(self) -> list[str]:
        """The lines collected since the last call."""
        lines, self.lines = self.lines, []
        return lines

    def _computed(self, value: Value) -> Expression:
        call = definition(value)
        assert call is not None, "the host knows scalars that are computed from arguments"
        # A Python number takes the dtype of the operand beside it.
        chosen = value.dtype if call.op.name == "where" else None
        like = chosen or next(a.dtype for a in call.args.values() if isinstance(a, Value))
        operands = [self(a, like) for a in call.args.values() if not isinstance(a, DType)]
        spelling = self._spelling(call, like)
        made = Expression(
            *(spelling.format(*map(operand, form)) for form in zip(*operands, strict=True))
        )
        if call.op.family is INTEGER and isinstance(call.args["b"], Value):
            what = f"a number is divided by `{operands[1].shown}`, which is 0"
            self._refuse_if(f"{operand(operands[1].text)} == 0", what)
        checked = like.is_int and call.op.name in _CHECKED
        if not (checked or value.name or len(made.text) > _LONG):
            return made
        stem = "condition" if value.dtype.kind == "bool" else "number"
        name = free_name(value.name or stem, self.taken)
        if checked:
            self.lines.append(f"int64_t {name};")
            arguments = ", ".join(o.text for o in operands)
            what = f"`{made.shown}` is outside the range of int64"
            self._refuse_if(f"checked_{call.op.name}({arguments}, &{name})", what)
        else:
            self.lines.append(f"const {_C_TYPES[value.dtype.kind]} {name} = {made.text};")
        return Expression(name, name if value.name or len(made.shown) > _LONG else made.shown)

    def _spelling(self, call: Call, like: DType) -> str:
        """An operation in C, with a hole for each operand."""
        meaning, to = call.op.scalar, call.args.get("dtype")
        if meaning is not None and set(re.findall(r"(\w+)\(", meaning.c)) <= _DEFINED:
            return meaning.c
        if call.op.name == "where":
            return "{0} ? {1} : {2}"
        if call.op.name == "to" and isinstance(to, DType) and like.is_int:
            if to == f32:
                return "(float){0}"
            if to.is_int and to.bits >= 32:
                return f"(int{to.bits}_t){{0}}"
        raise LanguageError(
            f"{self.kernel.name}: a C program cannot compute `{call.op.name}` of its arguments on the host",
            loc=call.loc,
            help="pk.require, pk.static and the grid may use arithmetic, comparisons, & | ^, maximum, minimum, where",
        )

    def _refuse_if(self, condition: str, message: str) -> None:
        self.lines += [f"if ({condition})", f"    return refuse(PK_RANGE, {c_string(message)});"]


def operand(text: str) -> str:
    """An expression as an operand of an operator."""
    return text if _OPERAND.fullmatch(text) else f"({text})"
