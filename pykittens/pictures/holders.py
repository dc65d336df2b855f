"""The layouts inverted: from a row and column to a warp, a lane and a register."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykittens.errors import ArgumentError
from pykittens.types.layouts import (
    BLOCK_ROWS,
    LANES,
    chunk_element,
    col_vector_element,
    col_vector_registers,
    plain_registers,
    row_vector_element,
    row_vector_registers,
    tile_element,
    tile_registers,
)
from pykittens.types.tiles import RT, RV, Spread

MAX_WARPS = 32
BLOCK_COLS = 16


@dataclass(frozen=True, order=True)
class Holder:
    """A lane of a warp of the group, and one of its registers."""

    warp: int
    lane: int
    register: int

    @property
    def thread(self) -> int:
        """The number of the lane in its group."""
        return self.warp * LANES + self.lane

    def __str__(self) -> str:
        return f"T{self.lane} r{self.register}"


def tile_holders(tile: RT, warps: int) -> dict[tuple[int, int], Holder]:
    """The one holder of each row and column of a tile."""
    _check_multiple(tile, "rows", tile.rows, BLOCK_ROWS * warps, warps)
    _check_multiple(tile, "columns", tile.cols, BLOCK_COLS, warps)
    warp, lane, register = _grid(warps, tile_registers(tile.rows, tile.cols, warps))
    row, col = tile_element(lane, register, warp, tile.cols, warps)
    found = zip(*(_flat(x) for x in (row, col, warp, lane, register)), strict=True)
    return {(r, c): Holder(*holder) for r, c, *holder in found}


def vector_holders(vector: RV, warps: int) -> dict[int, list[Holder]]:
    """All holders of each position of a vector; positions past its end are padding."""
    length = vector.length
    match vector.spread:
        case Spread.PER_ROW:
            _check_multiple(vector, "length", length, BLOCK_ROWS * warps, warps)
            warp, lane, register = _grid(warps, row_vector_registers(length, warps))
            position = row_vector_element(lane, register, warp, warps)
        case Spread.PER_COLUMN:
            _check_multiple(vector, "length", length, BLOCK_COLS, warps)
            warp, lane, register = _grid(warps, col_vector_registers(length))
            position = col_vector_element(lane, register)
        case Spread.PLAIN | Spread.LANE_ORDER:
            _check_warps(warps)
            warp, lane, register = _grid(warps, plain_registers(length, warps))
            chunk = vector.chunk(warps)
            position = chunk_element(warp * LANES + lane, register, chunk, warps)
    found = defaultdict(list)
    for p, *holder in zip(*(_flat(x) for x in (position, warp, lane, register)), strict=True):
        found[p].append(Holder(*holder))
    return {p: sorted(found[p]) for p in sorted(found)}


def _grid(warps: int, registers: int) -> Any:
    return np.mgrid[:warps, :LANES, :registers]


def _flat(numbers: Any) -> list[int]:
    return [int(n) for n in numbers.ravel()]


def _check_warps(warps: int) -> None:
    if not 1 <= warps <= MAX_WARPS:
        raise ArgumentError(f"a group has 1 to {MAX_WARPS} warps, not {warps}")


def _check_multiple(type: RT | RV, what: str, size: int, unit: int, warps: int) -> None:
    _check_warps(warps)
    if size % unit:
        raise ArgumentError(
            f"{type}: its {what} must be a multiple of {unit}, not {size}",
            help=f"each of the {warps} warps takes {BLOCK_ROWS} rows at a time"
            if unit > BLOCK_ROWS
            else None,
        )
