"""`@op` and the registry OPS: a `def` becomes an operation that records itself when called in a kernel.

A user's file may use `@op`, too: with a family such as `MAP` of ops/map.py and a meaning on one element, or with a type
rule, a NumPy meaning and a lowering, `@SIMT.lower("name")` of targets/simt/target.py.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from pykittens.errors import KernelError, LanguageError, Loc, ResourceError, TypeMismatch
from pykittens.ir.build import Builder, current
from pykittens.ir.nodes import Call, operands
from pykittens.ir.numbers import numbers
from pykittens.ir.op import PURE, Binder, Effects, Family, Mismatch, Op, Parts, ScalarMeaning
from pykittens.ir.operators import OPERATORS
from pykittens.ir.signature import signature_of
from pykittens.ir.values import Global, describe, handle
from pykittens.types.layouts import tile_registers
from pykittens.types.tiles import RT

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

OPS: dict[str, Op[Any]] = {}
# The names by which error texts call the operations and the functions composed of them.
SHOWN: set[str] = set()


def op(
    *,
    effects: Effects = PURE,
    family: Family | None = None,
    scalar: ScalarMeaning | None = None,
    operator: str | None = None,
    shown: str = "",
    linear: tuple[tuple[str, ...], ...] = (),
    parts: Parts | None = None,
    by_element: bool = False,
) -> Callable[[F], Op[F]]:
    """Make a function without a body an operation, with its name, signature and docstring."""

    def make(function: F) -> Op[F]:
        name = function.__name__.rstrip("_")
        result = Op(
            name,
            function,
            effects,
            family,
            scalar,
            _record,
            shown=shown,
            linear=linear,
            parts=parts,
            by_element=by_element,
        )
        known = OPS.get(name)
        if known is not None and not _same_origin(known.function, function):
            raise LanguageError(
                f"op: an operation named `{name}` exists already",
                operands={"defined in": known.function.__module__},
                help="choose another name",
            )
        OPS[name] = result
        SHOWN.add(result.shown)
        if operator is not None:
            OPERATORS[operator] = result
        return result

    return make


def typed(overloads: type[F]) -> Callable[[Callable[..., Any]], F]:
    """Decorator: type checkers take `__call__` of a class for the signature of a function."""
    return lambda function: cast(F, function)


def composed(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of a function written with operations: errors in it name the function and its operands."""
    name, signature = function.__name__.strip("_"), signature_of(function)
    bound = Binder(name, signature)
    SHOWN.add(name)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        given = bound(args, kwargs)
        if not isinstance(next(iter(given.values()), None), int | float):
            current(name)
        positional: Any = numbers(args)
        words: Any = numbers(kwargs)
        try:
            return function(*positional, **words)
        except Mismatch as fault:
            raise _mismatch(name, signature, given, fault) from None
        except KernelError as fault:
            inner, _, rest = fault.message.partition(": ")
            if inner not in SHOWN or inner == name:
                raise
            mismatch = isinstance(fault, TypeMismatch)
            operands = _operand_types(signature, given) if mismatch else fault.operands
            raise type(fault)(
                f"{name}: {rest}", operands=operands, loc=fault.loc, help=fault.help
            ) from None

    return call


def _same_origin(old: Callable[..., Any], new: Callable[..., Any]) -> bool:
    """Whether two functions are from one module or one file, which then has been run again."""
    return old.__module__ == new.__module__ or old.__code__.co_filename == new.__code__.co_filename


def _record(op: Op[Any], args: dict[str, Any]) -> Any:
    folds = op.scalar is not None and op.scalar.folds
    if folds and all(isinstance(a, int | float) for a in args.values()):
        return _fold(op, args)
    builder = current(op.shown)
    for arg in args.values():
        for value in arg if isinstance(arg, tuple | list) else (arg,):
            builder.check_use(value, op.shown)
    if builder.homes is None:
        call, result = _called(op, args, builder)
        builder.append(call, call.results)
        return result
    home = builder.homes.of_operands(op.shown, operands(args))
    with builder.homes.at(home, builder):
        call, result = _called(op, args, builder)
    builder.homes.append(call, home, builder)
    return result


def _called(op: Op[Any], args: dict[str, Any], builder: Builder) -> tuple[Call, Any]:
    """The call with results of the right types, and what it returns to the user."""
    try:
        type_ = op.result_type(args)
        _check_indexed(args)
    except Mismatch as fault:
        raise _mismatch(op.shown, op.__signature__, args, fault) from None
    types = type_ if isinstance(type_, tuple) else () if type_ is None else (type_,)
    for each in types:
        if isinstance(each, RT):
            _check_registers(op, each, builder.warps)
    loc = Loc.here()
    results = [handle(each, loc=loc) for each in types]
    returned = tuple(results) if isinstance(type_, tuple) else results[0] if results else None
    return Call(op, args, results, loc), returned


def _check_indexed(args: dict[str, Any]) -> None:
    """Raise if a tensor of more than two axes, whose first tile is one of many matrices, has no index."""
    for name, arg in args.items():
        if isinstance(arg, Global) and arg.rank > 2:
            raise Mismatch(
                f"`{name}` must be a tile of a tensor of rank {arg.rank}, not the whole tensor",
                help=arg.way_to_index,
            )


# Four times the registers of a thread: a kernel with such a tile compiles, slowly, and spills.
MOST_ELEMENTS = 1024


def _check_registers(op: Op[Any], type_: RT, warps: int) -> None:
    """Raise if a register tile is far beyond the registers of its group: compilers work for minutes on it."""
    elements = tile_registers(type_.rows, type_.cols, warps)
    if elements > MOST_ELEMENTS:
        raise ResourceError(
            f"{op.shown}: the tile {type_} has {elements} elements per thread of its {warps} warps, "
            "and a thread has 255 registers",
            help=f"compute smaller tiles in a loop, or use more warps: at most {MOST_ELEMENTS} elements per thread",
        )


def _fold(op: Op[Any], args: dict[str, Any]) -> Any:
    """The result of an operation on Python numbers, which is computed at once: it is part of the metaprogram."""
    assert op.scalar is not None
    kinds = {"bool": bool, "int": int, "float": int | float}
    for name, arg in args.items():
        if not any(isinstance(arg, kinds[k]) for k in op.scalar.kinds):
            wanted, hint = " or ".join(op.scalar.kinds), op.scalar.hint
        elif isinstance(arg, int) and arg.bit_length() > 64:
            wanted, hint = "a number of 64 bits", None
        else:
            continue
        fault = Mismatch(f"`{name}` must be {wanted}, not {describe(arg)}", hint)
        raise _mismatch(op.shown, op.__signature__, args, fault)
    with np.errstate(all="ignore"):
        result = op.scalar.numpy(*args.values())
    return result.item() if hasattr(result, "item") else result


def _mismatch(
    name: str, signature: inspect.Signature, args: dict[str, Any], fault: Mismatch
) -> TypeMismatch:
    operands = _operand_types(signature, args)
    return TypeMismatch(f"{name}: {fault.message}", operands=operands, help=fault.help)


def _operand_types(signature: inspect.Signature, args: dict[str, Any]) -> dict[str, object]:
    """The arguments of a call that differ from their defaults."""
    return {
        name: describe(arg)
        for name, arg in args.items()
        if arg is not signature.parameters[name].default
        and not (isinstance(arg, tuple) and not arg)
    }
