"""Checks of the operands of these functions, which name the functions' parameters."""

from __future__ import annotations

from typing import Any

from pykittens.ir.op import Mismatch
from pykittens.ir.values import Int, RegTile, RegVector, describe
from pykittens.ops.arguments import check_int32
from pykittens.ops.map import FLOAT, NUMBER, check_tile, common_dtype, loaded, together
from pykittens.types.dtypes import int32
from pykittens.types.tiles import Spread

Position = Int | RegTile | RegVector


def check_tile_of(kinds: tuple[str, ...], name: str, x: Any) -> None:
    """Raise unless an operand is a register tile of elements of these kinds."""
    check_tile(name, x)
    check_kinds(name, x, kinds)


def check_kinds(name: str, x: Any, kinds: tuple[str, ...] = NUMBER) -> None:
    """Raise unless the elements of an operand are of these kinds."""
    if x.dtype.kind not in kinds:
        to = "pk.f32" if kinds == FLOAT else "pk.int32"
        raise Mismatch(
            f"`{name}` must be {' or '.join(kinds)}, not {x.dtype}",
            help=f"convert it: `{name}.to({to})`",
        )


def check_vector(name: str, x: Any, *spreads: Spread) -> None:
    """Raise unless an operand is a register vector with one of these spreads."""
    if isinstance(x, RegVector) and x.type.spread in spreads:
        return
    wanted = " or ".join(map(str, spreads)) + " " if len(spreads) < len(Spread) else ""
    help = loaded(x, name)
    if isinstance(x, RegVector):
        help = f"convert it: pk.spread({name}, {spreads[0]!r})"
    raise Mismatch(f"`{name}` must be a {wanted}register vector, not {describe(x)}", help=help)


def check_position(name: str, x: Any, tile: RegTile) -> None:
    """Raise unless an operand is a row or column index: an int32, or a tile or vector of int32 that fits the tile."""
    if isinstance(x, RegTile | RegVector) and x.dtype == int32:
        together({"tile": tile, name: x})
    else:
        check_int32(name, x)


def check_together(**operands: Any) -> None:
    """Raise unless operands have the same dtype and broadcast together."""
    common_dtype(operands)
    together(operands)
