"""The family of operations element by element, on tiles, vectors and scalars.

Operands have one dtype, and a Python number takes it. A tile combines with a tile of its shape, a per-row vector with a
value per row, a per-column vector with a value per column, and a scalar. A vector combines with a vector of its length
and spread and with a scalar; a per-row and a per-column vector combine to a tile. Narrow floats are computed in f32,
narrow integers in int32, and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pykittens.ir.op import Family, Mismatch, Op, ScalarMeaning
from pykittens.ir.values import (
    Global,
    RegTile,
    RegVector,
    Scalar,
    SharedTile,
    TileRef,
    describe,
)
from pykittens.ops.arguments import check_number
from pykittens.types.dtypes import OF_NUMPY, DType, bool_, converted
from pykittens.types.tiles import RT, RV, SCALAR, Spread, with_dtype

Registers = RegTile | RegVector | Scalar
RegisterType = RT | RV | SCALAR


FLOAT = ("float",)
INT = ("int",)
NUMBER = ("float", "int")
ANY = ("float", "int", "bool")


COUNTED = "`.to(pk.int32)` converts a bool to 0 or 1"
COMPARED = "compare it, as in `x != 0`"


def float_map(function: Any, c: str, hint: str = "convert it: `.to(pk.f32)`") -> ScalarMeaning:
    """The meaning of a function of floats."""
    return ScalarMeaning(function, c, kinds=FLOAT, hint=hint)


def in_double(function: Callable[..., Any]) -> Callable[..., Any]:
    """A NumPy function computed in float64; for float32 arrays the result is rounded once to float32."""

    def computed_in_double(*operands: Any) -> Any:
        result = function(*(np.asarray(x, np.float64) for x in operands))
        return result.astype(np.float32) if isinstance(operands[0], np.ndarray) else result

    return computed_in_double


def map_type(op: Op[Any], args: dict[str, Any]) -> RegisterType:
    """The type of the operands broadcast together; its dtype is theirs, or bool for comparisons."""
    assert op.scalar is not None
    dtypes = {n: a.dtype for n, a in args.items() if isinstance(a, Registers)}
    fitting = next((d for d in dtypes.values() if d.kind in op.scalar.kinds), None)
    for name, dtype in dtypes.items():
        check_kind(op, name, dtype, fitting)
    dtype = common_dtype(args)
    return with_dtype(together(args), bool_ if op.scalar.truth else dtype)


def check_kind(op: Op[Any], name: str, dtype: DType, fitting: DType | None = None) -> None:
    """Raise unless the operation is defined for elements of this dtype; `fitting` is that of another operand."""
    assert op.scalar is not None
    if dtype.kind not in op.scalar.kinds:
        wanted = " or ".join(op.scalar.kinds)
        counted = COUNTED if dtype.kind == "bool" else None
        converted = f"convert it: `.to({fitting.word})`" if fitting is not None else None
        raise Mismatch(
            f"`{name}` must be {wanted}, not {dtype}", help=converted or op.scalar.hint or counted
        )


def check_registers(name: str, x: Any) -> None:
    """Raise unless an operand is a value in registers or a Python number."""
    if isinstance(x, int) and x.bit_length() > 64:
        raise Mismatch(f"`{name}` must be a number of 64 bits, not {describe(x)}")
    if isinstance(x, int | float | Registers):
        return
    raise Mismatch(
        f"`{name}` must be a register tile, a vector, a scalar or a number, not {describe(x)}",
        help=loaded(x, name),
    )


def check_tile(name: str, x: Any, help: str | None = None) -> None:
    """Raise unless an operand is a register tile."""
    if not isinstance(x, RegTile):
        raise Mismatch(
            f"`{name}` must be a register tile, not {describe(x)}", help=help or loaded(x, name)
        )


def in_memory(thing: object) -> bool:
    """Whether pk.load can read it."""
    return isinstance(thing, SharedTile | TileRef | Global)


def loaded(x: Any, name: str) -> str | None:
    """The help for an operand that is in memory, an array, or a container of tiles."""
    if in_memory(x):
        return f"pk.load({name}, ...) loads it into registers"
    if hasattr(type(x), "__dlpack__"):
        return "pass the array to the kernel as an argument and read it with pk.load"
    return getattr(x, "way_in", None)


def _width(dtype: DType) -> tuple[bool, int]:
    """Greater for the dtype that loses less of the elements of another."""
    return dtype.is_float, dtype.bits


def common_dtype(args: dict[str, Any]) -> DType:
    """The dtype of operands in registers; Mismatch if there are several, or if it cannot represent a Python number."""
    values = {n: a for n, a in args.items() if isinstance(a, Registers)}
    for name, a in args.items():
        check_registers(name, a)
    first, dtype = next((n, a.dtype) for n, a in values.items())
    for name, a in values.items():
        if a.dtype != dtype:
            raise Mismatch(
                f"`{first}` and `{name}` must have the same dtype, not {dtype} and {a.dtype}",
                help=f"convert one of them: `.to({max(dtype, a.dtype, key=_width).word})`",
            )
    for name, a in args.items():
        if name not in values:
            check_number(name, a, dtype)
    return dtype


def together(args: dict[str, Any]) -> RegisterType:
    """The type with the shape of all operands broadcast together, and the dtype of one of them."""
    types = {n: a.type for n, a in args.items() if isinstance(a, Registers)}
    per_row = next((n for n, t in types.items() if _spread(t) is Spread.PER_ROW), None)
    per_column = next((n for n, t in types.items() if _spread(t) is Spread.PER_COLUMN), None)
    owner = max(types, key=lambda n: len(types[n].shape))
    largest: RegisterType = types[owner]
    owner = f"`{owner}`"
    if per_row is not None and per_column is not None and not isinstance(largest, RT):
        sides = types[per_row].shape + types[per_column].shape
        largest, owner = RT(largest.dtype, *sides), f"`{per_row}` and `{per_column}`"
    for name, type_ in types.items():
        if (wanted := _misfit(type_, largest, owner)) is not None:
            plain = _spread(type_) is Spread.PLAIN and isinstance(largest, RT)
            help = (
                "pk.spread(vector, pk.per_row) or pk.spread(vector, pk.per_column) lays it out for a tile, and so does "
                "spread= of pk.load"
            )
            raise Mismatch(f"`{name}` must {wanted}, not {type_}", help=help if plain else None)
    return largest


def _spread(type_: RegisterType) -> Spread | None:
    return type_.spread if isinstance(type_, RV) else None


def _misfit(type_: RegisterType, largest: RegisterType, owner: str) -> str | None:
    """What an operand must be or have to broadcast to the largest type, which `owner` has; None if it does."""
    match type_, largest:
        case (RV(spread=Spread.PER_ROW), RT()):
            fits, wanted = type_.length == largest.rows, f"{largest.rows} values, one per row of"
        case (RV(spread=Spread.PER_COLUMN), RT()):
            fits, wanted = type_.length == largest.cols, f"{largest.cols} values, one per column of"
        case (RV(), RT()):
            return f"be per row or per column to combine with {owner}"
        case (RV(), RV()) if type_.spread is not largest.spread:
            return f"be {largest.spread} like {owner}"
        case (RV(), RV()):
            fits, wanted = type_.length == largest.length, f"{largest.length} values like"
        case (RT(), RT()) if type_.shape != largest.shape:
            return f"be {largest.rows}x{largest.cols} like {owner}"
        case _:
            return None
    return None if fits else f"have {wanted} {owner}"


def map_numpy(op: Op[Any], args: dict[str, Any]) -> Any:
    """The result computed in the compute type and rounded once; scalar integers are Python's."""
    assert op.scalar is not None
    values = list(args.values())
    dtype = _array_dtype(values)
    if dtype is None:
        return op.scalar.numpy(*values)
    result = op.scalar.numpy(*_computed(values, dtype))
    return result if op.scalar.truth else _rounded(result, dtype)


