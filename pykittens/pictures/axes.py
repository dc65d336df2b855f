"""Shared pieces of the pictures: cell sizes, maps of blocks, the legend, gaps in a long axis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pykittens.pictures.svg import PAPER, Drawing, lane_colour
from pykittens.types.dtypes import DType
from pykittens.types.layouts import BLOCK_ROWS, LANES

BLOCK = 8  # positions of a block: the lanes of a warp, two values each, fill 8x8
CELL, LINE = 60, 26  # of one element
MAP_LINE = 24  # of one block
SIDE = 34  # room for the numbers of rows
LANE = 5  # the lane whose elements are framed

Blocks = Sequence[int | None]  # the numbers of blocks; None is a gap


def shown(count: int, most: int) -> list[int | None]:
    """The numbers of the items that are drawn: all, or the first, a None for a gap, and the last."""
    if count <= most:
        return list(range(count))
    return [*range(most - 3), None, count - 2, count - 1]


def values(registers: Iterable[int]) -> str:
    """Registers as text: r4, r0–7 or r0, r9."""
    ordered = sorted(set(registers))
    if ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"r{span(ordered[0], len(ordered))}"
    return ", ".join(f"r{r}" for r in ordered)


def span(first: int, count: int) -> str:
    """Neighbouring positions as text: 8–15, or 8 for one."""
    return f"{first}–{first + count - 1}" if count > 1 else str(first)


def column_labels(drawing: Drawing, left: int, y: int, width: int, blocks: Blocks) -> None:
    """The positions of each block of columns, above it."""
    for k, block in enumerate(blocks):
        label = "…" if block is None else span(block * BLOCK, BLOCK)
        drawing.text(left + k * width + width // 2, y, label, "axis")


def row_labels(drawing: Drawing, x: int, top: int, blocks: Blocks) -> None:
    """The positions of each block of rows, left of it."""
    for n, block in enumerate(blocks):
        label = "⋮" if block is None else span(block * BLOCK, BLOCK)
        drawing.text(x, top + n * MAP_LINE + MAP_LINE // 2 + 4, label, "side")


def block_map(
    drawing: Drawing,
    left: int,
    top: int,
    width: int,
    rows: Blocks,
    cols: Blocks,
    cell: Callable[[int, int], tuple[str, str]],
) -> None:
    """A cell for each block of rows and columns: `cell` gives its colour and text."""
    for n, row in enumerate(rows):
        for k, col in enumerate(cols):
            if row is None or col is None:
                fill, text = PAPER, "⋮" if row is None else "…"
            else:
                fill, text = cell(row, col)
            drawing.cell(left + k * width, top + n * MAP_LINE, width, MAP_LINE, fill, text)


def warp_brackets(drawing: Drawing, warps: Sequence[int | None], x: int, top: int) -> None:
    """A bracket for the lines of each block of a warp, two lines per block; None is a gap."""
    lines = BLOCK_ROWS // BLOCK
    n = 0
    while n < len(warps):
        if warps[n] is None:
            n += 1
            continue
        y = top + n * MAP_LINE
        drawing.bracket(x, y + 2, y + lines * MAP_LINE - 2, f"warp {warps[n]}")
        n += lines


def legend(
    drawing: Drawing, x: int, y: int, frames: Sequence[tuple[str, str]], lines: list[str]
) -> None:
    """The meaning of the frames, by colour, the colour of each lane, and notes."""
    drawing.text(x, y, "Reading it", "head")
    y += 22
    for colour, meaning in frames:
        drawing.outline(x, y, 22, 14, colour)
        drawing.text(x + 32, y + 12, meaning, "note")
        y += 24
    y += 10 * bool(frames)
    width, height = 34, 20
    for lane in range(LANES):
        at_x, at_y = x + lane // 4 * width, y + lane % 4 * height
        drawing.cell(at_x, at_y, width, height, lane_colour(lane), f"T{lane}")
    drawing.notes(x, y + 4 * height + 26, lines)


def packing_note(dtype: DType) -> list[str]:
    """A note on a dtype narrower than a register."""
    if dtype.packing == 1:
        return []
    return [f"In {dtype}, {dtype.packing} neighbours share a register of 32 bits."]
