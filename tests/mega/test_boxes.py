"""Boxes of an instruction that lie side by side, or overlap, are one; and no element is added."""

from __future__ import annotations

import numpy as np

from pykittens.mega.schedule import _joined


def elements(rows):
    """What the boxes of rows (owner, low, low, high, high) have."""
    return {
        (owner, x, y)
        for owner, a, b, c, d in rows.tolist()
        for x in range(a, c)
        for y in range(b, d)
    }


def joined(rows):
    for axis in (0, 1):
        rows = _joined(rows, 1 + axis, 3 + axis)
    return rows


def test_tiles_that_fill_a_box_are_one():
    tiles = [(7, a, b, a + 16, b + 64) for a in range(0, 64, 16) for b in range(0, 192, 64)]
    np.testing.assert_array_equal(joined(np.array(tiles)), [(7, 0, 0, 64, 192)])


def test_those_of_two_instructions_stay_apart():
    rows = np.array([(0, 0, 0, 4, 4), (1, 4, 0, 8, 4), (1, 0, 0, 4, 4)])
    np.testing.assert_array_equal(joined(rows), [(0, 0, 0, 4, 4), (1, 0, 0, 8, 4)])


def test_any_boxes_keep_their_elements():
    rng = np.random.default_rng(0)
    for _ in range(200):
        count = int(rng.integers(0, 12))
        low, sides = rng.integers(0, 6, (count, 2)), rng.integers(1, 5, (count, 2))
        rows = np.column_stack([rng.integers(0, 3, count), low, low + sides])
        found = joined(rows)
        assert elements(found) == elements(rows)
        assert len(found) <= len(rows)
