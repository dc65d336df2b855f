"""Shared tiles and parts of them: which elements they are, and what a watcher is told of them."""

from __future__ import annotations

import numpy as np
import pytest

from pykittens.emulate.memory import Area
from pykittens.emulate.regions import SharedMemory, SharedRegion
from pykittens.emulate.watch import Access, Watcher
from pykittens.errors import AccessError
from pykittens.lang.pipeline import st, sv
from pykittens.types.dtypes import f32


class Listener(Watcher):
    """Keeps what is touched."""

    def __init__(self) -> None:
        self.touched: list[tuple[object, object, Access]] = []

    def touches(self, where, box, access) -> None:
        self.touched.append((where.memory, box, access))


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def tile(listener) -> SharedRegion:
    memory = SharedMemory("`t`", st(f32, 64, 32))
    array = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
    return SharedRegion(array, memory, watch=listener)


def test_a_tile_is_the_whole_of_its_memory(tile):
    assert tile.region == tile.memory.whole == Area(0, 64, 0, 32)


def test_a_part_of_a_part_counts_from_the_first_row_and_column_of_its_tile(tile):
    part = tile.part(1, 1, 32, 16)
    assert part.region == Area(32, 64, 16, 32)
    inner = part.part(1, 0, 16, 16)
    assert inner.region == Area(48, 64, 16, 32)
    assert np.array_equal(inner.array, tile.array[48:64, 16:32])


def test_a_cut_is_a_view_that_writes_through(tile):
    tile.cut(8, 8, 4, 4).write(np.zeros((8, 4), np.float32))
    assert (tile.array[8:16, 4:8] == 0).all()
    assert (tile.array != 0).sum() == 64 * 32 - 32 - 1  # its first element is 0 before


@pytest.mark.parametrize(("i", "j"), [(2, 0), (0, 2), (-1, 0), (0, -1)])
def test_a_part_outside_its_tile_is_refused(tile, i, j):
    with pytest.raises(AccessError, match=rf"part \({i}, {j}\) of 32x16 is outside .* 64x32"):
        tile.part(i, j, 32, 16)


def test_a_part_of_a_vector_is_its_own_elements_and_no_others(listener):
    memory = SharedMemory("`v`", sv(f32, 48))
    vector = SharedRegion(np.arange(48, dtype=np.float32)[np.newaxis], memory, watch=listener)
    part = vector.part_of_vector(2, 12).part_of_vector(11, 1)
    assert part.region == Area(0, 1, 35, 36)
    part.write(np.float32([-1]))
    assert vector.array[0, 35] == -1
    assert listener.touched == [(memory, Area(0, 1, 35, 36), Access.WRITE)]
    for i in (4, -1):
        with pytest.raises(AccessError, match=f"part {i} of 12 is outside a shared vector of 48"):
            vector.part_of_vector(i, 12)


def test_reads_and_writes_are_told_with_their_elements_before_they_happen(tile, listener):
    part = tile.part(1, 0, 32, 32)
    part.read()
    part.write(np.zeros((32, 32), np.float32))
    where = Area(32, 64, 0, 32)
    assert listener.touched == [
        (tile.memory, where, Access.READ),
        (tile.memory, where, Access.WRITE),
    ]


def test_a_snapshot_keeps_what_was_and_is_nobody_s_memory(tile, listener):
    kept = tile.snapshot()
    tile.write(np.zeros((64, 32), np.float32))
    assert kept.read()[63, 31] == 64 * 32 - 1
    assert kept.memory is None
    assert [access for _, _, access in listener.touched] == [Access.WRITE]


def test_two_tiles_of_one_name_are_two():
    assert SharedMemory("`t`", st(f32, 64, 32)) != SharedMemory("`t`", st(f32, 64, 32))
