"""Tables of boxes put together: in the order of the program, and groups side by side."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from pykittens.analysis.traffic.boxes import BOX, LANE, LINE, UNIT
from pykittens.analysis.traffic.tables import at, in_order, side_by_side


def table(lanes, line=0, first=0):
    """A box a lane named, numbered from `first`."""
    made = np.zeros((5, len(lanes)), np.int64)
    made[LANE] = made[UNIT] = lanes
    made[LINE], made[BOX] = line, first + np.arange(len(lanes))
    return made


@pytest.mark.parametrize("second", [[0, 1, 2], [0, 0, 1, 1, 2, 2], [0, 2, 2], [1], []])
def test_a_lane_does_one_thing_after_the_other(second):
    found = in_order([table([0, 1, 2]), table(second, first=10)], 3)
    expected = []
    for lane in range(3):
        expected += [lane, *(10 + i for i, x in enumerate(second) if x == lane)]
    assert found[BOX].tolist() == expected


def test_boxes_of_inner_lanes_are_those_of_the_outer_ones():
    assert at(table([0, 1, 1, 3]), np.array([4, 5, 5, 6]))[LANE].tolist() == [4, 5, 5, 6]


def test_groups_of_a_unit_are_at_the_same_share_of_their_work():
    lines = [SimpleNamespace(writes=False), SimpleNamespace(writes=True)]
    reads, writes = table([0, 0, 0, 0, 1]), table([0, 0, 1], line=1, first=10)
    found = side_by_side([reads, writes], lines)
    # The first store comes when half of the reads are done, the last when all are.
    assert found[BOX].tolist() == [0, 1, 2, 10, 3, 11, 4, 12]
    assert found[UNIT].tolist() == [0, 0, 0, 0, 0, 0, 1, 1]
