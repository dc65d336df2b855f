"""Rearrangements of tiles and vectors: parts, concat, transpose, rows and columns, and layouts of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.errors import AccessError
from pykittens.ir.build import current
from pykittens.ir.combining import H
from pykittens.ir.habits import BROADCAST
from pykittens.ir.numbers import is_int
from pykittens.ir.op import Mismatch
from pykittens.ir.values import Int, RegTile, RegVector, describe
from pykittens.ops.arguments import check_index
from pykittens.ops.core import op
from pykittens.ops.creation import (
    check_rows,
    check_spread,
    check_vector_length,
    spread_array,
    vector_type,
)
from pykittens.ops.map import check_tile, common_dtype, loaded
from pykittens.types.dtypes import int32
from pykittens.types.tiles import RT, RV, Spread

# -- parts -----------------------------------------------------------------------------------------


@op(operator="part")
def part(x: H, index: Any) -> H:
    """`tile[a:b, c:d]`, `tile[:, c:d]`, `vector[a:b]`: a part of a tile or of a plain vector.

    Bounds of rows are multiples of 16 x the group's warps, bounds of columns multiples of 16. A part of a tile moves
    nothing between lanes.
    """


def bounds(x: RegTile | RegVector, index: Any) -> list[tuple[int, int]]:
    """Start and stop of an index along each axis; raises Mismatch if it is no part."""
    extents, axes = x.type.shape, ("rows", "columns") if isinstance(x, RegTile) else ("elements",)
    given = index if isinstance(index, tuple) else (index,)
    form = "tile[a:b, c:d]" if isinstance(x, RegTile) else "vector[a:b]"
    if len(given) > len(extents) or not all(
        isinstance(s, slice) and s.step in (None, 1) for s in given
    ):
        help = "pk.row(tile, i) is a row and pk.column(tile, j) a column, as vectors"
        raise Mismatch(
            f"`index` must be as in `{form}`, not {describe(index)}",
            help=_added_axis(index) or (help if isinstance(x, RegTile) else None),
        )
    found = []
    for axis, extent in enumerate(extents):
        s = given[axis] if axis < len(given) else slice(None)
        start, stop = 0 if s.start is None else s.start, extent if s.stop is None else s.stop
        if not (is_int(start) and is_int(stop) and 0 <= start < stop <= extent):
            raise Mismatch(
                f"`index` must be a compile-time slice of the {extent} {axes[axis]}, not {describe(s)}"
            )
        found.append((start, stop))
    return found


def _added_axis(index: Any) -> str | None:
    """The help for NumPy's `[:, None]`."""
    given = index if isinstance(index, tuple) else (index,)
    return BROADCAST if any(i is None for i in given) else None


@part.type
def _part_type(x: Any, index: Any) -> RT | RV:
    if not isinstance(x, RegTile | RegVector):
        raise Mismatch(f"`x` must be a register tile or vector, not {describe(x)}")
    if isinstance(x, RegVector) and x.type.spread is not Spread.PLAIN:
        raise Mismatch(
            f"`x` must be a register tile or a plain vector, not {describe(x)}",
            help=_added_axis(index) or "pk.spread(x, pk.plain) makes it plain",
        )
    found = bounds(x, index)
    if isinstance(x, RegVector):
        ((start, stop),) = found
        return RV(x.dtype, stop - start, Spread.PLAIN)
    units = (16 * current("part").warps, 16)
    for (start, stop), unit, what in zip(found, units, ("rows", "columns"), strict=True):
        if start % unit or stop % unit:
            raise Mismatch(f"`index` must cut {what} at multiples of {unit}, not {start}:{stop}")
    return RT(x.dtype, *(stop - start for start, stop in found))


@part.numpy
def _part_numpy(x: Any, index: Any) -> Any:
    return x[index]


@op()
def concat(a: H, b: H, axis: int = 0) -> H:
    """a followed by b: tiles one above the other (axis 0) or side by side (axis 1), or vectors of the same spread."""


@concat.type
def _concat_type(a: Any, b: Any, axis: Any) -> RT | RV:
    if not is_int(axis) or axis not in ((0, 1) if isinstance(a, RegTile) else (0,)):
        raise Mismatch(f"`axis` must be 0, or 1 for tiles, not {describe(axis)}")
    match a, b:
        case (RegTile(), RegTile()):
            if a.shape[1 - axis] != b.shape[1 - axis]:
                what, sides = ("rows", "columns")[1 - axis], (a.shape[1 - axis], b.shape[1 - axis])
                raise Mismatch(
                    f"`a` and `b` must have the same number of {what}, not {sides[0]} and {sides[1]}"
                )
            rows, cols = a.rows, a.cols
            found: RT | RV = (
                RT(a.dtype, rows + b.rows, cols) if axis == 0 else RT(a.dtype, rows, cols + b.cols)
            )
        case (RegVector(), RegVector()):
            if a.type.spread != b.type.spread:
                raise Mismatch(
                    f"`a` and `b` must have the same spread, not {a.type.spread} and {b.type.spread}",
                    help="pk.spread(b, ...) changes the spread of a vector",
                )
            found = RV(a.dtype, a.length + b.length, a.type.spread)
            if found.spread is Spread.PLAIN:
                check_vector_length("a.length + b.length", found.length)
        case _:
            raise Mismatch(
                f"`a` and `b` must be two tiles or two vectors, not {describe(a)} and {describe(b)}",
                help=loaded(a, "a") or loaded(b, "b"),
            )
    common_dtype({"a": a, "b": b})
    return found


