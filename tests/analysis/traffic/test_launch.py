"""Units of a launch: their number and their coordinates, as the emulator counts them."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.analysis.traffic.launch import LaunchWork
from pykittens.ir.orders import decode
from tests.running import recorded


@pk.kernel
def points(x, n):
    i, j = pk.grid(n, 5)
    pk.store(x[i, j], 1.0)


@pk.kernel(cluster=2)
def tasks(x, *, order):
    for i, j in pk.persistent((5, 6), order=order, cluster_axis=1):
        pk.store(x[i, j], 1.0)


def launch(kernel, *scalars, **constants):
    x = np.zeros((9, 9), np.float32)
    made = recorded(kernel, x, *scalars, **constants)
    return LaunchWork.of(made, {"x": x.shape}, dict(zip("n", scalars, strict=False)))


def test_a_grid_has_its_last_axis_fastest():
    found = launch(points, 3)
    assert (found.units, found.persistent) == (15, False)
    assert found.coordinates(4, 11).T.tolist() == [[u // 5, u % 5] for u in range(4, 11)]


def test_a_negative_extent_leaves_nothing_to_do():
    assert launch(points, -2).units == 0


@pytest.mark.parametrize(
    "order", [pk.row_major, pk.column_major, pk.supergroup(2), pk.longest_first(2)]
)
@pytest.mark.parametrize(("first", "last"), [(0, 30), (7, 12), (8, 9), (29, 30)])
def test_the_blocks_of_a_cluster_have_neighbours(order, first, last):
    found = launch(tasks, order=order)
    assert (found.units, found.persistent, found.extents) == (30, True, (5, 3))
    expected = []
    for unit in range(first, last):
        i, j = decode(order, (5, 3), unit // 2)
        expected.append([i, 2 * j + unit % 2])
    assert found.coordinates(first, last).T.tolist() == expected
