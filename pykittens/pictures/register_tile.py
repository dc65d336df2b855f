"""The picture of a register tile: its first 16 x 16 elements, and all of it in blocks of 8x8."""

from __future__ import annotations

from pykittens.pictures.axes import (
    BLOCK,
    CELL,
    LANE,
    LINE,
    SIDE,
    block_map,
    column_labels,
    legend,
    packing_note,
    row_labels,
    shown,
    span,
    values,
    warp_brackets,
)
from pykittens.pictures.holders import Holder, tile_holders
from pykittens.pictures.svg import (
    HIGHLIGHT,
    INK,
    MARGIN,
    WARP_SHADES,
    Drawing,
    lane_colour,
)
from pykittens.types.layouts import tile_registers
from pykittens.types.tiles import RT

PART = 16  # rows and columns drawn cell by cell
_GAP = 6  # between blocks
_MAP_WIDTH, _MAP_COLS, _MAP_ROWS = 74, 8, 11
_MAP_LEFT = MARGIN + 122  # room for the brackets of the warps and the numbers of rows

Holders = dict[tuple[int, int], Holder]


def draw(tile: RT, warps: int) -> Drawing:
    """The picture of a tile held by a group of `warps` warps."""
    holders = tile_holders(tile, warps)
    registers = tile_registers(tile.rows, tile.cols, warps)
    drawing = Drawing(
        f"{tile} over {warps} warp{'s' * (warps > 1)}",
        f"A register tile: {tile.rows} rows, {tile.cols} columns, {registers} values a lane",
    )
    bottom = _elements(drawing, holders)
    _blocks(drawing, tile, holders, bottom + 44)
    _legend(drawing, tile, holders, bottom + 44)
    return drawing


def _elements(drawing: Drawing, holders: Holders) -> int:
    """The first rows and columns, one cell per element; returns the lower end."""
    left, top = MARGIN + SIDE, drawing.top + 30
    warp = holders[0, 0].warp
    title = f"Rows {span(0, PART)}, columns {span(0, PART)}: held by warp {warp}"
    drawing.text(MARGIN, drawing.top, title, "head")
    for k in range(PART):
        drawing.text(left + _at(k, CELL) + CELL // 2, top - 7, str(k), "axis")
        drawing.text(left - 8, top + _at(k, LINE) + LINE // 2 + 4, str(k), "side")
    for row in range(PART):
        for col in range(PART):
            holder = holders[row, col]
            x, y = left + _at(col, CELL), top + _at(row, LINE)
            drawing.cell(x, y, CELL, LINE, lane_colour(holder.lane), str(holder))
    for (row, col), holder in holders.items():
        if row < PART and col < PART and col % 2 == 0 and holder.lane == LANE:
            x, y = left + _at(col, CELL), top + _at(row, LINE)
            drawing.outline(x, y, 2 * CELL, LINE, HIGHLIGHT)
    x, y = left + _at(BLOCK, CELL), top
    drawing.outline(x - 3, y - 3, BLOCK * CELL + 6, BLOCK * LINE + 6)
    return top + _at(PART, LINE) - _GAP


def _at(index: int, size: int) -> int:
    return index * size + index // BLOCK * _GAP


def _blocks(drawing: Drawing, tile: RT, holders: Holders, top: int) -> None:
    """The whole tile, one cell per block of 8x8: its warp and its registers."""
    drawing.text(MARGIN, top, "The whole tile in 8×8 blocks", "head")
    left, top = _MAP_LEFT, top + 34
    cols, rows = shown(tile.cols // BLOCK, _MAP_COLS), shown(tile.rows // BLOCK, _MAP_ROWS)

    def block(row: int, col: int) -> tuple[str, str]:
        """The colour of the warp of a block, and its registers, such as r4–5."""
        held = [
            holders[row * BLOCK + r, col * BLOCK + c] for r in range(BLOCK) for c in range(BLOCK)
        ]
        return WARP_SHADES[held[0].warp % 2], values(h.register for h in held)

    column_labels(drawing, left, top - 7, _MAP_WIDTH, cols)
    row_labels(drawing, left - 8, top, rows)
    block_map(drawing, left, top, _MAP_WIDTH, rows, cols, block)
    warps = [None if row is None else holders[row * BLOCK, 0].warp for row in rows]
    warp_brackets(drawing, warps, left - 2 * SIDE + 4, top)


def _legend(drawing: Drawing, tile: RT, holders: Holders, top: int) -> None:
    columns = min(tile.cols // BLOCK, _MAP_COLS)
    here = [h.register for p, h in sorted(holders.items()) if max(p) < PART and h.lane == LANE]
    frames = [
        (INK, "one 8×8 block: 32 lanes, two values each"),
        (HIGHLIGHT, f"all that lane {LANE} holds here: {values(here)}"),
    ]
    lines = ["T5 r2: lane 5 holds it as its value 2."]
    if tile.cols > BLOCK:
        step = holders[0, BLOCK].register - holders[0, 0].register
        lines.append(f"8 columns on: the same lanes, r + {step}.")
    again = next((r for r in range(PART, tile.rows, PART) if holders[r, 0].warp == 0), None)
    if again is not None:
        step = holders[again, 0].register - holders[0, 0].register
        lines.append(f"{again} rows on: the same warp, r + {step}.")
    left = _MAP_LEFT + columns * _MAP_WIDTH + 32
    legend(drawing, left, top, frames, lines + packing_note(tile.dtype))
