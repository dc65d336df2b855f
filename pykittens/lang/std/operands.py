"""Operand checks of these functions, under the names of their own parameters."""

from __future__ import annotations

from typing import Any

from pykittens.ir.op import Mismatch
from pykittens.ir.values import RegTile, RegVector, describe
from pykittens.ops.arguments import check_int32
from pykittens.ops.map import FLOAT, NUMBER, check_registers, common_dtype, loaded, together
from pykittens.types.dtypes import int32
from pykittens.types.tiles import Spread


def check_tile(name: str, x: Any, kinds: tuple[str, ...] = ("float", "int", "bool")) -> None:
    """Raise unless an operand is a register tile of elements of these kinds."""
    if not isinstance(x, RegTile):
        raise Mismatch(f"`{name}` must be a register tile, not {describe(x)}", help=loaded(x, name))
    check_kinds(name, x, kinds)


def check_kinds(name: str, x: Any, kinds: tuple[str, ...] = NUMBER) -> None:
    """Raise unless the elements of an operand are of these kinds."""
    if x.dtype.kind not in kinds:
        to = "pk.f32" if kinds == FLOAT else "pk.int32"
        raise Mismatch(
            f"`{name}` must be {' or '.join(kinds)}, not {x.dtype}",
            help=f"`{name}.to({to})` is that",
        )


def check_vector(name: str, x: Any, *spreads: Spread) -> None:
    """Raise unless an operand is a register vector that lies in one of these ways."""
    if isinstance(x, RegVector) and x.type.spread in spreads:
        return
    ways = " or ".join(map(str, spreads)) + " " if len(spreads) < len(Spread) else ""
    help = loaded(x, name)
    if isinstance(x, RegVector):
        help = f"pk.spread({name}, pk.{spreads[0].name.lower()}) makes one of it"
    raise Mismatch(f"`{name}` must be a {ways}register vector, not {describe(x)}", help=help)


def check_position(name: str, x: Any, tile: RegTile) -> None:
    """Raise unless an operand counts rows or columns of a tile: an int32, or several that fit the tile."""
    if isinstance(x, RegTile | RegVector) and x.dtype == int32:
        together({"tile": tile, name: x})
    else:
        check_int32(name, x)


def check_together(**operands: Any) -> None:
    """Raise unless operands have one dtype and fit one another."""
    for name, x in operands.items():
        check_registers(name, x)
    common_dtype(operands)
    together(operands)
