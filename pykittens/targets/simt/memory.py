"""Tiles and vectors between global memory and registers, by chunks of neighbouring elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pykittens.ir.nodes import Call
from pykittens.ir.values import Global, TileRef, Value
from pykittens.targets.emitter import Emitter
from pykittens.targets.simt.target import SIMT
from pykittens.targets.source import number
from pykittens.types.dtypes import DType
from pykittens.types.layouts import plain_chunk
from pykittens.types.tiles import RT

MEMORY_TYPES = {
    "f32": "float",
    "int32": "int",
    "bool": "bool",
    "int64": "i64",
    "bf16": "unsigned short",
    "f16": "unsigned short",
} | {name: "unsigned char" for name in ("e4m3", "e5m2", "int8", "uint8")}


@dataclass(frozen=True)
class Place:
    """A tile of a tensor in C++: the matrix it lies in, and its first row and column."""

    matrix: str
    stride: str
    row: str
    col: str
    rows: str
    cols: str


def place(e: Emitter, ref: TileRef | Global, rows: int, cols: int) -> Place:
    """Where a tile of rows x cols lies."""
    tensor = ref.tensor if isinstance(ref, TileRef) else ref.owner
    index = ref.index if isinstance(ref, TileRef) else ref.leading + (0,) * ref.rank
    rank = len(tensor.extents)
    matrix = e.pointer(tensor)
    for axis in range(rank - 2):
        if index[axis] != 0 if isinstance(index[axis], int) else True:
            matrix += f" + (i64){e.scalar(index[axis])} * {e.stride(tensor, axis)}"
    if rank == 1:
        return Place(matrix, "0", "0", scaled(e, index[-1], cols), "1", e.extent(tensor, 0))
    return Place(
        matrix,
        e.stride(tensor, rank - 2),
        scaled(e, index[-2], rows),
        scaled(e, index[-1], cols),
        e.extent(tensor, rank - 2),
        e.extent(tensor, rank - 1),
    )


def scaled(e: Emitter, index: Any, unit: int) -> str:
    """An index in elements."""
    if isinstance(index, int):
        return str(index * unit)
    return e.scalar(index) if unit == 1 else f"{e.scalar(index)} * {unit}"


def _fill(dtype: DType, value: float) -> str:
    if dtype.packing > 1:
        return f"{int(np.array(value, dtype.numpy).view(f'uint{dtype.bits}')):#x}u"
    return number(value, dtype)


def _chunks(e: Emitter, value: Value, ref: TileRef | Global, move: str) -> None:
    """One loop over the chunks of a value; `move` is filled with the register, the row and the columns."""
    tensor = ref.tensor if isinstance(ref, TileRef) else ref.owner
    name, warps = e.array(value), e.role.warps
    if isinstance(value.type, RT):
        cols = value.type.cols
        at = place(e, ref, value.type.rows, cols)
        chunk, count, col, end = 2, e.registers(value), f"tile_col<{cols}>(i, lane)", at.cols
        row = f"{at.row} + tile_row<{cols}, {warps}>(i, warp, lane)"
    else:
        length = value.type.length  # type: ignore[union-attr]
        at = place(e, ref, 1, length)
        chunk, count = plain_chunk(length, warps), e.registers(value)
        col = f"vector_at<{chunk}, {warps * 32}>(i, thread)"
        end, row = f"min({at.cols}, {at.col} + {length})", at.row
    # A chunk is aligned if the tensor is and tiles start at multiples of it.
    extent = value.type.cols if isinstance(value.type, RT) else value.type.length  # type: ignore[union-attr]
    vector = tensor.type.aligned and (extent % chunk == 0 or at.col == "0")
    with e.braces(f"UNROLL for (int i = 0; i < {count}; i += {chunk}) {{"):
        e.line(f"const int at_row = {row};")
        e.line(f"const bool inside = at_row >= 0 && at_row < {at.rows};")
        e.line(
            move.format(
                template=f"<{chunk}, {str(vector).lower()}>",
                registers=name,
                row=f"{at.matrix} + (inside ? at_row * (i64){at.stride} : 0)",
                col=f"{at.col} + {col}" if at.col != "0" else col,
                cols=f"inside ? {end} : 0",
            )
        )


@SIMT.lower("load")
def lower_load(e: Emitter, call: Call) -> None:
    (result,) = call.results
    e.declare(result)
    fill = _fill(result.dtype, call.args["fill"])
    _chunks(
        e,
        result,
        call.args["src"],
        f"load_chunk{{template}}({{registers}}, i, {{row}}, {{col}}, {{cols}}, {fill});",
    )


def lower_store_global(e: Emitter, call: Call) -> None:
    """Registers to a tensor."""
    _chunks(
        e,
        call.args["value"],
        call.args["dst"],
        "store_chunk{template}({registers}, i, {row}, {col}, {cols});",
    )
