"""Constant tiles and vectors, and the positions of elements."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from pykittens.ir.build import current
from pykittens.ir.combining import Number
from pykittens.ir.op import Family, Mismatch, Op
from pykittens.ir.values import RegTile, RegVector, Scalar, describe
from pykittens.ops.arguments import check_dtype, check_number, check_size
from pykittens.ops.core import op, typed
from pykittens.types.dtypes import DType, int32
from pykittens.types.layouts import plain_registers
from pykittens.types.tiles import RT, RV, Spread

# A lane has 255 registers; a vector of more elements per lane leaves too few to compute with.
MAX_VECTOR_REGISTERS = 192


# -- limits of a group's registers -----------------------------------------------------------------


def check_rows(name: str, side: Any) -> None:
    """Raise unless a number of rows can be divided among the warps of the group in blocks of 16."""
    warps = current("tile").warps
    check_size(name, side, 16 * warps, f"for a group of {counted_warps(warps)}")


def check_cols(name: str, side: Any) -> None:
    """Raise unless a tile can have this number of columns."""
    check_size(name, side, 16, "for a tile")


def counted_warps(warps: int) -> str:
    """`1 warp`, `4 warps`."""
    return f"{warps} warp{'s' * (warps > 1)}"


def check_tile_sides(rows: Any, cols: Any) -> None:
    """Raise unless the warps of the group can hold a register tile of these sides."""
    check_rows("rows", rows)
    check_cols("cols", cols)


def check_vector_length(name: str, length: int) -> None:
    """Raise if a plain vector does not fit the registers of the group."""
    warps = current("vector").warps
    if length and plain_registers(length, warps) > MAX_VECTOR_REGISTERS:
        most = MAX_VECTOR_REGISTERS * 32 * warps
        raise Mismatch(
            f"`{name}` must be at most {most}, the capacity of the registers of {counted_warps(warps)}, not {length}",
            help="use more warps (pk.warpgroups, @pk.kernel(warps=...)) or loop over parts of the vector",
        )


def tile_type(dtype: DType, rows: Any, cols: Any) -> RT:
    """The type of a register tile of rows x cols."""
    check_tile_sides(rows, cols)
    return RT(dtype, rows, cols)


def plain_type(dtype: DType, name: str, length: Any) -> RV:
    """The type of a plain register vector of `length` elements."""
    check_size(name, length)
    return vector_type(dtype, name, length, Spread.PLAIN)


def check_spread(name: str, x: Any) -> None:
    """Raise unless an argument is a layout of vectors."""
    if not isinstance(x, Spread):
        raise Mismatch(
            f"`{name}` must be pk.plain, pk.per_row, pk.per_column or pk.lane_order, not {describe(x)}"
        )


def vector_type(dtype: DType, name: str, length: int, spread: Spread) -> RV:
    """The type of a register vector, if the lanes of the group can hold it with this spread."""
    warps = current("vector").warps
    if spread is Spread.PLAIN:
        check_vector_length(name, length)
        return RV(dtype, length, spread)
    if spread is Spread.LANE_ORDER:
        check_size(
            name, length, 256 * warps, f"in lane order for a group of {counted_warps(warps)}"
        )
        check_vector_length(name, length)
        return RV(dtype, length, spread)
    per_row = spread is Spread.PER_ROW
    (check_rows if per_row else check_cols)(name, length)
    most = MAX_VECTOR_REGISTERS * (8 * warps if per_row else 4)
    if length > most:
        raise Mismatch(
            f"`{name}` must be at most {most} for a vector that is {spread}, not {length}",
            help="loop over parts of the vector",
        )
    return RV(dtype, length, spread)


def check_no_spread(spread: Spread, help: str, what: str = "a tile") -> None:
    """Raise unless the spread of a tile, or of what is moved as a plain vector, is the default."""
    if spread is not Spread.PLAIN:
        raise Mismatch(f"`spread` must be left out for {what}, not {spread}", help=help)


def spread_array(vector: Any, spread: Spread) -> Any:
    """A vector in the shape that NumPy broadcasts according to the spread."""
    if spread is Spread.PER_ROW:
        return vector.reshape(-1, 1)
    return vector.reshape(1, -1) if spread is Spread.PER_COLUMN else vector.reshape(-1)


# -- constants -------------------------------------------------------------------------------------


def _creation_type(op: Op[Any], args: dict[str, Any]) -> RT | RV:
    dtype, rows, cols, spread = (args[name] for name in ("dtype", "rows", "cols", "spread"))
    check_dtype("dtype", dtype)
    check_spread("spread", spread)
    if cols is None:
        check_size("rows", rows)
        type_: RT | RV = vector_type(dtype, "rows", rows, spread)
    else:
        check_no_spread(spread, "leave out `cols` to make a vector")
        type_ = tile_type(dtype, rows, cols)
    value = args.get("value", 0)
    if not isinstance(value, Scalar):
        check_number("value", value, dtype)
    elif value.dtype != dtype:
        raise Mismatch(
            f"`value` must be {dtype}, not {value.dtype}",
            help=f"convert it: `value.to({dtype.word})`",
        )
    return type_


def _creation_numpy(op: Op[Any], args: dict[str, Any]) -> Any:
    rows, cols, value, dtype = args["rows"], args["cols"], args.get("value", 0), args["dtype"]
    if cols is None:
        return spread_array(np.full(rows, value, dtype.numpy), args["spread"])
    return np.full((rows, cols), value, dtype.numpy)


CREATION = Family("creation", _creation_type, _creation_numpy)


class Zeros:
    """The type of `zeros`, for type checkers."""

    @overload
    def __call__(self, dtype: DType, rows: int, cols: int) -> RegTile: ...
    @overload
    def __call__(self, dtype: DType, rows: int, *, spread: Spread = Spread.PLAIN) -> RegVector: ...
    def __call__(self, dtype: DType, rows: int, *sides: Any, **words: Any) -> Any:
        """See `zeros`."""


class Full:
    """The type of `full`, for type checkers."""

    @overload
    def __call__(self, dtype: DType, value: Number, rows: int, cols: int) -> RegTile: ...
    @overload
    def __call__(
        self, dtype: DType, value: Number, rows: int, *, spread: Spread = Spread.PLAIN
    ) -> RegVector: ...
    def __call__(self, dtype: DType, value: Number, rows: int, *sides: Any, **words: Any) -> Any:
        """See `full`."""


@op(family=CREATION)
@typed(Zeros)
def zeros(dtype: DType, rows: int, cols: int | None = None, spread: Spread = Spread.PLAIN) -> Any:
    """A register tile of rows x cols zeros; without `cols`, a vector of `rows` zeros with this spread."""


@op(family=CREATION)
@typed(Full)
def full(
    dtype: DType, value: Any, rows: int, cols: int | None = None, spread: Spread = Spread.PLAIN
) -> Any:
    """A register tile of rows x cols elements that are all `value`, a Python number or a scalar of the dtype.

    Without `cols`, a vector of `rows` elements with this spread.
    """


# -- positions -------------------------------------------------------------------------------------


@op()
def iota(length: int) -> RegVector:
    """A plain int32 vector of 0, 1, …, length - 1."""


@iota.type
def _iota_type(length: Any) -> RV:
    return plain_type(int32, "length", length)


@iota.numpy
def _iota_numpy(length: int) -> Any:
    return np.arange(length, dtype=np.int32)


@op()
def row_index(rows: int) -> RegVector:
    """The indices of the rows of a tile, 0, 1, …, rows - 1, as a per-row int32 vector."""


@row_index.type
def _row_index_type(rows: Any) -> RV:
    check_rows("rows", rows)
    return RV(int32, rows, Spread.PER_ROW)


@row_index.numpy
def _row_index_numpy(rows: int) -> Any:
    return np.arange(rows, dtype=np.int32)[:, None]


@op()
def col_index(cols: int) -> RegVector:
    """The indices of the columns of a tile, 0, 1, …, cols - 1, as a per-column int32 vector."""


@col_index.type
def _col_index_type(cols: Any) -> RV:
    check_cols("cols", cols)
    return RV(int32, cols, Spread.PER_COLUMN)


@col_index.numpy
def _col_index_numpy(cols: int) -> Any:
    return np.arange(cols, dtype=np.int32)[None, :]
