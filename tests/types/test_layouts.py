"""Layouts: each element has exactly one register or byte, and the swizzle stays within its tile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykittens.types import layouts
from pykittens.types.dtypes import bf16, f32, int8
from pykittens.types.tiles import shared_tile, shared_vector

WARPS = st.sampled_from([1, 2, 4, 8])
UNITS = st.integers(1, 12)


@given(warps=WARPS, blocks=st.integers(1, 4), units=UNITS)
def test_a_register_tile_holds_every_element_once(warps, blocks, units):
    rows, cols = 16 * warps * blocks, 16 * units
    registers = layouts.tile_registers(rows, cols, warps)
    warp, lane, register = np.mgrid[:warps, : layouts.LANES, :registers]
    row, col = layouts.tile_element(lane, register, warp, cols, warps)
    places = np.sort((row * cols + col).ravel())
    assert np.array_equal(places, np.arange(rows * cols))


def row_register(register: np.ndarray, cols: int) -> np.ndarray:
    """The register of a per-row vector that goes with a register of a tile of `cols` columns."""
    return register // (cols // 2) * 2 + register // 2 % 2


def col_register(register: np.ndarray, cols: int) -> np.ndarray:
    """The register of a per-column vector that goes with a register of a tile of `cols` columns."""
    inner = register % (cols // 2)
    return inner // 4 * 2 + inner % 2


@given(warps=WARPS, blocks=st.integers(1, 4), units=UNITS)
def test_a_per_row_vector_goes_with_the_rows_of_its_tile(warps, blocks, units):
    rows, cols = 16 * warps * blocks, 16 * units
    warp, lane, register = np.mgrid[
        :warps, : layouts.LANES, : layouts.tile_registers(rows, cols, warps)
    ]
    row, _ = layouts.tile_element(lane, register, warp, cols, warps)
    own = row_register(register, cols)
    assert own.max() < layouts.row_vector_registers(rows, warps)
    assert np.array_equal(layouts.row_vector_element(lane, own, warp, warps), row)


@given(warps=WARPS, blocks=st.integers(1, 4), units=UNITS)
def test_a_per_column_vector_goes_with_the_columns_of_its_tile(warps, blocks, units):
    rows, cols = 16 * warps * blocks, 16 * units
    warp, lane, register = np.mgrid[
        :warps, : layouts.LANES, : layouts.tile_registers(rows, cols, warps)
    ]
    _, col = layouts.tile_element(lane, register, warp, cols, warps)
    own = col_register(register, cols)
    assert own.max() < layouts.col_vector_registers(cols)
    assert np.array_equal(layouts.col_vector_element(lane, own), col)


@given(warps=WARPS, blocks=st.integers(1, 5))
def test_the_lanes_of_a_row_hold_the_same_values_of_a_per_row_vector(warps, blocks):
    rows = 16 * warps * blocks
    warp, lane, register = np.mgrid[
        :warps, : layouts.LANES, : layouts.row_vector_registers(rows, warps)
    ]
    values, counts = np.unique(
        layouts.row_vector_element(lane, register, warp, warps), return_counts=True
    )
    assert np.array_equal(values, np.arange(rows))
    assert (counts == 4).all()


@settings(max_examples=200)
@given(warps=WARPS, length=st.integers(1, 5000))
def test_a_plain_vector_holds_every_element_once_and_padding_behind_it(warps, length):
    registers = layouts.plain_registers(length, warps)
    thread, register = np.mgrid[: warps * layouts.LANES, :registers]
    chunk = layouts.plain_chunk(length, warps)
    places = np.sort(layouts.chunk_element(thread, register, chunk, warps).ravel())
    assert np.array_equal(places, np.arange(len(places)))
    assert len(places) >= length
    assert registers % 2 == 0
    # What one lane holds of a chunk are neighbours, so it is moved in one piece.
    first = layouts.chunk_element(thread, register // chunk * chunk, chunk, warps)
    assert np.array_equal(
        layouts.chunk_element(thread, register, chunk, warps), first + register % chunk
    )


@pytest.mark.parametrize("dtype", [bf16, f32], ids=str)
@given(rows=st.integers(1, 8), units=st.integers(1, 16))
def test_a_shared_tile_holds_every_element_once(dtype, rows, units):
    tile = shared_tile(dtype, 16 * rows, 16 * units)
    row, col = np.mgrid[: tile.rows, : tile.cols]
    offsets = np.sort(tile.layout.offset(row, col).ravel())
    assert np.array_equal(offsets, np.arange(0, tile.bytes, dtype.bytes))


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_a_swizzle_exchanges_pieces_of_sixteen_bytes_within_eight_rows(swizzle):
    address = np.arange(8 * 1024)
    moved = layouts.swizzled(address, swizzle)
    assert np.array_equal(np.sort(moved), address)
    assert np.array_equal(moved // 1024, address // 1024)
    assert np.array_equal(moved // swizzle, address // swizzle)
    assert np.array_equal(moved % 16, address % 16)
    assert np.array_equal(layouts.swizzled(moved, swizzle), address)


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_eight_rows_of_a_swizzled_column_touch_all_banks(swizzle):
    pieces = layouts.swizzled(np.arange(8) * swizzle, swizzle) // 16 % 8
    assert len(set(pieces.tolist())) == 8


@pytest.mark.parametrize(
    ("dtype", "cols", "expected"),
    [
        (bf16, 64, 128),
        (bf16, 32, 64),
        (bf16, 16, 32),
        (bf16, 80, 32),
        (f32, 256, 128),
        (int8, 48, 16),
    ],
)
def test_the_swizzle_is_the_widest_that_divides_a_row(dtype, cols, expected):
    assert layouts.swizzle_for(cols, dtype.bytes) == expected


@given(warps=WARPS, length=st.integers(1, 300))
def test_parts_are_aligned_where_each_starts_at_a_multiple_of_its_chunks(warps, length):
    chunk = layouts.plain_chunk(length, warps)
    starts = np.arange(9) * length + layouts.chunk_element(
        5, 0, layouts.plain_chunk(length, warps), warps
    )
    assert layouts.part_is_aligned(length, warps) == (starts % chunk == 0).all()


def test_a_part_of_a_vector_lies_as_the_vector_does():
    whole = shared_vector(bf16, 64)
    part = whole.part(4)
    assert str(part) == "sv<bf16, 4>"
    assert part.layout == whole.layout
    assert part.bytes == 8
