"""The elements of the rows of a tile in order, with their columns.

NaN counts as larger than every number, whether the largest or the smallest element comes first. Of equal elements the
one with the smaller column comes first. -0 equals 0 and is returned as 0; any NaN is returned as one NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.ir.op import Mismatch, ScalarMeaning
from pykittens.ir.values import RegTile
from pykittens.ops.arguments import check_between, check_truth
from pykittens.ops.core import op
from pykittens.ops.map import COUNTED, check_kind, check_tile, computed, rounded
from pykittens.ops.reduce import MAX, MIN, of_numbers
from pykittens.types.dtypes import OF_NUMPY, DType, converted, int32
from pykittens.types.tiles import RT

Array = np.ndarray[Any, Any]

MOST_TAKEN, MOST_SORTED = 32, 256
ORDER = ScalarMeaning(of_numbers, "{0} < {1}", hint=COUNTED, folds=False)


def taken_width(k: int) -> int:
    """The columns of a tile that holds the first k elements of each row."""
    return -(-k // 16) * 16


def after_the_last(dtype: DType, largest: bool) -> float:
    """The value of the columns past the k-th: it changes no maximum or, with largest=False, no minimum."""
    return (MAX if largest else MIN).identity_of(dtype)


def _in_order(tile: Array, first: int, descending: bool) -> tuple[Array, Array]:
    """The first elements of each row and their columns."""
    (wide,) = computed([tile])
    # NumPy's stable sort puts NaN last and the smaller column of equals first. Read backwards, the reverse holds.
    if descending:
        order = tile.shape[1] - 1 - np.argsort(wide[:, ::-1], axis=1, kind="stable")[:, ::-1]
    else:
        order = np.argsort(wide, axis=1, kind="stable")
    values = np.take_along_axis(wide, order[:, :first], axis=1)
    values = np.where(values == 0, values.dtype.type(0), values)
    return rounded(values, [tile]), order[:, :first].astype(np.int32)


@op(scalar=ORDER)
def row_topk(tile: RegTile, k: int, largest: bool = True) -> tuple[RegTile, RegTile]:
    """The k largest elements of each row, in descending order, and their columns as int32; k is from 1 to 32.

    With largest=False, the k smallest in ascending order. NaN counts as the largest in both cases. Of equal elements
    the one with the smaller column comes first. Both results have k columns rounded up to a multiple of 16; the columns
    past the k-th hold -inf, for fp8 and ints the least number, and the index -1. With largest=False they hold inf or
    the largest number. -0 is returned as 0. `tile` is of floats or ints.
    """


@row_topk.type
def _row_topk_type(tile: Any, k: Any, largest: Any) -> tuple[RT, RT]:
    check_tile("tile", tile)
    check_kind(row_topk, "tile", tile.dtype)
    check_between("k", k, 1, min(MOST_TAKEN, tile.cols))
    check_truth("largest", largest)
    width = taken_width(k)
    return RT(tile.dtype, tile.rows, width), RT(int32, tile.rows, width)


@row_topk.numpy
def _row_topk_numpy(tile: Array, k: int, largest: bool) -> tuple[Array, Array]:
    dtype, shape = OF_NUMPY[tile.dtype], (len(tile), taken_width(k))
    last = after_the_last(dtype, largest)
    values = np.full(
        shape, converted(np.float32(last), dtype) if dtype.is_float else last, tile.dtype
    )
    indices = np.full(shape, -1, np.int32)
    values[:, :k], indices[:, :k] = _in_order(tile, k, largest)
    return values, indices


@op(scalar=ORDER)
def row_sort(tile: RegTile, descending: bool = False) -> tuple[RegTile, RegTile]:
    """The elements of each row in ascending or descending order, and their columns as int32.

    NaN counts as the largest: it comes last, or first if descending. Of equal elements the one with the smaller column
    comes first in both orders. -0 is returned as 0. `tile` is of floats or ints and has 16, 32, 64, 128 or 256 columns.
    A sort of which no index is used takes about half the registers for elements of 32 bits.
    """


@row_sort.type
def _row_sort_type(tile: Any, descending: Any) -> tuple[RT, RT]:
    check_tile("tile", tile)
    check_kind(row_sort, "tile", tile.dtype)
    check_truth("descending", descending)
    if tile.cols > MOST_SORTED or tile.cols & (tile.cols - 1):
        more = (1 << tile.cols.bit_length()) - tile.cols
        padded = f"pk.concat(tile, pk.full({tile.dtype.word}, value, {tile.rows}, {more}), axis=1)"
        raise Mismatch(
            f"`tile` must have 16, 32, 64, 128 or 256 columns, not {tile.cols}",
            help=f"{padded} adds {more} columns of a value that comes last"
            if tile.cols < MOST_SORTED
            else f"pk.row_topk(tile, k) gives the first {MOST_TAKEN} or fewer of a wider row",
        )
    return tile.type, RT(int32, tile.rows, tile.cols)


@row_sort.numpy
def _row_sort_numpy(tile: Array, descending: bool) -> tuple[Array, Array]:
    return _in_order(tile, tile.shape[1], descending)
