"""Boxes and their pieces: edges, sectors, tiles of several sizes of one tensor."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens.analysis.traffic.boxes import BOX, BYTES, LINE, MOST_PIECES, Boxes, lines_of
from tests.analysis.traffic.test_trace import traced
from tests.running import recorded


@pk.kernel(warps=1)
def sizes(x, y):
    """One tensor in tiles of two sizes, with edges inside a tile."""
    (block,) = pk.grid(pk.cdiv(x.rows, 32))
    t = pk.load(x[block], rows=32, cols=32)
    for i in range(2):
        pk.store(y[block * 2 + i], pk.load(x[block * 2 + i, 1], rows=16, cols=16))
    pk.store(y[block, 1], t)


def test_tiles_of_two_sizes_ask_for_the_same_pieces():
    x, y = (np.zeros((40, 24), np.float32) for _ in range(2))
    trace, table = traced(sizes, x, y)
    of = {
        rows: [n for n, line in enumerate(trace.lines) if line.sides[0] == rows and line.reads]
        for rows in (16, 32)
    }
    small, large = (table[:, np.isin(table[LINE], of[rows])] for rows in (16, 32))
    assert [g.sides for g in trace.boxes.grains] == [(16, 16)] * 6
    # 40 x 24 elements in pieces of 16 x 16: 3 down, 2 across.
    assert sorted(large[BOX]) == [0, 1, 2, 3, 4, 5]
    by_piece = dict(zip(large[BOX].tolist(), large[BYTES].tolist(), strict=True))
    assert by_piece == {0: 1024, 1: 512, 2: 1024, 3: 512, 4: 512, 5: 256}
    assert {b: by_piece[b] for b in small[BOX].tolist()} == {1: 512, 3: 512, 5: 256}
    assert small[BYTES].sum() == 1280


@pk.kernel
def elements(x, y):
    """Single elements beside tiles of thousands."""
    (block,) = pk.grid(x.rows // 128)
    s = pk.load(x[block * 128, 11])
    pk.store(y[block], pk.load(x[block], rows=128, cols=128) * s)


def test_an_element_asks_for_its_sector_and_has_pieces_of_its_own():
    x, y = np.zeros((256, 128), np.float32), np.zeros((256, 128), np.float32)
    trace, table = traced(elements, x, y)
    assert MOST_PIECES < 128 * 128 // 8
    element = table[:, table[LINE] == 0]
    grain = trace.boxes.grains[0]
    assert element[BYTES].tolist() == [32, 32]
    assert grain.sides == (1, 8)
    assert (element[BOX] - grain.first).tolist() == [1, 128 * 16 + 1]
    assert trace.boxes.grains[1].sides == (128, 128)


def test_boxes_of_several_tensors_have_numbers_of_their_own():
    kernel = recorded(elements, np.zeros((256, 128), np.float32), np.zeros((256, 128), np.float32))
    places = Boxes(lines_of(kernel), {"x": (256, 128), "y": (256, 128)})
    spans = sorted({(g.first, g.first + g.count) for g in places.grains})
    assert all(a[1] == b[0] for a, b in zip(spans, spans[1:], strict=False))
    assert spans[0][0] == 0
    assert spans[-1][1] == places.count == 256 * 16 + 2 + 2


@pk.kernel
def windowed(x, y, start):
    """Rows from a place that is no multiple of the tile."""
    (block,) = pk.grid(2)
    part = x.window(0, start, start + 100)
    pk.store(y[block], pk.load(part[block], rows=64, cols=64))


def test_a_window_has_edges_of_its_own():
    x, y = np.zeros((256, 64), np.float32), np.zeros((128, 64), np.float32)
    for start, rows in ((37, [64, 36]), (-10, [54, 36]), (200, [56]), (300, [])):
        _, table = traced(windowed, x, y, start)
        read = table[:, table[LINE] == 0]
        assert read[BYTES].tolist() == [n * 64 * 4 for n in rows]
        assert len(set(read[BOX].tolist())) == len(rows)


@pk.kernel
def columns(x, y):
    """Both columns of a table, and a head of a tensor of rank 3 in tiles of it and of all heads."""
    i, h = pk.grid(2, x.shape[1])
    t = pk.load(x[:, h][i, 0], rows=64, cols=32)
    for j in range(2):
        pk.store(y[:, j][i], pk.row_sum(t))


def test_columns_of_a_table_ask_for_the_same_sectors():
    x, y = np.zeros((100, 3, 32), np.float32), np.zeros((100, 2), np.float32)
    trace, table = traced(columns, x, y)
    read, *stores = (table[:, table[LINE] == n] for n in range(3))
    assert read[BYTES].sum() == x.nbytes
    assert len(set(read[BOX].tolist())) == 2 * 3
    for store in stores:
        assert store[BYTES].sum() == 3 * y.nbytes
        assert set(store[BOX].tolist()) == set(stores[0][BOX].tolist())
    assert trace.boxes.grains[1].sides == (64, 8)


@pk.kernel
def planes(x, y):
    """A head, and a row of all heads: the same elements by two ways."""
    pk.grid(1)
    pk.store(y, pk.load(x[:, 1], rows=16, cols=16) + pk.load(x[3, :], rows=16, cols=16))


def test_planes_of_a_tensor_ask_for_the_same_pieces_if_these_are_not_too_many():
    x = np.zeros((16, 16, 16), np.float32)
    trace, table = traced(pk.kernel(warps=1)(planes.function), x, x[0].copy())
    head, row = (set(table[BOX, table[LINE] == n].tolist()) for n in range(2))
    assert [g.sides for g in trace.boxes.grains[:2]] == [(1, 1, 16)] * 2
    assert len(head) == len(row) == 16
    assert len(head & row) == 1
