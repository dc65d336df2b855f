"""Reductions: many elements to one. NaN in, NaN out. 16-bit floats are reduced in f32 and rounded once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykittens.ir.op import Family, Mismatch, Op, ScalarMeaning
from pykittens.ir.values import RegTile, RegVector, describe
from pykittens.ops.core import op
from pykittens.ops.map import computed, rounded
from pykittens.types.tiles import RV, SCALAR, Spread


@dataclass(frozen=True)
class Reduction(ScalarMeaning):
    """A meaning that joins two elements, the NumPy reduction, and the element that changes nothing."""

    reduce: Callable[..., Any] = np.sum
    identity: float = 0.0


SUM = Reduction(np.add, "{0} + {1}", reduce=np.sum, identity=0.0)
MAX = Reduction(np.maximum, "max_nan({0}, {1})", reduce=np.max, identity=-np.inf)


def _row_type(op: Op[..., Any], args: dict[str, Any]) -> RV:
    tile = args["tile"]
    if not isinstance(tile, RegTile):
        plain = f"pk.{op.name.removeprefix('row_')}(...) reduces a plain vector to a scalar"
        raise Mismatch(f"`tile` must be a register tile, not {describe(tile)}", help=plain)
    _numeric(tile.dtype.kind)
    return RV(tile.dtype, tile.rows, Spread.PER_ROW)


def _row_numpy(op: Op[..., Any], args: dict[str, Any]) -> Any:
    assert isinstance(op.scalar, Reduction)
    (tile,) = computed([args["tile"]])
    return rounded(op.scalar.reduce(tile, axis=1, keepdims=True), [args["tile"]])


def _vector_type(op: Op[..., Any], args: dict[str, Any]) -> SCALAR:
    vector = args["vector"]
    if not isinstance(vector, RegVector) or vector.type.spread is not Spread.PLAIN:
        raise Mismatch(
            f"`vector` must be a plain register vector, not {describe(vector)}",
            help=f"pk.row_{op.name}(...) reduces the rows of a tile"
            if isinstance(vector, RegTile)
            else None,
        )
    _numeric(vector.dtype.kind)
    return SCALAR(vector.dtype)


def _vector_numpy(op: Op[..., Any], args: dict[str, Any]) -> Any:
    assert isinstance(op.scalar, Reduction)
    (vector,) = computed([args["vector"]])
    if not vector.size:
        return _identity(op.scalar, args["vector"].dtype)
    result = op.scalar.reduce(vector)
    # An integer stays exact, so that one which overflows is found.
    return (
        int(result)
        if np.issubdtype(type(result), np.integer)
        else rounded(result, [args["vector"]])
    )


def _identity(reduction: Reduction, dtype: np.dtype[Any]) -> Any:
    """What the reduction of nothing gives: the least int32 stands for -inf."""
    if np.issubdtype(dtype, np.integer):
        return int(max(reduction.identity, np.iinfo(dtype).min))
    return dtype.type(reduction.identity)


def _numeric(kind: str) -> None:
    if kind == "bool":
        raise Mismatch("takes float or int operands, not bool")


ROW_REDUCE = Family("row_reduce", _row_type, _row_numpy)
VECTOR_REDUCE = Family("vector_reduce", _vector_type, _vector_numpy)


@op(family=ROW_REDUCE, scalar=MAX)
def row_max(tile: RegTile) -> RegVector:
    """The largest element of each row, as a per-row vector."""


@op(family=ROW_REDUCE, scalar=SUM)
def row_sum(tile: RegTile) -> RegVector:
    """The sum of each row, as a per-row vector."""


@op(family=VECTOR_REDUCE, scalar=MAX)
def max_(vector: RegVector) -> Any:
    """The largest element of a plain vector, known to the whole group."""


@op(family=VECTOR_REDUCE, scalar=SUM)
def sum_(vector: RegVector) -> Any:
    """The sum of a plain vector, known to the whole group."""
