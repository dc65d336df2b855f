"""Shared memory outside pipelines: names, scope and indices."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32
from pykittens.ir.text import text
from pykittens.targets.emit import emit
from tests.running import recorded


def test_shared_vectors_and_tiles_named_outside_roles_are_seen_in_all():
    @pk.kernel
    def kernel(x, y):
        rows = pk.shared(pk.sv(f32, 64), count=2)
        full = pk.semaphore(1)
        pk.grid(1)
        second = rows[1]
        with pk.warps(1):
            pk.store(second, pk.load(x[0], cols=64) + 1)
            full.arrive()
        with pk.warps(1):
            full.wait(0)
            pk.store(y[0], pk.load(second))

    x, y = np.ones((1, 64), np.float32), np.full((1, 64), np.nan, np.float32)
    kernel(x, y)
    assert (y == 2).all()


def test_shared_memory_takes_the_name_it_is_given_and_stands_in_the_text():
    @pk.kernel
    def kernel(x):
        tiles, full = pk.shared(pk.st(f32, 64, 16), count=3), pk.semaphore(2)
        pk.grid(1)
        assert len(tiles) == 3
        full.arrive()
        pk.store(x[0], pk.load(tiles[2]))

    shown = text(recorded(kernel, np.zeros((64, 16), np.float32)))
    assert "  shared tiles: 3 x st<f32, 64x16>\n  shared full: semaphore<2>\n" in shown
    assert "arrive(semaphore=full)" in shown


def test_shared_memory_holds_no_number_before_it_is_written():
    @pk.kernel
    def kernel(y):
        tile = pk.shared(pk.st(f32, 64, 16))
        pk.grid(1)
        pk.store(y[0], pk.load(tile))

    y = np.zeros((64, 16), np.float32)
    kernel(y)
    assert np.isnan(y).all()


@pytest.mark.parametrize("count", [0, 1.5, "2"])
def test_a_count_is_a_positive_int(count):
    @pk.kernel
    def kernel(y):
        pk.semaphore(1, count=count)
        pk.grid(1)

    with pytest.raises(pk.KernelError, match="`count` must be a positive compile-time int"):
        kernel(np.zeros(8, np.float32))


def test_shared_memory_of_a_list_is_named_by_its_place():
    @pk.kernel
    def kernel(x):
        tiles = [pk.shared(pk.st(f32, 64, 16)) for _ in range(2)]
        by_name = {n: pk.shared(pk.sv(f32, 64)) for n in "ab"}
        full, free = (pk.semaphore(1) for _ in range(2))
        [left, right] = [pk.pipeline(2, pk.st(f32, 64, 16)) for _ in range(2)]
        rings = [pk.pipeline(2, pk.st(f32, 64, 16)), left]
        pk.grid(1)
        with pk.producer():
            for ring in (rings[0], right):
                with ring.fill() as t:
                    pk.load_async(t, x[0])
        with pk.warpgroups(1):
            pk.store(tiles[1], pk.zeros(f32, 64, 16))
            pk.store(by_name["b"], pk.load(x[0, 0], cols=64))
            full.arrive()
            free.arrive()
            for ring in (rings[0], right):
                with ring.drain():
                    pass

    made = recorded(kernel, np.ones((64, 64), np.float32))
    assert [s.value.name for s in made.shared] == [
        "tiles[0]", "tiles[1]", "by_name['a']", "by_name['b']", "full", "free",
    ]  # fmt: skip
    assert [p.name for p in made.pipelines] == ["left", "right", "rings[0]"]
    cuda = emit(made, "sm_90a").text
    assert [s.value.name for s in made.shared][1] == "tiles[1]"
    assert "tiles_1" in cuda
    assert "rings_0" in cuda


def test_shared_memory_that_is_added_to_a_list_is_named_by_its_place():
    @pk.kernel
    def kernel(x):
        tiles, by_name, rings, rows = [], {}, [], [None, None]
        sems = []
        for i in range(2):
            tiles.append(pk.shared(pk.st(f32, 64, 16)))
            tiles += [pk.shared(pk.st(f32, 64, 16))]
            row = pk.shared(pk.sv(f32, 64))
            rows[i] = row
            by_name["ab"[i]] = pk.semaphore(1)
            ring = pk.pipeline(1, pk.st(f32, 64, 16))
            rings.append(ring)
        sems.extend(pk.semaphore(1) for _ in range(2))
        alone = pk.semaphore(1)
        others = [alone, tiles]
        others.append(others)
        pk.grid(1)
        with pk.warpgroups(1):
            pk.store(others[1][0], pk.zeros(f32, 64, 16))

    made = recorded(kernel, np.ones((64, 64), np.float32))
    assert [s.value.name for s in made.shared] == [
        "tiles[0]", "tiles[1]", "rows[0]", "by_name['a']", "tiles[2]", "tiles[3]", "rows[1]", "by_name['b']",
        "sems[0]", "sems[1]", "alone",
    ]  # fmt: skip
    assert [p.name for p in made.pipelines] == ["rings[0]", "rings[1]"]


def test_a_generator_of_too_many_values_is_python_s_error():
    @pk.kernel
    def kernel(x):
        a, b = (pk.shared(pk.sv(f32, 64)) for _ in range(3))
        pk.grid(1)

    with pytest.raises(pk.KernelError, match="too many values to unpack"):
        kernel(np.ones((64, 64), np.float32))