def computed(values: list[Any]) -> list[Any]:
    """The operands in their compute type; a Python number first takes the dtype of the others."""
    dtype = _array_dtype(values)
    return values if dtype is None else _computed(values, dtype)


def _computed(values: list[Any], dtype: np.dtype[Any]) -> list[Any]:
    wide = _COMPUTE[dtype]
    if wide is dtype:
        return [
            v if isinstance(v, np.ndarray) and v.dtype is dtype else np.asarray(v, dtype)
            for v in values
        ]
    return [np.asarray(v, dtype).astype(wide, copy=False) for v in values]


def rounded(result: Any, values: list[Any], truth: bool = False) -> Any:
    """A result rounded once to the operands' dtype."""
    dtype = _array_dtype(values)
    return result if truth or dtype is None else _rounded(result, dtype)


def _rounded(result: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(result, np.ndarray) and result.dtype is dtype and result.ndim:
        return result
    return converted(result, OF_NUMPY[dtype])[()]


# The dtype in which operands of a dtype are computed.
_COMPUTE = {dtype: of.compute.numpy for dtype, of in OF_NUMPY.items()}
_ARRAYS = np.ndarray, np.generic  # a tuple is tested faster than a union


def _array_dtype(values: list[Any]) -> np.dtype[Any] | None:
    for v in values:
        if isinstance(v, _ARRAYS):
            return v.dtype
    return None


MAP = Family("map", map_type, map_numpy, by_element=True)
