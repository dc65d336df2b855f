"""`@op` and the registry OPS: a `def` becomes an operation that records itself when called in a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from pykittens.errors import LanguageError, Loc, TypeMismatch
from pykittens.ir.build import current
from pykittens.ir.nodes import Call
from pykittens.ir.op import PURE, Effects, Family, Mismatch, Op, ScalarMeaning
from pykittens.ir.operators import OPERATORS
from pykittens.ir.undefined import Undefined
from pykittens.ir.values import TileRef, Value, describe, handle

P = ParamSpec("P")
R = TypeVar("R")

OPS: dict[str, Op[..., Any]] = {}


def op(
    *,
    effects: Effects = PURE,
    family: Family | None = None,
    scalar: ScalarMeaning | None = None,
    operator: str | None = None,
) -> Callable[[Callable[P, R]], Op[P, R]]:
    """Make a function without a body an operation: name, signature and docstring are what the user sees."""

    def make(function: Callable[P, R]) -> Op[P, R]:
        made = Op(function.__name__.rstrip("_"), function, effects, family, scalar, _record)
        OPS[made.name] = made
        if operator is not None:
            OPERATORS[operator] = made
        return made

    return make


def _record(op: Op[..., Any], args: dict[str, Any]) -> Any:
    if op.scalar is not None and not any(isinstance(a, Value | Undefined) for a in args.values()):
        return _fold(op, args)
    builder = current(op.name)
    for arg in args.values():
        for value in arg if isinstance(arg, tuple | list) else (arg,):
            builder.check_use(value, op.name)
    try:
        type_ = op.result_type(args)
    except Mismatch as fault:
        raise TypeMismatch(
            f"{op.name}: {fault.message}", operands=_operand_types(args), help=fault.help
        ) from None
    loc = Loc.here()
    results = [] if type_ is None else [handle(type_, loc=loc)]
    builder.append(Call(op, args, results, loc), results)
    return results[0] if results else None


def _fold(op: Op[..., Any], args: dict[str, Any]) -> Any:
    """An operation on Python numbers is done at once: it is part of the metaprogram."""
    assert op.scalar is not None
    for name, arg in args.items():
        if not isinstance(arg, int | float):
            raise LanguageError(
                f"{op.name}: `{name}` must be a number or a value of the kernel, not {describe(arg)}"
            )
    result = op.scalar.numpy(*args.values())
    return result.item() if hasattr(result, "item") else result


def _operand_types(args: dict[str, Any]) -> dict[str, object]:
    return {
        n: describe(a)
        for n, a in args.items()
        if isinstance(a, Value | TileRef | Undefined) or _foreign(a)
    }


def _foreign(arg: object) -> bool:
    return not isinstance(arg, int | float | str | bool | tuple) and arg is not None
