"""The pictures of a register vector: per row, per column and plain."""

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
from pykittens.pictures.holders import Holder, vector_holders
from pykittens.pictures.svg import (
    BLANK,
    HIGHLIGHT,
    MARGIN,
    WARP_SHADES,
    Drawing,
    lane_colour,
)
from pykittens.types.layouts import BLOCK_ROWS, LANES
from pykittens.types.tiles import RV, Spread

_PART = 16  # positions drawn value by value
_GAP = 40
_VALUES, _LINES = 24, 5  # of a plain vector: values per line, lines
_NARROW, _CHUNK_LINE = 40, LINE + 24
_MAP_WIDTH, _MAP_COLS, _MAP_ROWS = 70, 8, 11

Holders = dict[int, list[Holder]]


def draw(vector: RV, warps: int) -> Drawing:
    """The picture of a vector held by a group of `warps` warps."""
    holders = vector_holders(vector, warps)
    lane = [h for held in holders.values() for h in held if (h.warp, h.lane) == (0, 0)]
    drawing = Drawing(
        f"{vector} over {warps} warp{'s' * (warps > 1)}",
        f"A register vector, {vector.spread}: {vector.length} values, {len(lane)} values a lane",
    )
    match vector.spread:
        case Spread.PER_ROW:
            _per_row(drawing, vector, holders)
        case Spread.PER_COLUMN:
            _per_column(drawing, vector, holders, warps)
        case Spread.PLAIN | Spread.LANE_ORDER:
            _plain(drawing, vector, holders, warps)
    return drawing


# -- per row ---------------------------------------------------------------------------------------


