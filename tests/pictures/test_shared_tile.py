"""The picture of a shared tile tells of the banks what the addresses say."""

from __future__ import annotations

import pytest

from pykittens.pictures.picture import picture
from pykittens.pictures.shared_tile import bank_group, passes, pieces
from pykittens.types.dtypes import bf16, f32
from pykittens.types.tiles import shared_tile
from tests.pictures.reading import read


@pytest.mark.parametrize(("cols", "without"), [(64, 8), (32, 4), (16, 2), (80, 2)])
def test_every_column_of_pieces_is_free_of_conflicts_only_with_the_swizzle(cols, without) -> None:
    found = pieces(shared_tile(bf16, 64, cols))
    for column in zip(*found, strict=True):
        assert passes([p.address for p in column]) == 1
        assert passes([p.unswizzled for p in column]) == without


def test_unswizzled_rows_lie_one_behind_the_other() -> None:
    tile = shared_tile(f32, 64, 64)
    flat = [p for line in pieces(tile) for p in line]
    assert [p.unswizzled for p in flat] == list(range(0, 8 * tile.layout.swizzle, 16))
    for p in flat:
        assert p.address == tile.layout.offset(p.row, p.first)
        assert tile.layout.offset(p.row, p.last) == p.address + 12


def test_what_is_drawn_are_the_banks_and_places_of_the_layout() -> None:
    tile = shared_tile(bf16, 64, 64)
    shown = read(picture(tile))
    cells = [t.text for t in shown.texts if t.style == "cell"]
    flat = [p for line in pieces(tile) for p in line]
    starts = [4 * bank_group(tile.layout.offset(p.row, p.first)) for p in flat]
    assert cells[:64] == [f"{b}–{b + 3}" for b in starts]
    placed = sorted(flat, key=lambda p: p.address)
    assert cells[-64:] == [f"row {p.row}: {p.first}–{p.last}" for p in placed]
    assert "with the swizzle: every bank once, 1 pass" in shown.words("note")
    assert "without a swizzle: a conflict of 8 rows, 8 passes" in shown.words("note")


def test_a_tile_without_a_swizzle_is_shown_once() -> None:
    tile = shared_tile(bf16, 64, 64)
    narrow = shared_tile(f32, 64, 4)
    assert not any("with the swizzle" in n for n in read(picture(narrow)).words("note"))
    assert any("with the swizzle" in n for n in read(picture(tile)).words("note"))
