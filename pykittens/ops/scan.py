"""Scans: each element combined with all before it, along a plain vector, or the rows or columns of a tile.

Narrow floats are scanned in f32, narrow integers in int32, and rounded or wrapped once. They propagate NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykittens.ir.op import Family, Mismatch, Op
from pykittens.ir.values import RegTile, RegVector, describe
from pykittens.ops.core import op
from pykittens.ops.map import COUNTED, check_kind, check_tile, computed, loaded, rounded
from pykittens.ops.reduce import MAX, MIN, PROD, SUM, Reduction
from pykittens.types.tiles import RT, RV, Spread

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Scan(Reduction):
    """A reduction that keeps its partial results, and the NumPy function that returns all of them."""

    accumulate: Callable[..., Any] = np.cumsum


def _kept(reduction: Reduction, accumulate: Callable[..., Any]) -> Scan:
    return Scan(
        reduction.numpy,
        reduction.c,
        identity=reduction.identity,
        accumulate=accumulate,
        hint=COUNTED,
    )


CUMSUM, CUMPROD = _kept(SUM, np.cumsum), _kept(PROD, np.cumprod)
CUMMAX = _kept(MAX, np.maximum.accumulate)
CUMMIN = _kept(MIN, np.minimum.accumulate)


def _vector_type(op: Op[Any], args: dict[str, Any]) -> RV:
    vector = args["vector"]
    if not isinstance(vector, RegVector) or vector.type.spread is not Spread.PLAIN:
        help = loaded(vector, "vector")
        if isinstance(vector, RegTile):
            help = (
                f"pk.row_{op.name}(...) scans the rows of a tile, pk.col_{op.name}(...) its columns"
            )
        elif isinstance(vector, RegVector):
            help = "pk.spread(vector, pk.plain) makes it plain"
        raise Mismatch(
            f"`vector` must be a plain register vector, not {describe(vector)}", help=help
        )
    check_kind(op, "vector", vector.dtype)
    return vector.type


def _tile_type(op: Op[Any], args: dict[str, Any]) -> RT:
    tile = args["tile"]
    _, _, whole = op.name.partition("_")
    check_tile(
        "tile", tile, f"pk.{whole}(...) scans a vector" if isinstance(tile, RegVector) else None
    )
    check_kind(op, "tile", tile.dtype)
    result: RT = tile.type
    return result


def _accumulated(op: Op[Any], args: dict[str, Any], axis: int) -> Any:
    assert isinstance(op.scalar, Scan)
    (x,) = args.values()
    return rounded(op.scalar.accumulate(*computed([x]), axis=axis), [x])


def _last_numpy(op: Op[Any], args: dict[str, Any]) -> Any:
    return _accumulated(op, args, axis=-1)


def _col_numpy(op: Op[Any], args: dict[str, Any]) -> Any:
    return _accumulated(op, args, axis=0)


VECTOR_SCAN = Family("scan", _vector_type, _last_numpy)
ROW_SCAN = Family("row_scan", _tile_type, _last_numpy)
COL_SCAN = Family("col_scan", _tile_type, _col_numpy)


@op(family=VECTOR_SCAN, scalar=CUMSUM)
def cumsum(vector: RegVector) -> RegVector:
    """The sum of the elements of a plain vector up to and including each."""


@op(family=VECTOR_SCAN, scalar=CUMPROD)
def cumprod(vector: RegVector) -> RegVector:
    """The product of the elements of a plain vector up to and including each."""


@op(family=VECTOR_SCAN, scalar=CUMMAX)
def cummax(vector: RegVector) -> RegVector:
    """The largest element of a plain vector up to and including each; NaN from the first NaN on."""


@op(family=VECTOR_SCAN, scalar=CUMMIN)
def cummin(vector: RegVector) -> RegVector:
    """The smallest element of a plain vector up to and including each; NaN from the first NaN on."""


@op(family=ROW_SCAN, scalar=CUMSUM)
def row_cumsum(tile: RegTile) -> RegTile:
    """The sum of the elements of each row up to and including each element."""


@op(family=ROW_SCAN, scalar=CUMPROD)
def row_cumprod(tile: RegTile) -> RegTile:
    """The product of the elements of each row up to and including each element."""


@op(family=ROW_SCAN, scalar=CUMMAX)
def row_cummax(tile: RegTile) -> RegTile:
    """The largest element of each row up to and including each element; NaN from the first NaN on."""


@op(family=ROW_SCAN, scalar=CUMMIN)
def row_cummin(tile: RegTile) -> RegTile:
    """The smallest element of each row up to and including each element; NaN from the first NaN on."""


@op(family=COL_SCAN, scalar=CUMSUM)
def col_cumsum(tile: RegTile) -> RegTile:
    """The sum of the elements of each column down to and including each element."""


@op(family=COL_SCAN, scalar=CUMPROD)
def col_cumprod(tile: RegTile) -> RegTile:
    """The product of the elements of each column down to and including each element."""


@op(family=COL_SCAN, scalar=CUMMAX)
def col_cummax(tile: RegTile) -> RegTile:
    """The largest element of each column down to and including each element; NaN from the first NaN on."""


@op(family=COL_SCAN, scalar=CUMMIN)
def col_cummin(tile: RegTile) -> RegTile:
    """The smallest element of each column down to and including each element; NaN from the first NaN on."""
