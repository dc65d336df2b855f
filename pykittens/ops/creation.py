"""Constant tiles and vectors, and the positions of their elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.ir.build import current
from pykittens.ir.op import Family, Mismatch, Op
from pykittens.ir.values import RegVector, Scalar, describe
from pykittens.ops.arguments import check_size
from pykittens.ops.core import op
from pykittens.types.dtypes import DType, int32
from pykittens.types.layouts import plain_registers
from pykittens.types.tiles import RT, RV, Spread

# A lane has 255 registers; a vector that takes more than this leaves too few to compute with.
MAX_VECTOR_REGISTERS = 192


# -- what fits the registers of a group ------------------------------------------------------------


def check_rows(name: str, side: Any) -> None:
    """Raise unless so many rows can be dealt to the warps of the group, 16 at a time."""
    warps = current("tile").warps
    check_size(name, side, 16 * warps, f"for a group of {counted_warps(warps)}")


def check_cols(name: str, side: Any) -> None:
    """Raise unless a tile can have so many columns."""
    check_size(name, side, 16, "for a tile")


def counted_warps(warps: int) -> str:
    """`1 warp`, `4 warps`."""
    return f"{warps} warp{'s' * (warps > 1)}"


def check_tile_sides(rows: Any, cols: Any) -> None:
    """Raise unless a register tile of these sides can be spread over the warps of the group."""
    check_rows("rows", rows)
    check_cols("cols", cols)


def check_vector_length(name: str, length: int) -> None:
    """Raise if a plain vector does not fit the registers of its group."""
    warps = current("vector").warps
    if length and plain_registers(length, warps) > MAX_VECTOR_REGISTERS:
        most = MAX_VECTOR_REGISTERS * 32 * warps
        raise Mismatch(
            f"`{name}` must be at most {most}, what the registers of {counted_warps(warps)} hold, not {length}",
            help="spread a row over more warps (pk.warpgroups, @pk.kernel(warps=...)) or loop over parts of it",
        )


def made_type(dtype: Any, rows: Any, cols: Any) -> RT | RV:
    """The type of a tile of rows x cols; without `cols` of a plain vector of `rows` elements."""
    if not isinstance(dtype, DType):
        raise Mismatch(f"`dtype` must be a dtype such as pk.f32, not {describe(dtype)}")
    if cols is None:
        return plain_type(dtype, "rows", rows)
    check_tile_sides(rows, cols)
    return RT(dtype, rows, cols)


def plain_type(dtype: DType, name: str, length: Any) -> RV:
    """The type of a plain vector that is made."""
    check_size(name, length)
    check_vector_length(name, length)
    return RV(dtype, length, Spread.PLAIN)


# -- constants -------------------------------------------------------------------------------------


def _creation_type(op: Op[..., Any], args: dict[str, Any]) -> RT | RV:
    type_ = made_type(args["dtype"], args["rows"], args["cols"])
    value, dtype = args.get("value", 0), type_.dtype
    if isinstance(value, Scalar):
        if value.dtype != dtype:
            raise Mismatch(
                f"`value` must be {dtype}, not {value.dtype}", help=f"`value.to({dtype.word})`"
            )
    elif not isinstance(value, int | float) or not dtype.represents(value):
        raise Mismatch(f"`value` must be a number that {dtype} has, not {describe(value)}")
    return type_


def _creation_numpy(op: Op[..., Any], args: dict[str, Any]) -> Any:
    shape = (args["rows"],) if args["cols"] is None else (args["rows"], args["cols"])
    return np.full(shape, args.get("value", 0), args["dtype"].numpy)


CREATION = Family("creation", _creation_type, _creation_numpy)


@op(family=CREATION)
def zeros(dtype: DType, rows: int, cols: int | None = None) -> Any:
    """A register tile of rows x cols zeros; without `cols` a plain vector of `rows` zeros."""


@op(family=CREATION)
def full(dtype: DType, value: Any, rows: int, cols: int | None = None) -> Any:
    """A register tile of rows x cols elements that are all `value`, a number or a scalar of the dtype.

    Without `cols` a plain vector of `rows` elements.
    """


# -- positions -------------------------------------------------------------------------------------


@op()
def iota(length: int) -> RegVector:
    """A plain int32 vector of 0, 1, … length - 1."""


@iota.type
def _iota_type(length: Any) -> RV:
    return plain_type(int32, "length", length)


@iota.numpy
def _iota_numpy(length: int) -> Any:
    return np.arange(length, dtype=np.int32)


@op()
def row_index(rows: int) -> RegVector:
    """The numbers of the rows of a tile, 0, 1, … rows - 1, as a per-row int32 vector."""


@row_index.type
def _row_index_type(rows: Any) -> RV:
    check_rows("rows", rows)
    return RV(int32, rows, Spread.PER_ROW)


@row_index.numpy
def _row_index_numpy(rows: int) -> Any:
    return np.arange(rows, dtype=np.int32)[:, None]


@op()
def col_index(cols: int) -> RegVector:
    """The numbers of the columns of a tile, 0, 1, … cols - 1, as a per-column int32 vector."""


@col_index.type
def _col_index_type(cols: Any) -> RV:
    check_cols("cols", cols)
    return RV(int32, cols, Spread.PER_COLUMN)


@col_index.numpy
def _col_index_numpy(cols: int) -> Any:
    return np.arange(cols, dtype=np.int32)[None, :]
