"""The picture of a type in SVG: the position of each of its elements."""

from __future__ import annotations

from pykittens.errors import ArgumentError
from pykittens.pictures import register_tile, register_vector, shared_tile
from pykittens.types.tiles import RT, RV, ST, Type


def picture(type: Type, warps: int = 4) -> str:
    """The layout of a register tile or vector over a group of warps, or of a shared tile."""
    match type:
        case RT():
            return register_tile.draw(type, warps).svg()
        case RV():
            return register_vector.draw(type, warps).svg()
        case ST():
            return shared_tile.draw(type).svg()
    raise ArgumentError(
        f"{type} has no layout to show",
        help="tiles and vectors have: rt<bf16, 64x64>, rv<f32, 64, per row>, st<bf16, 64x64>",
    )
