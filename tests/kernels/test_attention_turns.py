"""How tasks of attention are shared, and the turns of those that add to one tile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pykittens as pk
from pykittens.ir.orders import positions
from pykittens.kernels.attention.balance import chosen, fullest, masked_of, section_of, steps_of
from pykittens.kernels.attention.config import configs_for
from pykittens.kernels.attention.reference import visible_of
from pykittens.kernels.attention.turns import Beside
from pykittens.kernels.attention.visible import Blocks, Interval, band
from pykittens.kernels.limits import Limits
from pykittens.targets.architectures import TARGETS

HOPPER = Limits("sm_90a", TARGETS["sm_90a"].shared_bytes, warpgroups=True)
COUNTS = st.integers(1, 40)


@given(
    costs=st.lists(st.integers(1, 20), min_size=1, max_size=12),
    heads=COUNTS,
    section=COUNTS,
    blocks=COUNTS,
)
def test_the_fullest_block_is_that_of_the_order(costs, heads, section, blocks):
    descending = np.array(sorted(costs, reverse=True), float)
    order = pk.longest_first(section)
    tasks = []
    for first in range(0, heads, section):
        width = min(section, heads - first)
        tasks += [cost for cost in descending for _ in range(width)]
    work = [sum(tasks[p] for p in positions(order, k, blocks, len(tasks))) for k in range(blocks)]
    assert fullest(descending, heads, min(section, heads), blocks) == max(work)


@given(
    queries=st.integers(1, 300),
    keys=st.integers(1, 300),
    left=st.none() | st.integers(0, 200),
    right=st.none() | st.integers(0, 200),
)
def test_steps_are_the_blocks_with_a_key_that_is_seen(queries, keys, left, right):
    visible = visible_of(False, queries, keys, (left, right))
    found = steps_of(band(left, right), 64, queries, 48, keys)
    for i, steps in enumerate(found):
        columns = np.flatnonzero(visible[64 * i : 64 * (i + 1)].any(axis=0))
        wanted = 1 if not len(columns) else columns[-1] // 48 - columns[0] // 48 + 1
        assert steps >= wanted
        assert len(columns) == 0 or steps == wanted


@given(
    queries=st.integers(1, 300),
    keys=st.integers(48, 300),
    left=st.none() | st.integers(0, 200),
    right=st.none() | st.integers(0, 200),
)
def test_masked_steps_are_the_blocks_that_a_bound_cuts(queries, keys, left, right):
    keys -= keys % 48  # the end of the keys is no bound
    visible = visible_of(False, queries, keys, (left, right))
    found = masked_of(band(left, right), 64, queries, 48, keys)
    for i, masked in enumerate(found):
        part = visible[64 * i : 64 * (i + 1)]
        blocks = part.reshape(len(part), -1, 48)
        cut = blocks.any(axis=(0, 2)) & ~blocks.all(axis=(0, 2))
        assert masked >= cut.sum()
        assert masked == cut.sum() or None not in (left, right) or not part.any()


def test_a_section_has_more_heads_only_if_they_fill_the_blocks_better():
    costs, blocks = np.arange(12.0, 0.0, -1.0), HOPPER.multiprocessors
    cost, section = section_of(costs, 256, 2**20, HOPPER)
    assert cost <= 1.1 * min(fullest(costs, 256, s, blocks) for s in range(1, 257))
    assert section_of(costs, 256, 2**40, HOPPER)[1] <= section
    few = np.arange(128.0, 0.0, -1.0)  # a head nearly fills a round
    assert section_of(few, 16, 2**24, HOPPER)[1] == 16


@pytest.mark.parametrize("tasks", [24, 48, 96, 128])
def test_a_section_in_order_has_few_tasks_or_many_rounds_of_them(tasks):
    _, section = section_of(np.arange(float(tasks), 0, -1), 64, 2**20, HOPPER, ordered=True)
    assert not 0.4 < section * tasks / HOPPER.multiprocessors < 5


def test_few_tasks_take_the_configuration_with_more_of_them():
    configs = configs_for(64, 64, HOPPER)
    few, _ = chosen(configs, 16, 1000, 1000, 4 * 64 * 1000, Interval(), HOPPER)
    many, _ = chosen(configs, 512, 3072, 3072, 4 * 64 * 3072, Interval(), HOPPER)
    assert (few.rows, many.rows) == (128, 192)


@pk.kernel
def turns_of(turns, rounds, steps, section, most, *, is_spread):
    """The turn, the round and the step of block j of keys at each block i of queries that it sees."""
    heads, keys, queries = turns.shape
    width = 1 if is_spread else section
    tasks = pk.persistent((heads, keys), order=pk.longest_first(width), blocks=most)
    slot, number = tasks.block, 0
    for h, index in tasks:
        j = keys - 1 - index
        first = h // width * width
        others = Beside.of(j, slot, tasks.blocks, pk.minimum(width, heads - first), keys)
        if is_spread:
            others = others.spread(j, queries)
            i, turn, rest = others.first_step(j, queries)
        pk.store(rounds[h, j], number * (keys + 1) + others.low)
        for step in pk.range(0 if is_spread else j, queries):
            if is_spread:
                pk.store(turns[h, j, i], turn)
                pk.store(steps[h, j, i], step)
                i, turn, rest = others.next_step(i, turn, rest, queries)
            else:
                pk.store(turns[h, j, step], others.turn(j, Blocks(0, 0, 0, step + 1)))
                pk.store(steps[h, j, step], step - j)
        slot, number = tasks.blocks - 1 - slot, number + 1


@pytest.mark.parametrize("is_spread", [False, True])
@settings(max_examples=40)
@given(
    heads=st.integers(1, 5),
    keys=st.integers(1, 9),
    queries=st.integers(1, 9),
    section=st.integers(1, 6),
    most=st.integers(1, 4),
)
def test_blocks_add_in_the_order_in_which_they_come(is_spread, heads, keys, queries, section, most):
    if not is_spread:
        queries = keys
    turns = np.full((heads, keys, queries), -1, np.int32)
    rounds, steps = np.zeros((heads, keys), np.int32), turns.copy()
    turns_of(turns, rounds, steps, section, most, is_spread=is_spread)
    for h in range(heads):
        for i in range(queries):
            seeing = [j for j in range(keys) if turns[h, j, i] >= 0]
            assert sorted(turns[h, seeing, i]) == list(range(len(seeing)))
            order = sorted(seeing, key=lambda j: turns[h, j, i])
            came = [(rounds[h, j], steps[h, j, i]) for j in order]
            assert came == sorted(came)
