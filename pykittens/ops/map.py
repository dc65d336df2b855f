"""Operations element by element, on tiles, vectors and scalars alike.

Operands have one dtype; a Python number takes it. A tile goes with a tile of its shape, with a per-row vector of
as many values as it has rows, with a per-column vector of as many as it has columns, and with a scalar; a vector
with a vector of its length and spread, and with a scalar. bf16 and f16 are computed in f32 and rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.ir.op import Family, Mismatch, Op, ScalarMeaning
from pykittens.ir.values import RegTile, RegVector, Scalar, Value, describe
from pykittens.ops.core import op
from pykittens.types.dtypes import DType, bool_
from pykittens.types.tiles import RT, RV, SCALAR, Spread, with_dtype

Operand = Any  # a tile, a vector, a scalar or a Python number


def map_type(op: Op[..., Any], args: dict[str, Any]) -> RT | RV | SCALAR:
    """The result has the shape of the largest operand and the operands' dtype, bool for comparisons."""
    assert op.scalar is not None
    values = {n: a for n, a in args.items() if isinstance(a, RegTile | RegVector | Scalar)}
    for name, a in args.items():
        if not isinstance(a, int | float | RegTile | RegVector | Scalar):
            raise Mismatch(
                f"`{name}` must be a register tile, a vector, a scalar or a number, not {describe(a)}",
                help=f"pk.load({name}, ...) brings it into registers"
                if hasattr(a, "type")
                else None,
            )
    names = list(values)
    dtypes = {a.dtype for a in values.values()}
    if len(dtypes) > 1:
        first, second = (values[n].dtype for n in names[:2])
        raise Mismatch(
            f"{_listed(names)} must have one dtype, not {first} and {second}",
            help=f"convert one of them: `.to({second})`",
        )
    dtype: DType = next(iter(dtypes))
    if dtype.kind not in op.scalar.kinds:
        wanted = " or ".join(op.scalar.kinds)
        raise Mismatch(f"takes {wanted} operands, not {dtype}", help=op.scalar.hint)
    for name, a in args.items():
        if isinstance(a, int | float) and not dtype.represents(a):
            raise Mismatch(f"`{name}` = {a!r} is no {dtype}")
    largest = max((a.type for a in values.values()), key=lambda t: len(t.shape))
    for name, a in values.items():
        if (reason := _misfit(a.type, largest)) is not None:
            plain = (
                isinstance(a.type, RV) and a.type.spread is Spread.PLAIN and isinstance(largest, RT)
            )
            way = (
                "load it as a tile: a tensor of stride 0 along the rows repeats one row"
                if plain
                else None
            )
            raise Mismatch(f"`{name}` {reason}", help=way)
    result: RT | RV | SCALAR = with_dtype(largest, bool_ if op.scalar.truth else dtype)
    return result


def _misfit(type_: RT | RV | SCALAR, largest: RT | RV | SCALAR) -> str | None:
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


def _listed(names: list[str]) -> str:
    return " and ".join(f"`{n}`" for n in names[:2])


def map_numpy(op: Op[..., Any], args: dict[str, Any]) -> Any:
    """Computes in f32 for 16-bit floats and rounds once; integers of scalars are Python's."""
    assert op.scalar is not None
    result = op.scalar.numpy(*computed(list(args.values())))
    return rounded(result, list(args.values()), op.scalar.truth)


def computed(values: list[Any]) -> list[Any]:
    """Operands in the type they are computed in; a Python number first takes the dtype of the others."""
    dtype = _array_dtype(values)
    if dtype is None:
        return values
    wide = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    return [np.asarray(v, dtype).astype(wide, copy=False) for v in values]


def rounded(result: Any, values: list[Any], truth: bool = False) -> Any:
    """A result rounded once to the operands' dtype."""
    dtype = _array_dtype(values)
    if truth or dtype is None:
        return result
    return np.asarray(result).astype(dtype, copy=False)[()]


def _array_dtype(values: list[Any]) -> np.dtype[Any] | None:
    return next((v.dtype for v in values if isinstance(v, np.ndarray | np.generic)), None)


MAP = Family("map", map_type, map_numpy)

_FLOAT = ("float",)


def _float_map(function: Any, c: str) -> ScalarMeaning:
    return ScalarMeaning(function, c, kinds=_FLOAT)


@op(family=MAP, scalar=ScalarMeaning(lambda a, b: a + b, "{0} + {1}"), operator="+")
def add(a: Operand, b: Operand) -> Any:
    """a + b."""


@op(family=MAP, scalar=ScalarMeaning(lambda a, b: a - b, "{0} - {1}"), operator="-")
def sub(a: Operand, b: Operand) -> Any:
    """a - b."""


@op(family=MAP, scalar=ScalarMeaning(lambda a, b: a * b, "{0} * {1}"), operator="*")
def mul(a: Operand, b: Operand) -> Any:
    """a * b."""


