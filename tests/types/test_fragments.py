"""Fragments of a warp's product: each element has one register, and loads of matrices put it there."""

from __future__ import annotations

import numpy as np
import pytest

from pykittens.types import fragments
from pykittens.types.layouts import LANES, tile_element

SIZES = [1, 2, 4]


@pytest.mark.parametrize("size", SIZES)
def test_a_fragment_of_a_holds_every_element_once(size):
    lane, register, part = np.mgrid[:LANES, : fragments.A_REGISTERS, : 4 // size]
    row, depth = fragments.a_element(lane, register, part, size)
    places = np.sort((row * fragments.depth_of(size) + depth).ravel())
    assert np.array_equal(places, np.arange(16 * fragments.depth_of(size)))


@pytest.mark.parametrize("size", SIZES)
def test_a_fragment_of_b_holds_every_element_once(size):
    lane, register, part = np.mgrid[:LANES, : fragments.B_REGISTERS, : 4 // size]
    depth, col = fragments.b_element(lane, register, part, size)
    places = np.sort((depth * 8 + col).ravel())
    assert np.array_equal(places, np.arange(8 * fragments.depth_of(size)))


@pytest.mark.parametrize("size", SIZES)
def test_the_columns_of_a_register_tile_stand_at_every_depth_once(size):
    depth = np.arange(fragments.depth_of(size))
    assert np.array_equal(np.sort(fragments.tile_depth(depth, size)), depth)


@pytest.mark.parametrize("size", SIZES)
def test_each_lane_holds_what_its_fragment_of_a_register_tile_takes(size):
    cols = fragments.depth_of(size)
    lane, register, part = np.mgrid[:LANES, : fragments.A_REGISTERS, : 4 // size]
    row, depth = fragments.a_element(lane, register, part, size)
    held, registers = np.mgrid[:LANES, : 16 * cols // LANES]
    tile_row, tile_col = tile_element(held, registers, 0, cols, 1)
    owner = np.zeros((16, cols), int)
    owner[tile_row, tile_col] = held
    assert np.array_equal(owner[row, fragments.tile_depth(depth, size)], lane)


@pytest.mark.parametrize("along", [0, 1])
def test_the_lanes_name_each_row_of_four_matrices_once(along):
    row, piece = fragments.matrix_row(np.arange(LANES), along)
    assert np.array_equal(np.sort(row * 2 + piece), np.arange(LANES))
    # Lanes 8 to 15 name the second matrix.
    assert (row[8], piece[8]) == ((0, 1) if along else (8, 0))
