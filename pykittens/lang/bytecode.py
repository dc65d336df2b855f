"""The names that code reads from outside, each with the constant attributes and items that it reads of the value."""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator
from types import CodeType
from typing import Any, Literal, NamedTuple

from pykittens.lang.contents import Same

Step = tuple[Literal["attribute", "item"], Any]


class Read(NamedTuple):
    """A read of a global or of a variable of an enclosing function, and the steps from its value: `NAME.a["b"]`."""

    scope: Literal["global", "cell"]
    name: str
    steps: tuple[Step, ...]
    instruction: int


_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_CELL = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}
_CONSTANT = {"LOAD_CONST", "LOAD_SMALL_INT"}
_WITHOUT_EFFECT = {"CACHE", "EXTENDED_ARG", "NOP", "PUSH_NULL", "PRECALL", "RESUME"}


def reads(code: CodeType) -> tuple[Read, ...]:
    """The distinct reads of a code object, without those of the functions inside it."""
    return _reads(Same(code))


@functools.lru_cache(maxsize=4096)
def _reads(code: Same) -> tuple[Read, ...]:
    assert isinstance(code.value, CodeType)
    found: dict[tuple[Any, ...], Read] = {}
    for read in _all_reads(code.value):
        key = read[:2], tuple((kind, type(x), x) for kind, x in read.steps)
        found.setdefault(key, read)
    return tuple(found.values())


def _all_reads(code: CodeType) -> Iterator[Read]:
    instructions = [i for i in dis.get_instructions(code) if i.opname not in _WITHOUT_EFFECT]
    for index, first in enumerate(instructions):
        if first.opname in _GLOBAL:
            yield Read("global", first.argval, _steps(instructions, index + 1), first.offset)
        elif first.opname in _CELL:
            yield Read("cell", first.argval, _steps(instructions, index + 1), first.offset)


def _steps(instructions: list[dis.Instruction], index: int) -> tuple[Step, ...]:
    steps: list[Step] = []
    while index < len(instructions):
        here, then = instructions[index], instructions[index + 1 : index + 2]
        if here.opname in _ATTRIBUTE:
            steps.append(("attribute", here.argval))
            index += 1
        elif _is_key(here) and then and _is_subscript(then[0]):
            steps.append(("item", here.argval))
            index += 2
        else:
            break
    return tuple(steps)


def _is_key(instruction: dis.Instruction) -> bool:
    # From Python 3.14 on a slice is a constant; what it selects is a new object at each read.
    return instruction.opname in _CONSTANT and not isinstance(instruction.argval, slice)


def _is_subscript(instruction: dis.Instruction) -> bool:
    name, text = instruction.opname, instruction.argrepr
    return name == "BINARY_SUBSCR" or (name == "BINARY_OP" and text == "[]")
