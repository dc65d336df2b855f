"""Shared parts of the pictures: cell sizes, the legend of the lanes, gaps in a long axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pykittens.pictures.svg import Drawing, lane_colour
from pykittens.types.dtypes import DType
from pykittens.types.layouts import BLOCK_ROWS, LANES

CELL, LINE = 60, 26  # of one element
MAP_LINE = 24  # of one block
SIDE = 34  # room for the numbers of rows


def shown(count: int, most: int) -> list[int | None]:
    """Which of so many are drawn: all, or the first, a None for those left out, and the last."""
    if count <= most:
        return list(range(count))
    return [*range(most - 3), None, count - 2, count - 1]


def values(registers: Iterable[int]) -> str:
    """Numbers of values as a person writes them: r4, r0–7 or r0, r9."""
    ordered = sorted(set(registers))
    first, last = ordered[0], ordered[-1]
    if len(ordered) > 1 and last - first == len(ordered) - 1:
        return f"r{first}–{last}"
    return ", ".join(f"r{r}" for r in ordered)


def warp_brackets(drawing: Drawing, warps: Sequence[int | None], x: int, top: int) -> None:
    """A bracket for the lines of each block of a warp, two lines a block; None is a line left out."""
    lines = BLOCK_ROWS // 8
    n = 0
    while n < len(warps):
        if warps[n] is None:
            n += 1
            continue
        y = top + n * MAP_LINE
        drawing.bracket(x, y + 2, y + lines * MAP_LINE - 2, f"warp {warps[n]}")
        n += lines


def lane_legend(drawing: Drawing, x: int, y: int) -> int:
    """The colour of each lane, a column for each four; returns where it ends."""
    width, height = 34, 20
    for lane in range(LANES):
        at_x, at_y = x + lane // 4 * width, y + lane % 4 * height
        drawing.cell(at_x, at_y, width, height, lane_colour(lane), f"T{lane}")
    return y + 4 * height


def packing_note(dtype: DType) -> list[str]:
    """What a dtype narrower than a register does with the register."""
    if dtype.packing == 1:
        return []
    return [f"In {dtype}, {dtype.packing} neighbours share a register of 32 bits."]
