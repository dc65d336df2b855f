"""The number of the blocks that share the tasks, and of the block among them."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.emulate import machine
from pykittens.emulate.finding import Kind, Level
from pykittens.ir.text import text
from tests.running import recorded


@pk.kernel
def total(x, parts, y, counter):
    """y = the sum of x: each block stores the sum of its tiles, and the last one adds them up in order."""
    tasks = pk.persistent(x.tiles(64, 64))
    mine = pk.zeros(pk.f32, 64, 64)
    for row, col in tasks:
        mine = mine + pk.load(x[row, col], rows=64, cols=64)
    pk.store(parts[tasks.block], pk.sum(mine))
    if pk.atomic_add(counter[0], 1) == tasks.blocks - 1:
        sum = pk.load(parts[0])
        for i in pk.range(1, tasks.blocks):
            sum = sum + pk.load(parts[i])
        pk.store(y[0], sum)
        pk.signal(counter[0], 0)


def arguments(tiles=6):
    x = np.ones((64 * tiles, 100), np.float32)
    return x, np.zeros(64, np.float32), np.full(1, np.nan, np.float32), np.zeros(1, np.int32)


@pytest.mark.parametrize("blocks", [1, 3, 4, 50])
def test_each_block_leaves_a_partial_result_and_the_last_adds_them_up(blocks, monkeypatch):
    monkeypatch.setattr(machine, "BLOCKS", blocks)
    x, parts, y, counter = arguments()
    total(x, parts, y, counter)
    assert y[0] == x.sum()
    assert np.count_nonzero(parts) == min(blocks, 12)
    assert (parts[np.count_nonzero(parts) :] == 0).all()


@pk.kernel(cluster=2)
def counted(x, blocks):
    """What every block of a cluster is told, by a role."""
    tasks = pk.persistent(x.tiles(64, 64), cluster_axis=0)
    with pk.warpgroups(1):
        for _row, _col in tasks:
            pk.store(blocks[tasks.block], tasks.blocks)


def test_the_blocks_of_a_cluster_have_numbers_of_their_own():
    x, blocks = np.zeros((256, 64), np.float32), np.zeros(8, np.int32)
    counted(x, blocks)
    number = blocks.max()
    assert number in (2, 4)
    assert blocks.tolist() == [number] * number + [0] * (8 - number)


@pk.kernel
def limited(x, blocks, n):
    """Every block, of at most one for 128 rows and at most n, stores the number of blocks."""
    tasks = pk.persistent(x.tiles(64, 64), blocks=pk.minimum(n, pk.cdiv(x.rows, 128)))
    for _row, _col in tasks:
        pk.store(blocks[tasks.block], tasks.blocks)


@pytest.mark.parametrize(("rows", "n", "expected"), [(640, 9, 5), (640, 3, 3), (64, 9, 1)])
def test_a_limit_of_blocks_is_computed_for_each_launch(rows, n, expected, monkeypatch):
    monkeypatch.setattr(machine, "BLOCKS", 50)
    blocks = np.zeros(20, np.int32)
    limited(np.zeros((rows, 256), np.float32), blocks, n)
    assert blocks.tolist() == [expected] * expected + [0] * (20 - expected)


@pytest.mark.parametrize(("most", "expected"), [(8, 8), (2, 2), ("n", 6)])
def test_a_limit_of_blocks_holds_whole_clusters(most, expected, monkeypatch):
    @pk.kernel(cluster=2)
    def pairs(x, blocks, n, *, most):
        tasks = pk.persistent(x.tiles(64, 64), cluster_axis=0, blocks=n if most == "n" else most)
        with pk.warpgroups(1):
            for _row, _col in tasks:
                pk.store(blocks[tasks.block], tasks.blocks)

    monkeypatch.setattr(machine, "BLOCKS", 50)
    blocks = np.zeros(20, np.int32)
    pairs(np.zeros((640, 128), np.float32), blocks, 7, most=most)
    assert blocks.tolist() == [expected] * expected + [0] * (20 - expected)


def test_no_schedule_has_more_blocks_than_the_limit():
    @pk.kernel
    def kernel(x, parts):
        tasks = pk.persistent(x.tiles(64, 64), blocks=3)
        sum = pk.zeros(pk.f32, 64, 64)
        for row, col in tasks:
            sum = sum + pk.load(x[row, col], rows=64, cols=64)
        pk.store(parts[tasks.block], pk.sum(sum))

    x, *_ = arguments(tiles=20)
    parts = np.full(3, np.nan, np.float32)
    report = pk.check(kernel, x, parts, schedules=10, compile=False)
    # One block, which some schedules have, leaves two parts unwritten.
    assert {f.kind for f in report.findings} <= {Kind.SCHEDULE_DEPENDENT, Kind.UNWRITTEN_MEMORY}
    kernel(x, parts)
    assert parts.sum() == x.sum()
    assert "; at most 3 blocks)" in text(recorded(kernel, x, parts))


def test_the_numbers_are_those_of_the_launch():
    source = total.source(*arguments())
    assert "= (int)blockIdx.x;" in source
    assert "= (int)gridDim.x;" in source


def test_a_number_that_nothing_reads_is_left_out():
    @pk.kernel
    def unread(x):
        tasks = pk.persistent(x.tiles(64, 64))
        tasks.block  # noqa: B018
        for row, col in tasks:
            pk.store(x[row, col], pk.zeros(pk.f32, 64, 64))

    assert "sharing" not in text(recorded(unread, np.zeros((64, 64), np.float32)))


def test_a_sum_in_the_order_of_blocks_is_no_fault():
    x, parts, y, counter = arguments()
    report = pk.check(total, x, parts, y, counter, schedules=5, costs=False, compile=False)
    assert report.ok, report


def test_a_difference_that_the_number_of_blocks_explains_is_a_note():
    @pk.kernel
    def kernel(x, parts):
        tasks = pk.persistent(x.tiles(64, 64))
        sum = pk.zeros(pk.f32, 64, 64)
        for row, col in tasks:
            sum = sum + pk.load(x[row, col], rows=64, cols=64)
        pk.store(parts[tasks.block], pk.sum(sum))

    x, parts, *_ = arguments()
    report = pk.check(kernel, x, parts, schedules=10, costs=False, compile=False)
    assert report.ok, report
    (note,) = (f for f in report.findings if f.kind is Kind.SCHEDULE_DEPENDENT)
    assert note.level is Level.NOTE
    assert "number of blocks" in note.help
    assert any("number of blocks" in step.what for step in note.history)
