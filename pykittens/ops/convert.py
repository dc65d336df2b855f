"""Making values and changing their element type."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.ir.build import current
from pykittens.ir.op import Effects, Family, Mismatch, Op
from pykittens.ir.values import RegTile, RegVector, Scalar, describe
from pykittens.ops.core import op
from pykittens.types.dtypes import DType, converted
from pykittens.types.layouts import plain_registers
from pykittens.types.tiles import RT, RV, SCALAR, Spread, with_dtype

# A lane has 255 registers; a vector that takes more than this leaves too few to compute with.
MAX_VECTOR_REGISTERS = 192


def check_tile_sides(rows: Any, cols: Any) -> None:
    """Raise unless a register tile of these sides can be spread over the warps of the group."""
    warps = current("tile").warps
    for name, side, unit in (("rows", rows, 16 * warps), ("cols", cols, 16)):
        if not isinstance(side, int) or side <= 0:
            raise Mismatch(f"`{name}` must be a positive compile-time int, not {describe(side)}")
        if side % unit:
            why = f"a group of {warps} warp{'s' * (warps > 1)}" if name == "rows" else "a tile"
            raise Mismatch(
                f"`{name}` must be a multiple of {unit} for {why}, not {side}",
                help=f"take {-(-side // unit) * unit}; what lies outside a tensor reads as the fill",
            )


def check_vector_length(length: int) -> None:
    """Raise if a plain vector does not fit the registers of its group."""
    warps = current("vector").warps
    if length and plain_registers(length, warps) > MAX_VECTOR_REGISTERS:
        most = MAX_VECTOR_REGISTERS * 32 * warps
        raise Mismatch(
            f"a vector of {length} elements does not fit the registers of {warps} warp{'s' * (warps > 1)}: "
            f"at most {most} do",
            help="spread a row over more warps (pk.warpgroups, @pk.kernel(warps=...)) or loop over parts of it",
        )


def _zeros_type(op: Op[..., Any], args: dict[str, Any]) -> RT | RV:
    dtype, rows, cols = args["dtype"], args["rows"], args["cols"]
    if not isinstance(dtype, DType):
        raise Mismatch(f"`dtype` must be a dtype such as pk.f32, not {describe(dtype)}")
    if cols is None:
        if not isinstance(rows, int) or rows <= 0:
            raise Mismatch(f"the length must be a positive compile-time int, not {describe(rows)}")
        check_vector_length(rows)
        return RV(dtype, rows, Spread.PLAIN)
    check_tile_sides(rows, cols)
    return RT(dtype, rows, cols)


def _zeros_numpy(op: Op[..., Any], args: dict[str, Any]) -> Any:
    shape = (args["rows"],) if args["cols"] is None else (args["rows"], args["cols"])
    return np.zeros(shape, args["dtype"].numpy)


MAKING = Family("making", _zeros_type, _zeros_numpy)


@op(family=MAKING)
def zeros(dtype: DType, rows: int, cols: int | None = None) -> Any:
    """A register tile of rows x cols zeros; without `cols` a plain vector of `rows` zeros."""


@op(operator="to", effects=Effects(narrows=True))
def to(x: Any, dtype: DType) -> Any:
    """x with each element rounded to the nearest value of `dtype`, ties to even.

    To fp8 it saturates, infinities included, and NaN stays. Float to int truncates and saturates, NaN gives 0; int to
    a narrower int wraps. To bool: whether it is not 0.
    """


@to.type
def _to_type(x: Any, dtype: Any) -> RT | RV | SCALAR:
    if not isinstance(x, RegTile | RegVector | Scalar):
        raise Mismatch(f"`x` must be in registers, not {describe(x)}")
    if not isinstance(dtype, DType):
        raise Mismatch(f"`dtype` must be a dtype such as pk.bf16, not {describe(dtype)}")
    return with_dtype(x.type, dtype)


@to.numpy
def _to_numpy(x: Any, dtype: DType) -> Any:
    return converted(x, dtype)[()]


@op(operator="columns")
def columns(tile: RegTile, index: Any) -> RegTile:
    """`tile[:, a:b]`: columns a to b of a tile, both multiples of 16."""


def column_range(tile: Any, index: Any) -> tuple[int, int]:
    """The columns that an index such as `[:, 0:128]` names."""
    match index:
        case (slice(start=None, stop=None, step=None), slice(step=None) as columns_):
            pass
        case _:
            raise Mismatch("a register tile is indexed as `tile[:, a:b]`: all rows, some columns")
    start = 0 if columns_.start is None else columns_.start
    stop = tile.type.cols if columns_.stop is None else columns_.stop
    return start, stop


@columns.type
def _columns_type(tile: RegTile, index: Any) -> RT:
    start, stop = column_range(tile, index)
    if not (isinstance(start, int) and isinstance(stop, int) and 0 <= start < stop <= tile.cols):
        raise Mismatch(
            f"columns {describe(start)} to {describe(stop)} do not lie in a tile of {tile.cols}"
        )
    if start % 16 or stop % 16:
        raise Mismatch(f"columns {start} to {stop} must be multiples of 16")
    return RT(tile.dtype, tile.rows, stop - start)


@columns.numpy
def _columns_numpy(tile: Any, index: Any) -> Any:
    return tile[index]
