"""The family of operations element by element, on tiles, vectors and scalars alike.

Operands have one dtype; a Python number takes it. A tile goes with a tile of its shape, with a per-row vector of
as many values as it has rows, with a per-column vector of as many as it has columns, and with a scalar; a vector
with a vector of its length and spread, and with a scalar; a per-row vector with a per-column one makes a tile.
Narrow floats are computed in f32, narrow integers in int32, and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pykittens.ir.op import Family, Mismatch, Op, ScalarMeaning
from pykittens.ir.values import RegTile, RegVector, Scalar, describe, in_memory
from pykittens.types.dtypes import OF_NUMPY, DType, bool_, converted
from pykittens.types.tiles import RT, RV, SCALAR, Spread, with_dtype

Operand = Any  # a tile, a vector, a scalar or a Python number
Registers = RegTile | RegVector | Scalar
RegisterType = RT | RV | SCALAR

FLOAT = ("float",)
INT = ("int",)
NUMBER = ("float", "int")
ANY = ("float", "int", "bool")


def float_map(
    function: Any, c: str, hint: str = "`.to(pk.f32)` makes floats of it"
) -> ScalarMeaning:
    """The meaning of a function of floats."""
    return ScalarMeaning(function, c, kinds=FLOAT, hint=hint)


def in_double(function: Callable[..., Any]) -> Callable[..., Any]:
    """A NumPy function computed in float64; of float32 it gives float32, rounded once."""

    def computed_in_double(*operands: Any) -> Any:
        result = function(*(np.asarray(x, np.float64) for x in operands))
        return result.astype(np.float32) if isinstance(operands[0], np.ndarray) else result

    return computed_in_double


def map_type(op: Op[..., Any], args: dict[str, Any]) -> RegisterType:
    """The result has the shape of the operands together and their dtype, bool for comparisons."""
    assert op.scalar is not None
    dtype = common_dtype(args)
    named = next(n for n, a in args.items() if isinstance(a, Registers))
    check_kind(op, named, dtype)
    return with_dtype(together(args), bool_ if op.scalar.truth else dtype)


def check_kind(op: Op[..., Any], name: str, dtype: DType) -> None:
    """Raise unless the operation has a meaning on elements of this dtype."""
    assert op.scalar is not None
    if dtype.kind not in op.scalar.kinds:
        wanted = " or ".join(op.scalar.kinds)
        counted = "`.to(pk.int32)` makes a bool 0 or 1" if dtype.kind == "bool" else None
        raise Mismatch(f"`{name}` must be {wanted}, not {dtype}", help=op.scalar.hint or counted)


def check_registers(name: str, x: Any) -> None:
    """Raise unless an operand is a value in registers or a number."""
    if isinstance(x, int) and x.bit_length() > 64:
        raise Mismatch(f"`{name}` must be a number of 64 bits, not {describe(x)}")
    if isinstance(x, int | float | Registers):
        return
    way = f"`{name}.item()` is a Python number" if isinstance(x, np.generic) else loaded(x, name)
    raise Mismatch(
        f"`{name}` must be a register tile, a vector, a scalar or a number, not {describe(x)}",
        help=way,
    )


def loaded(x: Any, name: str) -> str | None:
    """The way out where an operand is still in memory, or a name for several things."""
    if in_memory(x):
        return f"pk.load({name}, ...) brings it into registers"
    if isinstance(x, np.ndarray):
        return "an array is an argument of the kernel, and pk.load reads it"
    return getattr(x, "way_in", None)


def common_dtype(args: dict[str, Any]) -> DType:
    """The one dtype of operands in registers; Mismatch if they have several, or a Python number is none of it."""
    values = {n: a for n, a in args.items() if isinstance(a, Registers)}
    for name, a in args.items():
        check_registers(name, a)
    names = list(values)
    dtypes = {a.dtype for a in values.values()}
    if len(dtypes) > 1:
        first = values[names[0]].dtype
        other = next(n for n in names if values[n].dtype != first)
        second = values[other].dtype
        raise Mismatch(
            f"`{names[0]}` and `{other}` must have one dtype, not {first} and {second}",
            help=f"convert one of them: `.to({second.word})`",
        )
    dtype: DType = next(iter(dtypes))
    for name, a in args.items():
        if isinstance(a, int | float) and not dtype.represents(a):
            raise Mismatch(f"`{name}` must be a number that {dtype} has, not {a!r}")
    return dtype


def together(args: dict[str, Any]) -> RegisterType:
    """The type that has the shape of all operands spread over one another, with the dtype of one of them."""
    types = {n: a.type for n, a in args.items() if isinstance(a, Registers)}
    per_row = next((n for n, t in types.items() if _spread(t) is Spread.PER_ROW), None)
    per_column = next((n for n, t in types.items() if _spread(t) is Spread.PER_COLUMN), None)
    whose = max(types, key=lambda n: len(types[n].shape))
    largest: RegisterType = types[whose]
    whose = f"`{whose}`"
    if per_row is not None and per_column is not None and not isinstance(largest, RT):
        sides = types[per_row].shape + types[per_column].shape
        largest, whose = RT(largest.dtype, *sides), f"`{per_row}` and `{per_column}`"
    for name, type_ in types.items():
        if (wanted := _misfit(type_, largest, whose)) is not None:
            plain = _spread(type_) is Spread.PLAIN and isinstance(largest, RT)
            way = "pk.spread(vector, pk.per_row) or pk.per_column says how it lies over a tile"
            raise Mismatch(f"`{name}` must {wanted}, not {type_}", help=way if plain else None)
    return largest


def _spread(type_: RegisterType) -> Spread | None:
    return type_.spread if isinstance(type_, RV) else None


def _misfit(type_: RegisterType, largest: RegisterType, whose: str) -> str | None:
    """What an operand must do to be spread to the shape of the largest one; None where it does."""
    match type_, largest:
        case (SCALAR(), _):
            return None
        case (RV(spread=Spread.PER_ROW), RT()):
            ok, wanted = (
                type_.length == largest.rows,
                f"have {largest.rows} values, one a row of {{}}",
            )
        case (RV(spread=Spread.PER_COLUMN), RT()):
            ok, wanted = (
                type_.length == largest.cols,
                f"have {largest.cols} values, one a column of {{}}",
            )
        case (RV(), RT()):
            ok, wanted = False, "be per row or per column beside {}"
        case (RV(), RV()) if type_.spread is not largest.spread:
            ok, wanted = False, f"be {largest.spread} as {{}} is"
        case (RV(), RV()):
            ok, wanted = type_.length == largest.length, f"have {largest.length} values as {{}} has"
        case _:
            ok, wanted = type_.shape == largest.shape, "be {}x{} as {{}} is".format(*largest.shape)
    return None if ok else wanted.format(whose)


def map_numpy(op: Op[..., Any], args: dict[str, Any]) -> Any:
    """Computes in the type for it and rounds once; integers of scalars are Python's."""
    assert op.scalar is not None
    result = op.scalar.numpy(*computed(list(args.values())))
    return rounded(result, list(args.values()), op.scalar.truth)


def computed(values: list[Any]) -> list[Any]:
    """Operands in the type they are computed in; a Python number first takes the dtype of the others."""
    dtype = _array_dtype(values)
    if dtype is None:
        return values
    wide = OF_NUMPY[dtype].compute.numpy
    return [np.asarray(v, dtype).astype(wide, copy=False) for v in values]


def rounded(result: Any, values: list[Any], truth: bool = False) -> Any:
    """A result rounded once to the operands' dtype."""
    dtype = _array_dtype(values)
    if truth or dtype is None:
        return result
    return converted(result, OF_NUMPY[dtype])[()]


def _array_dtype(values: list[Any]) -> np.dtype[Any] | None:
    return next((v.dtype for v in values if isinstance(v, np.ndarray | np.generic)), None)


MAP = Family("map", map_type, map_numpy)