def _per_row(drawing: Drawing, vector: RV, holders: Holders) -> None:
    """One line per row with the lanes that hold its value; beside it the whole vector."""
    top, left = drawing.top + 30, MARGIN + SIDE
    title = f"Rows {span(0, _PART)}: held by warp {holders[0][0].warp}"
    drawing.text(MARGIN, drawing.top, title, "head")
    framed = []
    for row in range(_PART):
        y = top + row * LINE + row // BLOCK * 6
        drawing.text(left - 8, y + LINE // 2 + 4, str(row), "side")
        for k, holder in enumerate(holders[row]):
            drawing.cell(left + k * CELL, y, CELL, LINE, lane_colour(holder.lane), str(holder))
            if holder.lane == LANE:
                framed.append((left + k * CELL, y))
    for x, y in framed:
        drawing.outline(x, y, CELL, LINE, HIGHLIGHT)
    copies = len(holders[0])
    x = left + copies * CELL + _GAP
    drawing.text(x, drawing.top, "The whole vector", "head")
    _map(drawing, vector, holders, x + 132, top)
    x += 132 + _MAP_WIDTH + _GAP
    lines = [
        "One value per row of a tile, the result of row_max or row_sum.",
        f"The {copies} lanes that hold a row of the tile hold the same value.",
    ]
    if vector.length > (rows := BLOCK_ROWS * _warps(holders)):
        step = holders[rows][0].register - holders[0][0].register
        lines.append(f"{rows} rows on: the same warp, r + {step}.")
    _legend(drawing, x, drawing.top, holders, lines + packing_note(vector.dtype))


def _warps(holders: Holders) -> int:
    return 1 + max(h.warp for held in holders.values() for h in held)


def _map(drawing: Drawing, vector: RV, holders: Holders, left: int, top: int) -> None:
    """One line per eight positions: their warp and their register."""
    blocks = shown(vector.length // BLOCK, _MAP_ROWS)

    def cell(block: int, _: int) -> tuple[str, str]:
        return WARP_SHADES[holders[block * BLOCK][0].warp % 2], _block_values(holders, block)

    row_labels(drawing, left - 8, top, blocks)
    block_map(drawing, left, top, _MAP_WIDTH, blocks, [0], cell)
    warps = [None if block is None else holders[block * BLOCK][0].warp for block in blocks]
    warp_brackets(drawing, warps, left - 2 * SIDE + 4, top)


def _block_values(holders: Holders, block: int) -> str:
    """The registers in which the lanes hold eight positions, such as r0–1."""
    return values(h.register for k in range(BLOCK) for h in holders[block * BLOCK + k])


# -- per column ------------------------------------------------------------------------------------


def _per_column(drawing: Drawing, vector: RV, holders: Holders, warps: int) -> None:
    """One column per position with the lanes of a warp that hold its value; below it the whole vector."""
    top, left = drawing.top + 30, MARGIN
    whose = "every warp" if warps > 1 else "the warp"
    drawing.text(MARGIN, drawing.top, f"Columns 0–{_PART - 1}: held by {whose}", "head")
    framed = []
    for col in range(_PART):
        x = left + col * CELL + col // BLOCK * 6
        drawing.text(x + CELL // 2, top - 7, str(col), "axis")
        for k, holder in enumerate(h for h in holders[col] if h.warp == 0):
            drawing.cell(x, top + k * LINE, CELL, LINE, lane_colour(holder.lane), str(holder))
            if holder.lane == LANE:
                framed.append((x, top + k * LINE))
    for x, y in framed[::2]:  # the first of two neighbours
        drawing.outline(x, y, 2 * CELL, LINE, HIGHLIGHT)
    copies = sum(h.warp == 0 for h in holders[0])
    top += copies * LINE + 40
    drawing.text(left, top, "The whole vector", "head")
    blocks = shown(vector.length // BLOCK, _MAP_COLS)

    def cell(_: int, block: int) -> tuple[str, str]:
        return BLANK, _block_values(holders, block)

    column_labels(drawing, left, top + 27, _MAP_WIDTH, blocks)
    block_map(drawing, left, top + 34, _MAP_WIDTH, [0], blocks, cell)
    lines = [
        "One value per column of a tile.",
        f"The {copies} lanes that hold a column of the tile hold the same value.",
    ]
    if warps > 1:
        lines.append(f"All {warps} warps hold the same.")
    if vector.length > BLOCK:
        step = holders[BLOCK][0].register - holders[0][0].register
        lines.append(f"8 columns on: the same lanes, r + {step}.")
    x = left + _MAP_COLS * _MAP_WIDTH + _GAP
    _legend(drawing, x, top, holders, lines + packing_note(vector.dtype))


# -- plain -----------------------------------------------------------------------------------------


def _plain(drawing: Drawing, vector: RV, holders: Holders, warps: int) -> None:
    """The threads of the group side by side with their neighbouring values; one line per chunk of a thread."""
    chunk, threads = vector.chunk(warps), warps * LANES
    columns = [*range(_VALUES // chunk - 1), None, threads - 1]
    chunks = shown(len(holders) // (chunk * threads), _LINES)
    left, top = MARGIN + 2 * SIDE, drawing.top + 36
    drawing.text(
        MARGIN, drawing.top, f"The {threads} threads of the group, T0 to T{threads - 1}", "head"
    )
    for n, number in enumerate(chunks):
        y = top + n * _CHUNK_LINE
        label = "⋮" if number is None else f"chunk {number}"
        drawing.text(left - 10, y + LINE // 2 + 4, label, "side")
        x = left
        for thread in columns:
            if thread is None:
                drawing.text(x + 12, y + LINE // 2 + 4, "…", "axis")
                x += 30
                continue
            width = chunk * _NARROW
            if n == 0:
                drawing.text(x + width // 2, y - 8, f"T{thread}", "axis")
            if number is not None:
                _chunk(drawing, vector, holders, (number * threads + thread) * chunk, chunk, x, y)
            x += width + 6
    lines = [
        "A row of memory, the result of load without rows."
        if vector.spread is Spread.PLAIN
        else "The elements of a tile in the order of its lanes.",
        f"A thread holds {chunk} neighbours per chunk and moves them in one piece.",
        "Below them are their positions.",
    ]
    if len(holders) > vector.length:
        count = len(holders) - vector.length
        lines.append(f"Grey: past the end, {count} position{'s' * (count > 1)} in all.")
    y = top + len(chunks) * _CHUNK_LINE + 24
    _legend(drawing, MARGIN, y, holders, lines + packing_note(vector.dtype), framed=False)


def _chunk(
    drawing: Drawing, vector: RV, holders: Holders, first: int, chunk: int, x: int, y: int
) -> None:
    """The neighbouring values of one thread, and their positions below."""
    for k in range(chunk):
        (holder,) = holders[first + k]
        inside = first + k < vector.length
        fill, text = (lane_colour(holder.lane), f"r{holder.register}") if inside else (BLANK, "–")
        drawing.cell(x + k * _NARROW, y, _NARROW, LINE, fill, text)
    last = min(first + chunk, vector.length) - 1
    if last >= first:
        label = span(first, last - first + 1)
        drawing.text(x + chunk * _NARROW // 2, y + LINE + 13, label, "axis")


def _legend(
    drawing: Drawing, x: int, y: int, holders: Holders, lines: list[str], framed: bool = True
) -> None:
    frames = []
    if framed:
        here = [h.register for p in range(_PART) for h in holders[p] if h.lane == LANE]
        frames = [(HIGHLIGHT, f"all that lane {LANE} holds here: {values(here)}")]
        lines = ["T5 r1: lane 5 holds it as its value 1.", *lines]
    legend(drawing, x, y, frames, lines)
