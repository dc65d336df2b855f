"""Shared tiles and vectors seen as several smaller ones: what names a part, and what a part belongs to."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import KernelError, TypeMismatch
from pykittens.ir.passes.ownership import own_memory
from pykittens.ir.values import SharedRow, SharedVector
from pykittens.types.tiles import SV
from tests.running import recorded


def views(look):
    """What `look` says of a shared vector of 128 floats, an index known when the kernel runs, and a stage's vector."""
    said = []

    @pk.kernel
    def kernel(x, i):
        vector, ring = pk.shared(pk.sv(pk.f32, 128)), pk.pipeline(1, pk.sv(pk.f32, 64))
        pk.grid(1)
        with ring.fill() as stage:
            pk.load_async(stage, x)
        with ring.drain() as stage:
            said.append(look(vector, i, stage))

    recorded(kernel, np.zeros(4, np.float32), 1)
    return said[0]


def test_a_part_is_a_shared_vector_of_its_length():
    for index in (lambda i: 3, lambda i: i):
        part = views(lambda v, i, _, index=index: v.parts(32)[index(i)])
        assert isinstance(part, SharedVector)
        assert isinstance(part.type, SV)
        assert str(part.type) == "sv<f32, 32>"
        assert part.length == 32
        assert part.shape == (1, 32)


def test_a_part_belongs_to_the_stage_and_the_vector_it_is_of():
    stage, part, inner = views(lambda v, i, s: (s, s.parts(16)[i], s.parts(16)[i].parts(4)[3]))
    assert stage.stage is not None
    assert part.stage is inner.stage is stage.stage
    assert part.whole is inner.whole is stage.whole is stage


def test_a_part_that_is_the_whole_is_a_part_all_the_same():
    vector, part = views(lambda v, i, _: (v, v.parts(128)[0]))
    assert part is not vector
    assert part.type == vector.type


@pytest.mark.parametrize("length", [48, 256, 0, -64, 1.0, True, "16", None, 2**40])
def test_a_length_divides_that_of_the_vector(length):
    with pytest.raises(TypeMismatch, match="parts: `length` must"):
        views(lambda v, i, _: v.parts(length))
    with pytest.raises(TypeMismatch, match="parts: `length` must be a positive compile-time int"):
        views(lambda v, i, _: v.parts(i))


@pytest.mark.parametrize("index", [4, -1, 1.0, (0, 1), None, slice(0, 2)])
def test_an_index_names_one_of_the_parts(index):
    with pytest.raises(TypeMismatch, match="parts: `i` must be"):
        views(lambda v, i, _: v.parts(32)[index])


def test_parts_are_no_operand_and_say_what_they_are():
    with pytest.raises(KernelError, match="the parts of 32 of sv<f32, 128>") as fault:
        views(lambda v, i, _: pk.load(v.parts(32)))
    assert "`.parts(32)[i]`" in str(fault.value)
    with pytest.raises(KernelError, match="the parts of 32 of sv<f32, 128>"):
        views(lambda v, i, _: v.parts(32) + 1)


def test_a_vector_has_parts_in_place_of_tiles():
    with pytest.raises(TypeMismatch, match="tiles: a shared vector has no tiles") as fault:
        views(lambda v, i, _: v.tiles(1, 32))
    assert "vector.parts(length)[i] is a part of it" in str(fault.value)


def test_the_tiles_of_a_tile_take_a_row_and_a_column():
    @pk.kernel
    def kernel(x):
        tile = pk.shared(pk.st(pk.f32, 64, 64))
        pk.grid(1)
        tile.tiles(16, 16)[0, 1, 2]

    with pytest.raises(TypeMismatch, match="a row and a column, not 3 indices"):
        recorded(kernel, np.zeros(4, np.float32))


@pytest.mark.parametrize(
    ("way", "is_own"),
    [
        (lambda t, w, i: t.row(w), True),
        (lambda t, w, i: t.tiles(16, 64)[w].row(i), True),
        (lambda t, w, i: t.tiles(16, 64)[i].row(w), True),
        (lambda t, w, i: t.row(i), False),
        (lambda t, w, i: t.row(w + i), False),
    ],
)
def test_rows_that_a_group_selects_by_its_index_are_its_own(way, is_own):
    @pk.kernel
    def kernel(x, i):
        tile = pk.shared(pk.st(pk.f32, 64, 64))
        pk.grid(1)
        with pk.warps(2) as w:
            pk.store(way(tile, w, i), pk.zeros(pk.f32, 64))
            pk.store(x, pk.load(way(tile, w, i)))

    made = recorded(kernel, np.zeros(64, np.float32), 1)
    assert len(own_memory(made)) == is_own


def test_a_row_belongs_to_the_stage_of_its_tile():
    found = []

    @pk.kernel
    def kernel(x, i):
        ring = pk.pipeline(1, pk.st(pk.f32, 64, 64))
        pk.grid(1)
        with ring.fill() as stage:
            found.extend([stage, stage.row(3), stage.tiles(16, 32)[i].row(i)])
            pk.load_async(stage, x[0])
        with ring.drain() as stage:
            pk.store(x[0], pk.load(stage))

    recorded(kernel, np.zeros((64, 64), np.float32), 1)
    stage, row, inner = found
    assert isinstance(row, SharedRow)
    assert row.stage is inner.stage is stage.stage
    assert (row.length, inner.length) == (64, 32)
