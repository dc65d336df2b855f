"""The family of operations element by element, on tiles, vectors and scalars alike.

Operands have one dtype; a Python number takes it. A tile goes with a tile of its shape, with a per-row vector of
as many values as it has rows, with a per-column vector of as many as it has columns, and with a scalar; a vector
with a vector of its length and spread, and with a scalar; a per-row vector with a per-column one makes a tile.
Narrow floats are computed in f32, narrow integers in int32, and rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.ir.op import Family, Mismatch, Op, ScalarMeaning
from pykittens.ir.values import RegTile, RegVector, Scalar, describe
from pykittens.types.dtypes import OF_NUMPY, DType, bool_, converted
from pykittens.types.tiles import RT, RV, SCALAR, Spread, with_dtype

Operand = Any  # a tile, a vector, a scalar or a Python number
Registers = RegTile | RegVector | Scalar
RegisterType = RT | RV | SCALAR

FLOAT = ("float",)
INT = ("int",)
NUMBER = ("float", "int")
ANY = ("float", "int", "bool")


def float_map(function: Any, c: str) -> ScalarMeaning:
    """The meaning of a function of floats."""
    return ScalarMeaning(function, c, kinds=FLOAT)


def map_type(op: Op[..., Any], args: dict[str, Any]) -> RegisterType:
    """The result has the shape of the operands together and their dtype, bool for comparisons."""
    assert op.scalar is not None
    dtype = common_dtype(args)
    if dtype.kind not in op.scalar.kinds:
        wanted = " or ".join(op.scalar.kinds)
        raise Mismatch(f"takes {wanted} operands, not {dtype}", help=op.scalar.hint)
    return with_dtype(together(args), bool_ if op.scalar.truth else dtype)


def common_dtype(args: dict[str, Any]) -> DType:
    """The one dtype of operands in registers; Mismatch if they have several, or a Python number is none of it."""
    values = {n: a for n, a in args.items() if isinstance(a, Registers)}
    for name, a in args.items():
        if not isinstance(a, int | float | Registers):
            raise Mismatch(
                f"`{name}` must be a register tile, a vector, a scalar or a number, not {describe(a)}",
                help=f"pk.load({name}, ...) brings it into registers"
                if hasattr(a, "type")
                else None,
            )
    names = list(values)
    dtypes = {a.dtype for a in values.values()}
    if len(dtypes) > 1:
        first = values[names[0]].dtype
        other = next(n for n in names if values[n].dtype != first)
        second = values[other].dtype
        raise Mismatch(
            f"`{names[0]}` and `{other}` must have one dtype, not {first} and {second}",
            help=f"convert one of them: `.to({second})`",
        )
    dtype: DType = next(iter(dtypes))
    for name, a in args.items():
        if isinstance(a, int | float) and not dtype.represents(a):
            raise Mismatch(f"`{name}` = {a!r} is no {dtype}")
    return dtype


def together(args: dict[str, Any]) -> RegisterType:
    """The type that has the shape of all operands spread over one another, with the dtype of one of them."""
    types = {n: a.type for n, a in args.items() if isinstance(a, Registers)}
    per_row = next((t for t in types.values() if _spread(t) is Spread.PER_ROW), None)
    per_column = next((t for t in types.values() if _spread(t) is Spread.PER_COLUMN), None)
    largest: RegisterType = max(types.values(), key=lambda t: len(t.shape))
    if per_row is not None and per_column is not None and not isinstance(largest, RT):
        assert isinstance(per_row, RV)
        assert isinstance(per_column, RV)
        largest = RT(per_row.dtype, per_row.length, per_column.length)
    for name, type_ in types.items():
        if (reason := _misfit(type_, largest)) is not None:
            plain = _spread(type_) is Spread.PLAIN and isinstance(largest, RT)
            way = "pk.spread(vector, pk.per_row) or pk.per_column says how it lies over a tile"
            raise Mismatch(f"`{name}` {reason}", help=way if plain else None)
    return largest


def _spread(type_: RegisterType) -> Spread | None:
    return type_.spread if isinstance(type_, RV) else None


def _misfit(type_: RegisterType, largest: RegisterType) -> str | None:
    """Why an operand cannot be spread to the shape of the largest one."""
    match type_, largest:
        case (SCALAR(), _):
            return None
        case (RV(spread=Spread.PER_ROW), RT()):
            ok, what = type_.length == largest.rows, f"{largest.rows} rows"
        case (RV(spread=Spread.PER_COLUMN), RT()):
            ok, what = type_.length == largest.cols, f"{largest.cols} columns"
        case (RV(), RT()):
            return "is a plain vector, which has no place in a tile"
        case (RV(), RV()):
            ok = (type_.length, type_.spread) == (largest.length, largest.spread)
            what = f"{largest.length} values, {largest.spread}"
        case _:
            ok, what = type_.shape == largest.shape, f"{largest.shape[0]} x {largest.shape[1]}"
    return None if ok else f"does not fit {what}"


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