@concat.numpy
def _concat_numpy(a: Any, b: Any, axis: int) -> Any:
    # In the emulator a per-column vector is one row.
    return np.concatenate([a, b], axis=1 if a.shape[0] == 1 == b.shape[0] and a.ndim == 2 else axis)


@op()
def swap_pairs(x: H) -> H:
    """x with neighbours exchanged: columns 2i and 2i + 1 of a tile, or elements 2i and 2i + 1 of a vector."""


@swap_pairs.type
def _swap_pairs_type(x: Any) -> RT | RV:
    if isinstance(x, RegTile):
        return x.type
    if not isinstance(x, RegVector) or x.type.spread is Spread.PER_ROW:
        raise Mismatch(
            f"`x` must be a register tile, a plain vector or a per-column one, not {describe(x)}",
            help=loaded(x, "x"),
        )
    if x.length % 2:
        raise Mismatch(f"`x` must have an even length, not {x.length}")
    return x.type


@swap_pairs.numpy
def _swap_pairs_numpy(x: Any) -> Any:
    return x.reshape(*x.shape[:-1], -1, 2)[..., ::-1].reshape(x.shape)


@op()
def shifted(vector: RegVector, other: RegVector, by: int) -> RegVector:
    """Element i is element i - by of a plain vector; `other` is the vector before it, or behind it if by < 0.

    A warp moves few elements by shuffles, and only those that change their lane: at most as many places as a lane has
    neighbours, of a vector that fills all lanes, of 32 or 64 bits each. Others go through the group's shared memory.
    """


@shifted.type
def _shifted_type(vector: Any, other: Any, by: Any) -> RV:
    if not isinstance(vector, RegVector) or vector.type.spread is not Spread.PLAIN:
        raise Mismatch(
            f"`vector` must be a plain register vector, not {describe(vector)}",
            help=loaded(vector, "vector"),
        )
    if not isinstance(other, RegVector) or other.type != vector.type:
        raise Mismatch(
            f"`other` must be {vector.type} like `vector`, not {describe(other)}",
            help=loaded(other, "other"),
        )
    length = vector.length
    if not is_int(by) or not -length <= by <= length:
        raise Mismatch(
            f"`by` must be a compile-time int from {-length} to {length}, not {describe(by)}"
        )
    return vector.type


@shifted.numpy
def _shifted_numpy(vector: Any, other: Any, by: int) -> Any:
    both = (other, vector) if by >= 0 else (vector, other)
    first = len(vector) - by if by >= 0 else -by
    return np.concatenate(both)[first : first + len(vector)]


# -- between lanes ---------------------------------------------------------------------------------


@op()
def transpose(tile: RegTile) -> RegTile:
    """The tile with rows and columns exchanged, through the group's shared memory.

    Both sides are multiples of 16 x the group's warps.
    """


@transpose.type
def _transpose_type(tile: Any) -> RT:
    check_tile("tile", tile)
    check_rows("tile.cols", tile.cols)
    return RT(tile.dtype, tile.cols, tile.rows)


@transpose.numpy
def _transpose_numpy(tile: Any) -> Any:
    return np.ascontiguousarray(tile.T)


@op()
def spread(vector: RegVector, to: Spread) -> RegVector:
    """The vector in another layout: pk.plain, pk.per_row or pk.per_column."""


@spread.type
def _spread_type(vector: Any, to: Any) -> RV:
    if not isinstance(vector, RegVector):
        raise Mismatch(
            f"`vector` must be a register vector, not {describe(vector)}",
            help=loaded(vector, "vector"),
        )
    check_spread("to", to)
    return vector_type(vector.dtype, "vector.length", vector.length, to)


@spread.numpy
def _spread_numpy(vector: Any, to: Spread) -> Any:
    return spread_array(vector, to)


@op()
def column(tile: RegTile, j: Int | RegVector) -> RegVector:
    """Column j of a tile as a per-row vector; if j is a per-row vector, element (i, j[i]) of each row i."""


@column.type
def _column_type(tile: Any, j: Any) -> RV:
    check_tile("tile", tile)
    if isinstance(j, RegVector):
        if (j.dtype, j.length, j.type.spread) != (int32, tile.rows, Spread.PER_ROW):
            wanted = RV(int32, tile.rows, Spread.PER_ROW)
            raise Mismatch(f"`j` must be an int32 or {wanted}, not {describe(j)}")
    else:
        check_index("j", j, tile.cols, "a column index")
    return RV(tile.dtype, tile.rows, Spread.PER_ROW)


@column.numpy
def _column_numpy(tile: Any, j: Any) -> Any:
    _inside("column", j, tile.shape[1], "columns")
    columns = np.broadcast_to(np.asarray(j, np.int64), (tile.shape[0], 1))
    return np.take_along_axis(tile, columns, axis=1)


@op()
def row(tile: RegTile, i: Int) -> RegVector:
    """Row i of a tile as a per-column vector."""


@row.type
def _row_type(tile: Any, i: Any) -> RV:
    check_tile("tile", tile)
    check_index("i", i, tile.rows, "a row index")
    return RV(tile.dtype, tile.cols, Spread.PER_COLUMN)


@row.numpy
def _row_numpy(tile: Any, i: int) -> Any:
    _inside("row", i, tile.shape[0], "rows")
    return tile[i : i + 1]


def _inside(name: str, index: Any, count: int, what: str) -> None:
    """Raise unless a run-time index is inside the tile."""
    outside = [int(i) for i in np.ravel(index) if not 0 <= i < count]
    if outside:
        raise AccessError(f"{name}: {outside[0]} is outside the {count} {what} of the tile")
