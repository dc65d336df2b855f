"""Shared tiles and vectors in C++: their addresses, their views, and what goes between them and registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pykittens.ir.nodes import Call, Role
from pykittens.ir.values import SharedTile, SharedVector
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.sm_80 import SM_80
from pykittens.targets.cuda.sm_90 import SM_90
from pykittens.targets.place import Place
from pykittens.targets.simt.memory import (
    MEMORY_TYPES,
    fill_bits,
    load_chunks,
    store_chunks,
)
from pykittens.targets.simt.memory import lower_load as lower_load_global
from pykittens.targets.simt.memory import lower_store as lower_store_global
from pykittens.targets.sites import check_view
from pykittens.types.tiles import ST


@dataclass(frozen=True)
class SharedPlace:
    """Where a tile starts: the address of its first row, and bytes into the row where it is part of a panel."""

    row: str
    byte: str = "0"

    @property
    def address(self) -> str:
        return self.row if self.byte == "0" else f"{self.row} + {self.byte}"


def shared_place(e: CudaEmitter, tile: SharedTile) -> SharedPlace:
    """The place of a tile that has a name, or of a view of one."""
    source = tile.source
    if not isinstance(source, Call) or "tile" not in source.args:
        return SharedPlace(e.names(tile))
    owner = shared_place(e, source.args["tile"])
    type_: ST = tile.type
    layout = type_.layout
    row = owner.row
    if (down := times(e, source.args["i"], tile.rows * layout.swizzle)) != "0":
        row += f" + {down}"
    width = tile.cols * type_.dtype.bytes
    if width % layout.swizzle == 0:
        if (
            right := times(e, source.args["j"], width // layout.swizzle * layout.panel_bytes)
        ) != "0":
            row += f" + {right}"
        return SharedPlace(row, owner.byte)
    byte = times(e, source.args["j"], width)
    if byte != "0":
        row += f" + ({byte}) / {layout.swizzle} * {layout.panel_bytes}"
        byte = f"({byte}) % {layout.swizzle}"
    return SharedPlace(row, byte if owner.byte == "0" else f"{owner.byte} + {byte}")


def times(e: CudaEmitter, index: Any, unit: int) -> str:
    """An index times a number of bytes."""
    return str(index * unit) if isinstance(index, int) else f"{e.scalar(index)} * {unit}"


@SM_80.lower("view")
def lower_view(e: CudaEmitter, call: Call) -> None:
    """A view has no code of its own: what uses it computes its address."""
    tile, view = call.args["tile"], call.results[0]
    assert isinstance(view, SharedTile)
    check_view(e, tile, call.args["i"], call.args["j"], view.rows, view.cols)


@SM_80.lower("load")
def lower_load(e: CudaEmitter, call: Call) -> None:
    tile = call.args["src"]
    if not isinstance(tile, SharedTile):
        lower_load_global(e, call)
        return
    (result,) = call.results
    if isinstance(tile, SharedVector):
        load_chunks(e, result, _vector_place(e, tile), fill_bits(tile.dtype, 0))
        return
    e.declare(result)
    name, count = e.array(result), e.registers(result)
    if tile.dtype.bits == 16:
        regs = ", ".join(f"{name}[4 * i + {k}]" for k in range(4))
        e.line(
            f"UNROLL for (int i = 0; i < {count // 8}; ++i) load_matrix({_matrix_address(e, tile)}, {regs});"
        )
    else:
        e.line(
            f"UNROLL for (int i = 0; i < {count}; i += 2) load_pair({_pair_address(e, tile)}, {name}, i);"
        )


@SM_80.lower("store")
def lower_store(e: CudaEmitter, call: Call) -> None:
    tile, value = call.args["dst"], call.args["value"]
    if not isinstance(tile, SharedTile):
        lower_store_global(e, call)
        return
    if isinstance(tile, SharedVector):
        store_chunks(e, value, _vector_place(e, tile))
        return
    pair = _PAIRS[tile.dtype.bits if tile.dtype.bits < 32 else tile.dtype.name].format(
        e.array(value)
    )
    swizzle, warps, at = tile.type.layout.swizzle, e.role.warps, shared_place(e, tile)
    down = f"(i / {tile.cols // 2} * {warps * 16} + i / 2 % 2 * 8) * {swizzle}"
    byte = f"tile_col<{tile.cols}>(i, lane) * {tile.dtype.bytes}"
    byte += "" if at.byte == "0" else f" + {at.byte}"
    address = f"row_at<{swizzle}>(at_row + {down}, turn, {byte}, {tile.type.layout.panel_bytes})"
    # All rows of a lane are turned alike; an address of its own for each would be kept over loops.
    with e.braces("{"):
        row = f"(warp * 16 + lane / 4) * {swizzle}"
        e.line(f"const u32 at_row = {at.row} + {row}, turn = turn_of<{swizzle}>(lane / 4);")
        e.line(
            f"UNROLL for (int i = 0; i < {e.registers(value)}; i += 2) store_shared({address}, {pair});"
        )


# Two neighbours of a row, registers i and i + 1, as they go to shared memory.
_PAIRS: dict[int | str, str] = {
    8: "(unsigned short)({0}[i / 4] >> i % 4 * 8)",
    16: "{0}[i / 2]",
    "f32": "__float_as_uint({0}[i]), __float_as_uint({0}[i + 1])",
    "int32": "(u32){0}[i], (u32){0}[i + 1]",
    "int64": "{0}[i], {0}[i + 1]",
}


def is_no_matrix_store(role: Role, call: Call) -> str | None:
    """Why four 8x8 matrices of 16-bit elements cannot go to shared memory at once."""
    tile = call.args["dst"]
    if isinstance(tile, SharedVector):
        return "a vector is no matrix"
    if isinstance(tile, SharedTile) and tile.dtype.bits == 16:
        return None
    return "stores of whole matrices are of 16-bit elements to shared memory"


@SM_90.lower("store", declines=is_no_matrix_store)
def lower_store_matrices(e: CudaEmitter, call: Call) -> None:
    tile, value = call.args["dst"], call.args["value"]
    regs = ", ".join(f"{e.array(value)}[4 * i + {k}]" for k in range(4))
    e.line(
        f"UNROLL for (int i = 0; i < {e.registers(value) // 8}; ++i) "
        f"store_matrix({_matrix_address(e, tile)}, {regs});"
    )


def _pair_address(e: CudaEmitter, tile: SharedTile) -> str:
    """Where the neighbours lie that a lane holds in registers i and i + 1."""
    row = f"tile_row<{tile.cols}, {e.role.warps}>(i, warp, lane)"
    return _address(e, tile, row, f"tile_col<{tile.cols}>(i, lane) * {tile.dtype.bytes}")


def _matrix_address(e: CudaEmitter, tile: SharedTile) -> str:
    """The address that a lane gives to the i-th move of four 8x8 matrices of 16 bits: 16 rows by 16 columns."""
    pieces = tile.cols // 16
    row = f"(i / {pieces} * {e.role.warps} + warp) * 16 + lane % 16"
    return _address(e, tile, row, f"i % {pieces} * 32 + lane / 16 * 16")


def _address(e: CudaEmitter, tile: SharedTile, row: str, byte: str) -> str:
    """The address of a byte of a row of a tile."""
    layout, at = tile.type.layout, shared_place(e, tile)
    byte += "" if at.byte == "0" else f" + {at.byte}"
    return f"{at.row} + shared_at<{layout.swizzle}>({row}, {byte}, {layout.panel_bytes})"


def _vector_place(e: CudaEmitter, vector: SharedVector) -> Place:
    """A shared vector as a row of memory."""
    word = MEMORY_TYPES[vector.dtype.name]
    matrix = f"({word}*)(shared + ({shared_place(e, vector).address} - smem))"
    return Place(matrix, "0", "0", "0", "1", str(vector.length))
