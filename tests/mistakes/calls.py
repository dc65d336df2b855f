"""Runs one call in a kernel and returns its error; lists the wrong calls of a row of the table."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import linecache
import re
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

import pykittens as pk
from pykittens.ir.numbers import number
from pykittens.ir.values import describe
from pykittens.ir.verify import verify
from pykittens.lang.homes import Restart
from tests.mistakes.rows import Row
from tests.mistakes.things import THINGS, Case

_numbers = itertools.count()


@dataclass(frozen=True)
class Mistake:
    """A call with a thing in place of an operand, or with what else is wrong, such as `no arguments`."""

    call: str
    operand: str
    wrong: str


@dataclass(frozen=True)
class Fault:
    """What a call raised, and its text, without the number of its kernel."""

    error: pk.KernelError
    text: str

    @staticmethod
    def of(error: pk.KernelError) -> Fault:
        text = f"{type(error).__name__}: {error}"
        return Fault(error, re.sub(r"<call \d+>:\d+", "<kernel>", text))


def good_call(row: Row) -> str:
    return row.call.format(**row.good)


def replaced(row: Row) -> Iterator[tuple[Mistake, bool]]:
    """The call with each operand replaced by each thing, and whether it must pass."""
    for operand, rule in row.takes.items():
        can_stand = row.of.get(operand, lambda thing: True)
        for thing in THINGS.values():
            if can_stand(thing):
                call = row.call.format(**{**row.good, operand: thing.name})
                yield Mistake(call, operand, thing.name), rule(thing)


def wrong_arguments(row: Row) -> Iterator[Mistake]:
    """The call with an argument of no meaning, with none and with too many, where they are wrong."""
    yield from (Mistake(call, "", f"wrong[{i}]") for i, call in enumerate(row.wrong))
    good = good_call(row)
    calls = [n for n in ast.walk(ast.parse(good)) if isinstance(n, ast.Call)]
    if not calls or row.wrong:
        return
    whole, callee = (ast.get_source_segment(good, n) for n in (calls[0], calls[0].func))
    assert whole is not None
    assert callee is not None

    def called(wrong: str, *arguments: str) -> Mistake:
        return Mistake(good.replace(whole, f"{callee}({', '.join(arguments)})"), "", wrong)

    given = [a for a in (whole[len(callee) + 1 : -1],) if a]
    yield called("nothing=1", *given, "nothing=1")
    parameters = signature(callee).parameters.values()
    kinds = {p.kind for p in parameters}
    if any(p.default is p.empty and p.kind is not p.VAR_POSITIONAL for p in parameters):
        yield called("no arguments")
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        yield called("nine arguments", *["1"] * 9)


@functools.cache
def signature(callee: str) -> inspect.Signature:
    with Case() as case:
        return inspect.signature(eval(callee, scope(callee, case)))


def scope(text: str, case: Case) -> dict[str, Any]:
    """The things that a text names, in a kernel."""
    return {"pk": pk, "np": np, **{name: case[name] for name in things_in(text)}}


@functools.cache
def things_in(text: str) -> Set[str]:
    """The things that a text names, other than those it spells out."""
    return {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)} & THINGS.keys()


def run(call: str, case: Case | None = None, warps: int = 4) -> Fault | None:
    """Record a call in a kernel; what it raises, None if it passes. Any error that is no KernelError goes through."""
    filename = f"<call {next(_numbers)}>"
    text = f"def kernel():\n    {call}\n"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    try:
        with case or Case(warps) as case:
            names = scope(text, case)
            exec(compile(text, filename, "exec"), names)
            with suppress(Restart):  # of pk.homes: the call is right
                names["kernel"]()
    except pk.KernelError as error:
        return Fault.of(error)
    return None


def outside_roles(row: Row) -> tuple[Fault | None, bool]:
    """What is wrong with the good call outside the roles of a kernel; and whether its operands can be there."""
    faults = []
    for call in ("pass", good_call(row)):
        case = Case()
        with case:
            pk.grid(1)
            scope(good_call(row), case)
        faults.append(run(call, case) or _verified(case))
    return faults[1], faults[0] is None


def _verified(case: Case) -> Fault | None:
    """What is wrong with a kernel as a whole, when it has got a role."""
    with case, pk.warps(1):
        pass
    try:
        verify(case.kernel)
    except pk.KernelError as error:
        return Fault.of(error)
    return None


def in_eight_warps(row: Row) -> tuple[Fault | None, bool]:
    """What is wrong with the good call in a group of eight warps; and whether it can have the operands."""
    case = Case(warps=8)
    try:
        with case:
            scope(good_call(row), case)
    except pk.KernelError:
        return None, False
    return run(good_call(row), case), True


@functools.cache
def described(text: str) -> str:
    """How a message describes what an expression of things is."""
    tensor, index, _ = text.partition("[")
    with Case() as case:
        if index and tensor in THINGS:
            return f"{describe(case[tensor])} at {text}"
        return describe(number(eval(text, scope(text, case))))
