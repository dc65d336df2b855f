"""The picture of a shared tile: the address of each piece of 16 bytes, and the banks that eight rows touch."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from pykittens.errors import ArgumentError
from pykittens.pictures.axes import span
from pykittens.pictures.svg import BLANK, HIGHLIGHT, MARGIN, MUTED, Drawing, hue
from pykittens.types.layouts import swizzled
from pykittens.types.tiles import ST

PIECE = 16  # bytes: the unit that a swizzle moves, and a row of an 8x8 matrix of 16-bit numbers
BANKS, BANK_BYTES = 32, 4
GROUPS = BANKS * BANK_BYTES // PIECE  # of four banks, as wide as a piece
ROWS = 8  # of an 8x8 matrix; a swizzle repeats after as many rows

_WIDTH, _LINE = 66, 28  # of a piece
_BAR, _STEP = 44, 19  # of a piece in a bank
_SLOT = 122  # of a piece, with its row and columns
_SIDE = 58


@dataclass(frozen=True)
class Piece:
    """16 bytes of a row: its columns, its address in the tile and the address it would have unswizzled."""

    row: int
    first: int
    last: int
    address: int
    unswizzled: int

    @property
    def columns(self) -> str:
        return f"{self.first}–{self.last}"


def bank_group(address: int) -> int:
    """The group of four banks that serves 16 bytes at an address."""
    return address // PIECE % GROUPS


def pieces(tile: ST) -> list[list[Piece]]:
    """The pieces of the first rows of the first panel, one list per row."""
    width = PIECE // tile.dtype.bytes
    return [
        [_piece(tile, row, col, col + width - 1) for col in range(0, tile.layout.panel_cols, width)]
        for row in range(ROWS)
    ]


def _piece(tile: ST, row: int, first: int, last: int) -> Piece:
    address = tile.layout.offset(row, first)
    # A swizzle is its own inverse.
    return Piece(row, first, last, address, swizzled(address, tile.layout.swizzle))


def passes(addresses: list[int]) -> int:
    """The number of times that the banks are read for pieces at these addresses: the most in one group."""
    groups = [bank_group(a) for a in addresses]
    return max(groups.count(g) for g in groups)


def draw(tile: ST) -> Drawing:
    """The picture of a freshly allocated tile."""
    if tile.rows % ROWS or tile.cols * tile.dtype.bytes % PIECE:
        raise ArgumentError(
            f"{tile} is not a shared tile",
            help="rows and columns are multiples of 16: st<bf16, 64x64>",
        )
    found = pieces(tile)
    moved = any(p.address != p.unswizzled for line in found for p in line)
    how = f"with the {tile.layout.swizzle}-byte swizzle" if moved else "without a swizzle"
    drawing = Drawing(str(tile), f"A shared tile of {tile.bytes:,} bytes {how}")
    right, bottom = _logical(drawing, found)
    low = _banks(drawing, found, moved, right + 56)
    _memory(drawing, found, max(bottom, low) + 40)
    _repeats(drawing, tile, drawing.height + 30)
    return drawing


def _logical(drawing: Drawing, found: list[list[Piece]]) -> tuple[int, int]:
    """Rows and columns as a kernel sees them, coloured by bank; returns the right and lower end."""
    left, top = MARGIN + _SIDE, drawing.top + 32
    drawing.text(MARGIN, drawing.top, "The tile, and its banks", "head")
    for k, piece in enumerate(found[0]):
        drawing.text(left + k * _WIDTH + _WIDTH // 2, top - 8, piece.columns, "axis")
    for row, line in enumerate(found):
        y = top + row * _LINE
        drawing.text(left - 8, y + _LINE // 2 + 4, f"row {row}", "side")
        for k, piece in enumerate(line):
            group = bank_group(piece.address)
            drawing.cell(left + k * _WIDTH, y, _WIDTH, _LINE, hue(group), _banks_of(group))
    drawing.outline(left, top, _WIDTH, ROWS * _LINE, HIGHLIGHT)
    y = top + ROWS * _LINE + 22
    drawing.outline(left, y - 12, 22, 14, HIGHLIGHT)
    drawing.text(left + 32, y, f"the pieces of one phase: columns {found[0][0].columns}", "note")
    return max(left + len(found[0]) * _WIDTH, left + 280), y


def _banks_of(group: int) -> str:
    size = PIECE // BANK_BYTES
    return span(group * size, size)


def _banks(drawing: Drawing, found: list[list[Piece]], moved: bool, left: int) -> int:
    """The banks that one phase of eight rows reads, with and without the swizzle; returns the lower end."""
    drawing.text(left, drawing.top, "One phase of ldmatrix or stmatrix: eight rows", "head")
    phase = [line[0] for line in found]
    y = drawing.top + 26
    cases = [("without a swizzle", [p.unswizzled for p in phase])]
    if moved:
        cases.insert(0, ("with the swizzle", [p.address for p in phase]))
    for title, addresses in cases:
        count = passes(addresses)
        verdict = "every bank once" if count == 1 else f"a conflict of {count} rows"
        cost = f"{count} pass{'es' * (count > 1)}"
        drawing.text(left, y, f"{title}: {verdict}, {cost}", "note")
        y = _bars(drawing, phase, addresses, left, y + 14) + 34
    return y - 20


def _bars(drawing: Drawing, phase: list[Piece], addresses: list[int], left: int, top: int) -> int:
    """The rows stacked over the banks that serve them; returns the position of the numbers of the banks."""
    stacks: dict[int, list[int]] = defaultdict(list)
    for piece, address in zip(phase, addresses, strict=True):
        stacks[bank_group(address)].append(piece.row)
    floor = top + passes(addresses) * _STEP
    for group in range(GROUPS):
        x = left + group * _BAR
        for n, row in enumerate(stacks[group]):
            drawing.cell(x, floor - (n + 1) * _STEP, _BAR, _STEP, hue(group), f"row {row}")
        if not stacks[group]:
            drawing.rect(x + 1, floor - 3, _BAR - 2, 3, BLANK)
        drawing.text(x + _BAR // 2, floor + 15, _banks_of(group), "axis")
    drawing.line(left, floor + 1, left + GROUPS * _BAR, floor + 1, MUTED)
    drawing.text(left + GROUPS * _BAR + 6, floor + 15, "banks", "small")
    return floor + 15


def _memory(drawing: Drawing, found: list[list[Piece]], top: int) -> None:
    """Shared memory in lines of 128 bytes, with the piece at each address."""
    drawing.text(MARGIN, top, "Shared memory: the piece at each address", "head")
    left, top = MARGIN + _SIDE, top + 32
    for group in range(GROUPS):
        label = f"banks {_banks_of(group)}"
        drawing.text(left + group * _SLOT + _SLOT // 2, top - 8, label, "axis")
    line_bytes = GROUPS * PIECE
    in_memory = sorted((p for line in found for p in line), key=lambda p: p.address)
    for piece in in_memory:
        group, y = bank_group(piece.address), top + piece.address // line_bytes * _LINE
        x = left + group * _SLOT
        text = f"row {piece.row}: {piece.columns}"
        drawing.cell(x, y, _SLOT, _LINE, hue(group), text)
        if group == 0:
            address = f"byte {piece.address}"
            drawing.text(left - 8, y + _LINE // 2 + 4, address, "side")
    for piece in in_memory:
        if piece.first == 0:
            x = left + bank_group(piece.address) * _SLOT
            drawing.outline(x, top + piece.address // line_bytes * _LINE, _SLOT, _LINE, HIGHLIGHT)


def _repeats(drawing: Drawing, tile: ST, top: int) -> None:
    """Notes on the rest of the tile."""
    layout = tile.layout
    lines = [
        f"Each cell: the row and the columns at that address. From row {ROWS} on, the pattern repeats."
    ]
    panels = tile.cols // layout.panel_cols
    if panels > 1:
        beside = layout.offset(0, layout.panel_cols) - layout.offset(0, 0)
        lines.append(
            f"{panels} panels of {layout.panel_cols} columns, {beside:,} bytes apart: the picture is the first."
        )
    drawing.notes(MARGIN, top, lines)
