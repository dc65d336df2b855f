"""Task orders: every position has one block, those of a block rise, and `longest_first` gives blocks like shares."""

from __future__ import annotations

import itertools
import math
import random
from statistics import geometric_mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pykittens as pk
from pykittens.ir.nodes import Order, Tasks
from pykittens.ir.orders import decode, positions, taker, task_extents

HEADS = st.integers(1, 2**31 - 1).map(pk.longest_first) | st.integers(1, 9).map(pk.longest_first)
PLAIN = st.sampled_from([pk.row_major, pk.column_major, pk.supergroup(3)])
ORDERS = PLAIN | HEADS
COUNT, BLOCKS = st.integers(0, 500), st.integers(1, 140)
DIMS = st.lists(st.integers(1, 7), min_size=2, max_size=4)


@given(dims=DIMS, order=ORDERS)
def test_an_order_visits_every_task_once(dims, order):
    seen = [decode(order, dims, position) for position in range(math.prod(dims))]
    assert sorted(seen) == list(itertools.product(*map(range, dims)))


def in_order(order: Order, *dims: int) -> list[tuple[int, ...]]:
    return [decode(order, dims, position) for position in range(math.prod(dims))]


def test_the_last_axis_runs_fastest_by_rows_and_the_last_but_one_by_columns():
    assert in_order(pk.row_major, 2, 2, 3)[:4] == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 0)]
    assert in_order(pk.column_major, 2, 2, 3)[:4] == [(0, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1)]


def test_a_supergroup_walks_columns_of_so_many_rows():
    assert in_order(pk.supergroup(2), 3, 2) == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]


def test_longest_first_takes_the_last_axis_descending_within_sections_of_heads():
    assert in_order(pk.longest_first(2), 1, 3, 2) == [
        *[(0, 0, 1), (0, 1, 1), (0, 0, 0), (0, 1, 0)],
        *[(0, 2, 1), (0, 2, 0)],
    ]


def test_a_cluster_takes_neighbours_and_the_odd_one_is_rounded_up():
    tasks = Tasks((5, 3), pk.row_major, cluster_axis=0)
    assert task_extents(tasks, (5, 3), 2) == (3, 3)


@given(order=ORDERS, count=COUNT, blocks=BLOCKS)
def test_one_block_takes_a_position(order, count, blocks):
    taken = [list(positions(order, block, blocks, count)) for block in range(blocks)]
    assert sorted(itertools.chain(*taken)) == list(range(count))
    assert all(taker(order, p, blocks) == block for block, ps in enumerate(taken) for p in ps)


@given(order=ORDERS, count=COUNT, blocks=BLOCKS)
def test_the_positions_of_a_block_rise_by_one_a_round(order, count, blocks):
    for block in range(blocks):
        taken = list(positions(order, block, blocks, count))
        assert [p // blocks for p in taken] == list(range(len(taken)))


@given(order=PLAIN, count=COUNT, blocks=BLOCKS)
def test_other_orders_take_every_nth_position(order, count, blocks):
    for block in range(blocks):
        assert list(positions(order, block, blocks, count)) == list(range(block, count, blocks))


def test_the_rounds_of_longest_first_alternate_in_direction():
    taken = [list(positions(pk.longest_first, block, 4, 14)) for block in range(4)]
    assert taken == [[0, 7, 8], [1, 6, 9], [2, 5, 10, 13], [3, 4, 11, 12]]


def fullest(
    heads: int, rows: int, size: int, blocks: int, order: Order = pk.longest_first
) -> float:
    """The work of the block with the most, relative to the mean, if task i of a head takes i + 1.

    A section has `size` heads, and the blocks take positions as in `order`.
    """
    sections = [min(size, heads - first) for first in range(0, heads, size)]
    work = [row for heads in sections for row in range(rows, 0, -1) for _ in range(heads)]
    taken = (positions(order, block, blocks, len(work)) for block in range(blocks))
    return max(sum(work[p] for p in ps) for ps in taken) * blocks / sum(work)


@pytest.mark.parametrize("seed", range(3))
def test_shares_are_more_alike_if_rounds_alternate(seed):
    rng, one, two = random.Random(seed), [], []
    while len(one) < 40:
        heads, rows, blocks = rng.randint(8, 256), rng.randint(2, 64), rng.choice((114, 132, 264))
        if heads * rows > blocks:
            shape = heads, rows, rng.choice((4, 8, 16, 32, heads)), blocks
            one.append(fullest(*shape, pk.row_major))
            two.append(fullest(*shape))
    assert geometric_mean(two) < geometric_mean(one)


@pytest.mark.parametrize("seed", range(3))
def test_shares_of_one_section_are_never_less_alike_if_rounds_alternate(seed):
    rng = random.Random(seed)
    for _ in range(40):
        heads, rows, blocks = rng.randint(8, 256), rng.randint(2, 64), rng.choice((114, 132, 264))
        shape = heads, rows, heads, blocks
        assert fullest(*shape) <= fullest(*shape, pk.row_major)


def test_one_section_of_few_rounds_is_shared_out_evenly():
    """8 blocks of queries for 64 heads are 512 tasks for 132 blocks."""
    assert fullest(64, 8, 64, 132, pk.row_major) > 1.14
    assert fullest(64, 8, 64, 132) < 1.04
