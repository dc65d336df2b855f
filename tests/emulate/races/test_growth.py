"""The work of the race detector grows linearly with the number of accesses, counted in compared accesses."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32, int32
from pykittens.emulate.finding import Kind
from pykittens.emulate.races import shadow
from tests.races import faults, findings, tile


@pk.kernel
def by_blocks(x, places, y, *, op: str | None):
    (block,) = pk.grid(pk.cdiv(x.rows, 64))
    index = pk.load(places[block], cols=64, spread=pk.per_row)
    pk.scatter(y, index, pk.load(x[block], rows=64, cols=16), op=op)


@pk.kernel
def in_a_loop(x, places, y, *, op: str | None):
    pk.grid(1)
    for i in pk.range(pk.cdiv(x.rows, 64)):
        index = pk.load(places[i], cols=64, spread=pk.per_row)
        pk.scatter(y, index, pk.load(x[i], rows=64, cols=16), op=op)


@pk.kernel
def met_in_a_loop(x, places, y, *, op: str | None):
    pk.grid(1)
    for i in pk.range(pk.cdiv(x.rows, 64)):
        index = pk.load(places[i], cols=64, spread=pk.per_row)
        pk.scatter(y, index, pk.load(x[i], rows=64, cols=16), op=op)
        pk.sync()


def compared(monkeypatch, kernel, rows, op="add"):
    """The pairs of accesses that are compared if so many rows are scattered to four."""
    count = 0
    judge = shadow.judge

    def counted(*args):
        nonlocal count
        count += 1
        judge(*args)

    with monkeypatch.context() as patched:
        patched.setattr(shadow, "judge", counted)
        x, y = tile(rows, 16, dtype=int32), tile(4, 16, dtype=int32)
        places = (np.arange(rows) * 7 % 4).astype(np.int32)
        findings(kernel, x, places, y, seeds=[0], op=op)
    return count


@pytest.mark.parametrize("op", ["add", "max", None])
@pytest.mark.parametrize("kernel", [by_blocks, in_a_loop, met_in_a_loop])
def test_a_scatter_to_few_rows_is_compared_linearly(monkeypatch, kernel, op):
    few, many = (compared(monkeypatch, kernel, rows, op) for rows in (512, 2048))
    assert few > 0
    assert many <= 4.5 * few


@pk.kernel
def read_after_a_scatter(x, places, y, z, *, meets: bool):
    pk.grid(1)
    for i in pk.range(pk.cdiv(x.rows, 64)):
        index = pk.load(places[i], cols=64, spread=pk.per_row)
        pk.scatter(y, index, pk.load(x[i], rows=64, cols=16), op="add")
    if meets:
        pk.sync()
    pk.store(z, pk.load(y, rows=64, cols=16))


@pytest.mark.parametrize("meets", [True, False])
def test_a_read_of_rows_that_many_lanes_combined_with_needs_a_sync(meets):
    places = (np.arange(256) * 7 % 64).astype(np.int32)
    args = tile(256, 16), places, tile(64, 16), np.full((64, 16), np.nan, f32.numpy)
    assert faults(read_after_a_scatter, *args, meets=meets) == (set() if meets else {Kind.RACE})


@pk.kernel
def read_by_the_next_block(x, places, y, z):
    (block,) = pk.grid(pk.cdiv(x.rows, 64))
    index = pk.load(places[block], cols=64, spread=pk.per_row)
    if block < 7:
        pk.scatter(y, index, pk.load(x[block], rows=64, cols=16), op="max")
    else:
        pk.store(z, pk.load(y, rows=64, cols=16))


def test_a_read_of_rows_that_ended_blocks_combined_with_is_a_conflict():
    places = (np.arange(512) % 64).astype(np.int32)
    args = tile(512, 16), places, tile(64, 16), np.full((64, 16), np.nan, f32.numpy)
    assert faults(read_by_the_next_block, *args, seeds=[0]) == {Kind.BLOCK_CONFLICT}
