"""Shared tiles in C++: their addresses, their views, and register tiles stored to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pykittens.ir.nodes import Call
from pykittens.ir.values import SharedTile
from pykittens.targets.cuda.emitter import HopperEmitter
from pykittens.targets.cuda.sm_90 import SM_90
from pykittens.targets.simt.memory import lower_store_global
from pykittens.types.tiles import ST


@dataclass(frozen=True)
class SharedPlace:
    """Where a tile starts: the address of its first row, and bytes into the row where it is part of a panel."""

    row: str
    byte: str = "0"

    @property
    def address(self) -> str:
        return self.row if self.byte == "0" else f"{self.row} + {self.byte}"


def shared_place(e: HopperEmitter, tile: SharedTile) -> SharedPlace:
    """The place of a tile of a stage, or of a view of one."""
    source = tile.source
    if not isinstance(source, Call):
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


def times(e: HopperEmitter, index: Any, unit: int) -> str:
    """An index times a number of bytes."""
    return str(index * unit) if isinstance(index, int) else f"{e.scalar(index)} * {unit}"


@SM_90.lower("view")
def lower_view(e: HopperEmitter, call: Call) -> None:
    """A view has no code of its own: what uses it computes its address."""


@SM_90.lower("store")
def lower_store(e: HopperEmitter, call: Call) -> None:
    tile, value = call.args["dst"], call.args["value"]
    if not isinstance(tile, SharedTile):
        lower_store_global(e, call)
        return
    layout, warps, name = tile.type.layout, e.role.warps, e.array(value)
    at = shared_place(e, tile)
    plus = "" if at.byte == "0" else f" + {at.byte}"
    panel = layout.panel_bytes
    if e.is_packed(value):
        chunks = tile.cols // 16  # of 16 columns: one store of four 8x8 matrices a warp
        row = f"(i / {chunks} * {warps} + warp) * 16 + lane % 16"
        byte = f"i % {chunks} * 32 + lane / 16 * 16{plus}"
        regs = ", ".join(f"{name}[4 * i + {k}]" for k in range(4))
        address = f"{at.row} + shared_at<{layout.swizzle}>({row}, {byte}, {panel})"
        e.line(
            f"UNROLL for (int i = 0; i < {e.registers(value) // 8}; ++i) store_matrix({address}, {regs});"
        )
    else:
        row = f"tile_row<{tile.cols}, {warps}>(i, warp, lane)"
        byte = f"tile_col<{tile.cols}>(i, lane) * 4{plus}"
        bits = (
            "__float_as_uint({0}[i]), __float_as_uint({0}[i + 1])"
            if value.dtype.is_float
            else "{0}[i], {0}[i + 1]"
        )
        address = f"{at.row} + shared_at<{layout.swizzle}>({row}, {byte}, {panel})"
        e.line(
            f"UNROLL for (int i = 0; i < {e.registers(value)}; i += 2) store_shared({address}, {bits.format(name)});"
        )
