"""Reductions along the rows of a tile, along its columns, or over all elements of a tile or vector.

Narrow floats are reduced in f32, narrow integers in int32, and rounded or wrapped once. They propagate NaN. An int
scalar that overflows is an error in the emulator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykittens.ir.op import Family, Mismatch, Op, Parts, ScalarMeaning
from pykittens.ir.values import RegTile, RegVector, Scalar, describe
from pykittens.ops.core import op
from pykittens.ops.map import (
    COMPARED,
    COUNTED,
    check_kind,
    check_tile,
    computed,
    loaded,
    rounded,
)
from pykittens.types.dtypes import OF_NUMPY, DType, bool_, converted, int32
from pykittens.types.tiles import RV, SCALAR, Spread

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Reduction(ScalarMeaning):
    """The meaning of a reduction: the function of two elements, the NumPy reduction and the identity element.

    finds: the result is the index of an element, an int32, and not the element.
    """

    folds: bool = False
    reduce: Callable[..., Any] = np.sum
    identity: float = 0.0
    finds: bool = False

    def identity_of(self, dtype: DType) -> float:
        """The identity element of a dtype; for integers the ends of the range replace the infinities."""
        if dtype.kind == "bool":
            return bool(self.identity)
        if dtype.is_float:
            return self.identity
        return int(min(max(self.identity, dtype.least), dtype.largest))


def of_numbers(first: Any, second: Any = None) -> Any:
    """Python numbers are never reduced while a kernel is recorded."""
    raise AssertionError("reductions and scans do not fold")


SUM = Reduction(of_numbers, "{0} + {1}", reduce=np.sum, hint=COUNTED)
PROD = Reduction(of_numbers, "{0} * {1}", reduce=np.prod, identity=1.0, hint=COUNTED)
MAX = Reduction(
    of_numbers, "max_nan({0}, {1})", reduce=np.max, identity=-np.inf, hint="use any for bools"
)
MIN = Reduction(
    of_numbers, "min_nan({0}, {1})", reduce=np.min, identity=np.inf, hint="use all for bools"
)
ANY = Reduction(of_numbers, "{0} || {1}", kinds=("bool",), reduce=np.any, hint=COMPARED)
ALL = Reduction(
    of_numbers, "{0} && {1}", kinds=("bool",), reduce=np.all, identity=1.0, hint=COMPARED
)
ARGMAX = Reduction(
    of_numbers, "first_max({0}, {1})", reduce=np.argmax, identity=-np.inf, finds=True, hint=COUNTED
)
ARGMIN = Reduction(
    of_numbers, "first_min({0}, {1})", reduce=np.argmin, identity=np.inf, finds=True, hint=COUNTED
)


def _meaning(op: Op[Any]) -> Reduction:
    assert isinstance(op.scalar, Reduction)
    return op.scalar


def _result_dtype(op: Op[Any], name: str, dtype: DType) -> DType:
    check_kind(op, name, dtype)
    return int32 if _meaning(op).finds else dtype


def _reduced(op: Op[Any], x: Array, axis: int) -> Any:
    """The reduction along an axis, which keeps an extent of 1."""
    meaning = _meaning(op)
    result = meaning.reduce(*computed([x]), axis=axis, keepdims=True)
    return result.astype(np.int32) if meaning.finds else rounded(result, [x])


# -- along rows and columns ------------------------------------------------------------------------


def _tile_type(op: Op[Any], args: dict[str, Any]) -> RV:
    tile = args["tile"]
    axis, _, whole = op.name.partition("_")
    help = f"pk.{whole}(...) reduces a vector to a scalar" if isinstance(tile, RegVector) else None
    check_tile("tile", tile, help)
    dtype = _result_dtype(op, "tile", tile.dtype)
    if axis == "row":
        return RV(dtype, tile.rows, Spread.PER_ROW)
    return RV(dtype, tile.cols, Spread.PER_COLUMN)


def _row_numpy(op: Op[Any], args: dict[str, Any]) -> Any:
    return _reduced(op, args["tile"], axis=1)


def _col_numpy(op: Op[Any], args: dict[str, Any]) -> Any:
    return _reduced(op, args["tile"], axis=0)


ROW_REDUCE = Family("row_reduce", _tile_type, _row_numpy)
COL_REDUCE = Family("col_reduce", _tile_type, _col_numpy)


def _in_parts(made: Any, alone: Any, joined: Any, family: Family) -> Parts:
    """The operations of a sum in parts, which only passes write and which have the names of these functions."""
    same = [Op(f.__name__, f, meaning=lambda x: x) for f in (alone, joined)]
    return Parts(Op(made.__name__, made, family=family, scalar=SUM), *same)


def row_sum_in_parts(tile: RegTile) -> RegVector:
    """The sum of the elements of each row that a lane holds: four lanes have the parts of the sum of a row."""


def row_part_alone(x: RegVector) -> RegVector:
    """A per-row vector as parts: the first lane of each row has the element, the others have zero."""


def row_parts_joined(x: RegVector) -> RegVector:
    """The per-row vector of which x has the parts."""


@op(
    family=ROW_REDUCE,
    scalar=SUM,
    parts=_in_parts(row_sum_in_parts, row_part_alone, row_parts_joined, ROW_REDUCE),
)
def row_sum(tile: RegTile) -> RegVector:
    """The sum of each row, as a per-row vector."""


@op(family=ROW_REDUCE, scalar=PROD)
def row_prod(tile: RegTile) -> RegVector:
    """The product of each row, as a per-row vector."""


@op(family=ROW_REDUCE, scalar=MAX)
def row_max(tile: RegTile) -> RegVector:
    """The largest element of each row, as a per-row vector; NaN if one is NaN."""


@op(family=ROW_REDUCE, scalar=MIN)
def row_min(tile: RegTile) -> RegVector:
    """The smallest element of each row, as a per-row vector; NaN if one is NaN."""


@op(family=ROW_REDUCE, scalar=ANY)
def row_any(tile: RegTile) -> RegVector:
    """Whether any element of each row is true, as a per-row vector."""


@op(family=ROW_REDUCE, scalar=ALL)
def row_all(tile: RegTile) -> RegVector:
    """Whether all elements of each row are true, as a per-row vector."""


@op(family=ROW_REDUCE, scalar=ARGMAX)
def row_argmax(tile: RegTile) -> RegVector:
    """The column of the largest element of each row, the first of equals, as int32; NaN counts as the largest."""


@op(family=ROW_REDUCE, scalar=ARGMIN)
def row_argmin(tile: RegTile) -> RegVector:
    """The column of the smallest element of each row, the first of equals, as int32; NaN counts as the smallest."""


@op(family=COL_REDUCE, scalar=SUM)
def col_sum(tile: RegTile) -> RegVector:
    """The sum of each column, as a per-column vector."""


@op(family=COL_REDUCE, scalar=PROD)
def col_prod(tile: RegTile) -> RegVector:
    """The product of each column, as a per-column vector."""


@op(family=COL_REDUCE, scalar=MAX)
def col_max(tile: RegTile) -> RegVector:
    """The largest element of each column, as a per-column vector; NaN if one is NaN."""


@op(family=COL_REDUCE, scalar=MIN)
def col_min(tile: RegTile) -> RegVector:
    """The smallest element of each column, as a per-column vector; NaN if one is NaN."""


@op(family=COL_REDUCE, scalar=ANY)
def col_any(tile: RegTile) -> RegVector:
    """Whether any element of each column is true, as a per-column vector."""


@op(family=COL_REDUCE, scalar=ALL)
def col_all(tile: RegTile) -> RegVector:
    """Whether all elements of each column are true, as a per-column vector."""


@op(family=COL_REDUCE, scalar=ARGMAX)
def col_argmax(tile: RegTile) -> RegVector:
    """The row of the largest element of each column, the first of equals, as int32; NaN counts as the largest."""


@op(family=COL_REDUCE, scalar=ARGMIN)
def col_argmin(tile: RegTile) -> RegVector:
    """The row of the smallest element of each column, the first of equals, as int32; NaN counts as the smallest."""


# -- over all elements -----------------------------------------------------------------------------


def _whole_type(op: Op[Any], args: dict[str, Any]) -> SCALAR:
    x = args["x"]
    if not isinstance(x, RegTile | RegVector):
        raise Mismatch(
            f"`x` must be a register tile or vector, not {describe(x)}", help=loaded(x, "x")
        )
    if _meaning(op).finds and isinstance(x, RegVector) and not x.length:
        raise Mismatch("`x` must have at least one element, not 0")
    return SCALAR(_result_dtype(op, "x", x.dtype))


def _whole_numpy(op: Op[Any], args: dict[str, Any]) -> Any:
    meaning, x = _meaning(op), args["x"]
    dtype = OF_NUMPY[x.dtype]
    if not x.size:
        identity = meaning.identity_of(dtype)
        return converted(np.float32(identity), dtype)[()] if dtype.is_float else identity
    if dtype.is_int and not meaning.finds:
        # Python's integers are exact, so an overflow of the result is found.
        return int(meaning.reduce(x.astype(object)))
    result = meaning.reduce(*computed([x]))
    return result if meaning.finds or dtype == bool_ else rounded(result, [x])


REDUCE = Family("reduce", _whole_type, _whole_numpy)


def sum_in_parts(x: RegTile | RegVector) -> Scalar:
    """The sum of the elements that a lane holds, each counted in one lane."""


def part_alone(x: Scalar) -> Scalar:
    """A scalar as parts: the first lane has it, the others have zero."""


def parts_joined(x: Scalar) -> Scalar:
    """The scalar of which x has the parts."""


@op(family=REDUCE, scalar=SUM, parts=_in_parts(sum_in_parts, part_alone, parts_joined, REDUCE))
def sum_(x: RegTile | RegVector) -> Scalar:
    """The sum of all elements of a tile or vector, known to the whole group."""


@op(family=REDUCE, scalar=PROD)
def prod(x: RegTile | RegVector) -> Scalar:
    """The product of all elements of a tile or vector, known to the whole group."""


@op(family=REDUCE, scalar=MAX)
def max_(x: RegTile | RegVector) -> Scalar:
    """The largest element of a tile or vector, known to the whole group; NaN if one is NaN."""


@op(family=REDUCE, scalar=MIN)
def min_(x: RegTile | RegVector) -> Scalar:
    """The smallest element of a tile or vector, known to the whole group; NaN if one is NaN."""


@op(family=REDUCE, scalar=ANY)
def any_(x: RegTile | RegVector) -> Scalar:
    """Whether any element of a tile or vector is true, known to the whole group."""


@op(family=REDUCE, scalar=ALL)
def all_(x: RegTile | RegVector) -> Scalar:
    """Whether all elements of a tile or vector are true, known to the whole group."""


@op(family=REDUCE, scalar=ARGMAX)
def argmax(x: RegTile | RegVector) -> Scalar:
    """The index of the largest element, counted row by row in a tile, the first of equals; NaN counts as largest."""


@op(family=REDUCE, scalar=ARGMIN)
def argmin(x: RegTile | RegVector) -> Scalar:
    """The index of the smallest element, counted row by row in a tile, the first of equals; NaN counts as smallest."""