@op(
    family=MAP,
    scalar=ScalarMeaning(
        lambda a, b: a / b,
        "{0} / {1}",
        kinds=_FLOAT,
        hint="integers are divided with `//`, which floors",
    ),
    operator="/",
)
def div(a: Operand, b: Operand) -> Any:
    """a / b. Where b is one value for many of a (a vector beside a tile, a scalar beside either) it is
    a * (1 / b): one reciprocal each, within 1.5 units in the last place of the quotient."""


@div.numpy
def _div(a: Any, b: Any) -> Any:
    x, y = computed([a, b])
    if np.size(y) < np.size(x):
        return rounded(x * (np.float32(1) / y), [a, b])
    return rounded(x / y, [a, b])


@op(family=MAP, scalar=ScalarMeaning(lambda a: -a, "-{0}"), operator="neg")
def neg(a: Operand) -> Any:
    """-a."""


@op(family=MAP, scalar=ScalarMeaning(np.maximum, "max_nan({0}, {1})"))
def maximum(a: Operand, b: Operand) -> Any:
    """The larger of a and b; NaN if one of them is."""


@op(family=MAP, scalar=ScalarMeaning(np.minimum, "min_nan({0}, {1})"))
def minimum(a: Operand, b: Operand) -> Any:
    """The smaller of a and b; NaN if one of them is."""


@op(family=MAP, scalar=_float_map(np.exp, "exp_fast({0})"))
def exp(a: Operand) -> Any:
    """e to the power a, as 2 to the power a log2(e): relative error below 2**-21 + |a| 2**-24; 0 below -87.3."""


@op(family=MAP, scalar=_float_map(np.exp2, "exp2_fast({0})"))
def exp2(a: Operand) -> Any:
    """2 to the power a: relative error below 2**-22; results below 2**-126 are 0 (PTX `ex2.approx.ftz`)."""


@op(family=MAP, scalar=_float_map(lambda a: np.float32(1) / np.sqrt(a), "rsqrt_fast({0})"))
def rsqrt(a: Operand) -> Any:
    """1 / sqrt(a): relative error below 2**-22; infinity at 0, NaN below (PTX `rsqrt.approx.ftz`)."""


def _comparison(function: Any, c: str) -> ScalarMeaning:
    return ScalarMeaning(function, c, truth=True)


@op(family=MAP, scalar=_comparison(lambda a, b: a < b, "{0} < {1}"), operator="<")
def less(a: Operand, b: Operand) -> Any:
    """a < b, as bool."""


@op(family=MAP, scalar=_comparison(lambda a, b: a <= b, "{0} <= {1}"), operator="<=")
def less_equal(a: Operand, b: Operand) -> Any:
    """a <= b, as bool."""


@op(family=MAP, scalar=_comparison(lambda a, b: a > b, "{0} > {1}"), operator=">")
def greater(a: Operand, b: Operand) -> Any:
    """a > b, as bool."""


@op(family=MAP, scalar=_comparison(lambda a, b: a >= b, "{0} >= {1}"), operator=">=")
def greater_equal(a: Operand, b: Operand) -> Any:
    """a >= b, as bool."""


_EQUALS = ("float", "int", "bool")


@op(
    family=MAP,
    scalar=ScalarMeaning(lambda a, b: a == b, "{0} == {1}", truth=True, kinds=_EQUALS),
    operator="==",
)
def equal(a: Operand, b: Operand) -> Any:
    """a == b, as bool."""


@op(
    family=MAP,
    scalar=ScalarMeaning(lambda a, b: a != b, "{0} != {1}", truth=True, kinds=_EQUALS),
    operator="!=",
)
def not_equal(a: Operand, b: Operand) -> Any:
    """a != b, as bool."""


@op()
def where(condition: Any, a: Operand, b: Operand) -> Any:
    """a where the condition holds, else b. `a` or `b` may be a number; the others have one shape and dtype."""


@where.type
def _where_type(condition: Any, a: Any, b: Any) -> RT | RV | SCALAR:
    if not isinstance(condition, RegTile | RegVector | Scalar) or condition.dtype != bool_:
        raise Mismatch(f"`condition` must be bool in registers, not {describe(condition)}")
    values = [x for x in (a, b) if isinstance(x, Value)]
    if not values:
        raise Mismatch("`a` or `b` must be a value of the kernel")
    result = map_type(add, {"a": a, "b": b})
    if with_dtype(condition.type, result.dtype) != result:
        raise Mismatch(f"`condition` is {condition.type}, the choices are {result}")
    return result


@where.numpy
def _where_numpy(condition: Any, a: Any, b: Any) -> Any:
    x, y = computed([a, b])
    return rounded(np.where(condition, x, y), [a, b])
