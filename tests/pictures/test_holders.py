"""Who holds an element agrees with what each lane says it holds, and so does what is drawn."""

from __future__ import annotations

import pytest

from pykittens.pictures.holders import tile_holders, vector_holders
from pykittens.pictures.picture import picture
from pykittens.types.dtypes import f32
from pykittens.types.layouts import (
    LANES,
    chunk_element,
    col_vector_element,
    lane_order_of_tile,
    plain_chunk,
    row_vector_element,
    tile_element,
)
from pykittens.types.tiles import RT, RV, Spread
from tests.pictures.reading import read


@pytest.mark.parametrize(
    ("rows", "cols", "warps"), [(16, 16, 1), (64, 64, 4), (128, 48, 4), (96, 80, 2)]
)
def test_the_holder_of_a_place_of_a_tile_holds_it(rows: int, cols: int, warps: int) -> None:
    holders = tile_holders(RT(f32, rows, cols), warps)
    assert len(holders) == rows * cols
    for place, h in holders.items():
        assert tile_element(h.lane, h.register, h.warp, cols, warps) == place


def test_every_lane_that_holds_a_place_of_a_vector_is_named() -> None:
    warps = 4
    per_row = vector_holders(RV(f32, 128, Spread.PER_ROW), warps)
    assert list(per_row) == list(range(128))
    for row, held in per_row.items():
        assert len(set(held)) == 4
        assert {row_vector_element(h.lane, h.register, h.warp, warps) for h in held} == {row}
    per_column = vector_holders(RV(f32, 48, Spread.PER_COLUMN), warps)
    assert list(per_column) == list(range(48))
    for col, held in per_column.items():
        assert len(set(held)) == warps * LANES // 4
        assert {col_vector_element(h.lane, h.register) for h in held} == {col}
    plain = vector_holders(RV(f32, 1000, Spread.PLAIN), warps)
    for place, (h,) in plain.items():
        assert chunk_element(h.thread, h.register, plain_chunk(1000, warps), warps) == place
    assert len(plain) == 1024


def test_a_vector_in_lane_order_has_the_registers_of_its_tile() -> None:
    warps, rows, cols = 4, 128, 48
    tile = tile_holders(RT(f32, rows, cols), warps)
    vector = vector_holders(RV(f32, rows * cols, Spread.LANE_ORDER), warps)
    row, col = lane_order_of_tile(rows, cols, warps)
    assert len(vector) == rows * cols
    for place, (h,) in vector.items():
        assert tile[int(row[place]), int(col[place])] == h


def test_the_cells_of_a_drawn_tile_stand_where_the_layout_puts_them() -> None:
    shown = read(picture(RT(f32, 64, 64), 4))
    cells = [t for t in shown.texts if t.style == "cell" and " " in t.text and t.text[0] == "T"]
    assert len(cells) == 256
    rows = sorted({c.bottom for c in cells})
    columns = sorted({(c.left + c.right) / 2 for c in cells})
    assert (len(rows), len(columns)) == (16, 16)
    drawn = {(rows.index(c.bottom), columns.index((c.left + c.right) / 2)): c.text for c in cells}
    for lane in range(LANES):
        for register in range(32):
            place = tile_element(lane, register, 0, 64, 4)
            if max(place) < 16:
                assert drawn[place] == f"T{lane} r{register}"


def test_the_blocks_of_a_drawn_tile_name_its_registers_and_warps() -> None:
    shown = read(picture(RT(f32, 64, 32), 2))
    blocks = [t.text for t in shown.texts if t.style == "cell" and t.text[0] == "r"]
    assert blocks == [
        *("r0–1", "r4–5", "r8–9", "r12–13", "r2–3", "r6–7", "r10–11", "r14–15") * 2,
        *("r16–17", "r20–21", "r24–25", "r28–29", "r18–19", "r22–23", "r26–27", "r30–31") * 2,
    ]  # fmt: skip
    sides = [w for w in shown.words("side") if w.startswith("warp")]
    assert sides == ["warp 0", "warp 1", "warp 0", "warp 1"]
