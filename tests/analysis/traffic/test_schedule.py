"""Who does what when: blocks that stay, blocks of a grid, and what is done before and after the tasks."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens.analysis.traffic.boxes import BYTES, LINE
from pykittens.analysis.traffic.schedule import TIME, UnitSchedule, in_time
from tests.analysis.traffic.test_trace import traced


def test_blocks_that_stay_take_every_nth_unit():
    schedule = UnitSchedule(3, pk.row_major, [100, 100, 100])
    assert schedule.start(np.array([5, 1, 1, 1])).tolist() == [100, 100, 100, 105]
    assert schedule.start(np.array([1, 7])).tolist() == [101, 101]
    assert schedule.ends == [106, 102, 108]
    assert schedule.horizon == 102


def test_every_second_round_of_longest_first_goes_backwards_cluster_by_cluster():
    schedule = UnitSchedule(4, pk.longest_first, [0] * 4, cluster=2)
    sizes = [1, 2, 30, 40, 500, 600, 7000, 8000]
    assert schedule.start(np.array(sizes)).tolist() == [0, 0, 0, 0, 30, 40, 1, 2]
    assert schedule.ends == [7001, 8002, 530, 640]


def test_blocks_of_a_grid_go_to_whoever_is_free_first():
    schedule = UnitSchedule(2, None, [0, 0])
    assert schedule.start(np.array([5, 1, 1, 1, 1, 9])).tolist() == [0, 0, 1, 2, 3, 4]
    assert sorted(schedule.ends) == [5, 13]
    assert schedule.horizon == 5


@pk.kernel
def framed(first, x, last, y):
    """Each block reads one tile before its tasks and one after them."""
    tasks = pk.persistent((5,))
    t = pk.load(first[0], rows=64, cols=64)
    for (task,) in tasks:
        pk.store(y[task], pk.load(x[task], rows=64, cols=64) + t)
    pk.store(y[5], pk.load(last[0], rows=64, cols=64))


def test_what_stands_outside_the_tasks_is_done_once_by_each_block():
    tile, tall = np.zeros((64, 64), np.float32), np.zeros((384, 64), np.float32)
    trace, _ = traced(framed, tile, tall, tile, tall)
    table = np.concatenate(list(in_time(trace, 2)), axis=1)
    size, names = 64 * 64 * 4, [trace.lines[n].tensor for n in table[LINE]]
    assert set(table[BYTES].tolist()) == {size}
    # Two blocks, of three and of two tasks: x and y for each between `first` and `last`, which goes to y, too.
    when = sorted(zip((table[TIME] // size).tolist(), names, strict=True))
    assert when == sorted(
        [(0, "first"), (0, "first"), (7, "last"), (8, "y"), (5, "last"), (6, "y")]
        + [(t, n) for i in range(3) for t, n in ((1 + 2 * i, "x"), (2 + 2 * i, "y"))]
        + [(t, n) for i in range(2) for t, n in ((1 + 2 * i, "x"), (2 + 2 * i, "y"))]
    )
