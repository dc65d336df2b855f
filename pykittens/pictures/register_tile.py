"""The picture of a register tile: its first 16 x 16 elements, and all of it in blocks of 8x8."""

from __future__ import annotations

from pykittens.pictures.axes import (
    CELL,
    LINE,
    MAP_LINE,
    SIDE,
    lane_legend,
    packing_note,
    shown,
    values,
    warp_brackets,
)
from pykittens.pictures.holders import Holder, tile_holders
from pykittens.pictures.svg import (
    HIGHLIGHT,
    MARGIN,
    PAPER,
    WARP_SHADES,
    Drawing,
    lane_colour,
)
from pykittens.types.layouts import tile_registers
from pykittens.types.tiles import RT

PART = 16  # rows and columns drawn cell by cell
BLOCK = 8  # the lanes of a warp, two values each, fill 8x8
_GAP = 6  # between blocks
_LANE = 5  # the one whose elements are framed
_MAP_WIDTH, _MAP_COLS, _MAP_ROWS = 74, 8, 11
_MAP_LEFT = MARGIN + 122  # room for the brackets of the warps and the numbers of rows

Holders = dict[tuple[int, int], Holder]


def draw(tile: RT, warps: int) -> Drawing:
    """The picture of a tile held by a group of so many warps."""
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
    """The first rows and columns, a cell an element; returns where they end."""
    left, top = MARGIN + SIDE, drawing.top + 30
    warp = holders[0, 0].warp
    drawing.text(
        MARGIN,
        drawing.top,
        f"Rows 0–{PART - 1}, columns 0–{PART - 1}: held by warp {warp}",
        "head",
    )
    for k in range(PART):
        drawing.text(left + _at(k, CELL) + CELL // 2, top - 7, str(k), "axis")
        drawing.text(left - 8, top + _at(k, LINE) + LINE // 2 + 4, str(k), "side")
    for row in range(PART):
        for col in range(PART):
            holder = holders[row, col]
            x, y = left + _at(col, CELL), top + _at(row, LINE)
            drawing.cell(x, y, CELL, LINE, lane_colour(holder.lane), str(holder))
    for row in range(PART):
        for col in range(0, PART, 2):
            if holders[row, col].lane == _LANE:
                drawing.outline(
                    left + _at(col, CELL), top + _at(row, LINE), 2 * CELL, LINE, HIGHLIGHT
                )
    x, y = left + _at(BLOCK, CELL), top
    drawing.outline(x - 3, y - 3, BLOCK * CELL + 6, BLOCK * LINE + 6)
    return top + _at(PART, LINE) - _GAP


def _at(index: int, size: int) -> int:
    return index * size + index // BLOCK * _GAP


def _blocks(drawing: Drawing, tile: RT, holders: Holders, top: int) -> None:
    """The whole tile, a cell a block of 8x8: whose it is and in which registers."""
    drawing.text(MARGIN, top, "The whole tile in 8×8 blocks", "head")
    left, top = _MAP_LEFT, top + 34
    cols, rows = shown(tile.cols // BLOCK, _MAP_COLS), shown(tile.rows // BLOCK, _MAP_ROWS)
    for k, col in enumerate(cols):
        label = "…" if col is None else f"{col * BLOCK}–{col * BLOCK + BLOCK - 1}"
        drawing.text(left + k * _MAP_WIDTH + _MAP_WIDTH // 2, top - 7, label, "axis")
    for n, row in enumerate(rows):
        y = top + n * MAP_LINE
        label = "⋮" if row is None else f"{row * BLOCK}–{row * BLOCK + BLOCK - 1}"
        drawing.text(left - 8, y + MAP_LINE // 2 + 4, label, "side")
        for k, col in enumerate(cols):
            x = left + k * _MAP_WIDTH
            if row is None or col is None:
                drawing.cell(x, y, _MAP_WIDTH, MAP_LINE, PAPER, "…" if row is not None else "⋮")
                continue
            held = _block_values(holders, row, col)
            fill = WARP_SHADES[holders[row * BLOCK, 0].warp % 2]
            drawing.cell(x, y, _MAP_WIDTH, MAP_LINE, fill, held)
    warps = [None if row is None else holders[row * BLOCK, 0].warp for row in rows]
    warp_brackets(drawing, warps, left - 2 * SIDE + 4, top)


def _block_values(holders: Holders, row: int, col: int) -> str:
    """The values in which the lanes hold a block, such as r4–5."""
    return values(
        holders[row * BLOCK + r, col * BLOCK + c].register
        for r in range(BLOCK)
        for c in range(BLOCK)
    )


def _legend(drawing: Drawing, tile: RT, holders: Holders, top: int) -> None:
    columns = min(tile.cols // BLOCK, _MAP_COLS)
    left = _MAP_LEFT + columns * _MAP_WIDTH + 32
    drawing.text(left, top, "Reading it", "head")
    x, y = left, top + 22
    drawing.outline(x, y, 22, 14)
    drawing.text(x + 32, y + 12, "one 8×8 block: 32 lanes, two values each", "note")
    drawing.outline(x, y + 24, 22, 14, HIGHLIGHT)
    here = [h.register for p, h in sorted(holders.items()) if max(p) < PART and h.lane == _LANE]
    drawing.text(x + 32, y + 36, f"all that lane {_LANE} holds here: {values(here)}", "note")
    y = lane_legend(drawing, x, y + 58) + 26
    lines = ["T5 r2: lane 5 holds it as its value 2."]
    if tile.cols > BLOCK:
        step = holders[0, BLOCK].register - holders[0, 0].register
        lines.append(f"8 columns on: the same lanes, r + {step}.")
    again = next((r for r in range(PART, tile.rows, PART) if holders[r, 0].warp == 0), None)
    if again is not None:
        step = holders[again, 0].register - holders[0, 0].register
        lines.append(f"{again} rows on: the same warp, r + {step}.")
    drawing.notes(x, y, [*lines, *packing_note(tile.dtype)])
