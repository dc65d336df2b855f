"""Cycles of shared memory: what is known of layouts, and of requests of any kind."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pykittens as pk
from pykittens.analysis.accesses import chunk_moves, held, matrices
from pykittens.analysis.banks import cycles, fewest, shared_costs
from pykittens.analysis.requests import NOWHERE, Requests
from pykittens.analysis.sectors import global_costs
from pykittens.runtime.arrays import describe
from pykittens.types.dtypes import bf16, e4m3, f32, int8, int64
from pykittens.types.layouts import SharedLayout
from pykittens.types.tiles import RT, ST, shared_tile
from tests import lanes
from tests.cases import CASES
from tests.running import recorded
from tests.touched import touched


def wavefronts(addresses, size):
    """Cycles of one request, lane by lane and byte by byte: for each phase, the most words of a bank."""
    together, total = {8: 16, 16: 8}.get(size, 32), 0
    for first in range(0, 32, together):
        words = defaultdict(set)
        for address in addresses[first : first + together]:
            for byte in range(address, address + size) if address >= 0 else ():
                words[byte // 4 % 32].add(byte // 4)
        total += max(map(len, words.values()), default=0)
    return total


ADDRESSES = st.lists(st.integers(-1, 500), min_size=32, max_size=32)


def request(slots, size):
    return np.array([[s * size if s >= 0 else NOWHERE for s in slots]])


@given(slots=ADDRESSES, size=st.sampled_from([1, 2, 4, 8, 16]))
def test_cycles_are_the_most_words_that_a_bank_is_asked_for_in_each_phase(slots, size):
    addresses = request(slots, size)
    found = cycles(Requests(addresses, size))
    assert found == wavefronts(addresses[0].tolist(), size)
    assert found >= fewest(Requests(addresses, size))


@given(slots=ADDRESSES, size=st.sampled_from([1, 2, 4, 8, 16]), order=st.randoms())
def test_lanes_of_a_phase_may_change_places(slots, size, order):
    together = min(32, 128 // size)
    mixed = []
    for first in range(0, 32, together):
        phase = slots[first : first + together]
        order.shuffle(phase)
        mixed += phase
    assert cycles(Requests(request(slots, size), size)) == cycles(
        Requests(request(mixed, size), size)
    )


@given(lines=st.permutations(range(32)), size=st.sampled_from([4, 8, 16]))
def test_neighbours_in_any_order_have_no_conflicts(lines, size):
    together = 128 // size
    slots = [first + s for first in range(0, 32, together) for s in lines if s < together]
    asked = Requests(request(slots, size), size)
    assert cycles(asked) == fewest(asked) == 32 // together


def test_one_word_that_all_lanes_ask_for_is_read_once():
    assert cycles(Requests(np.full((1, 32), 52), 4)) == 1
    assert cycles(Requests(np.arange(32)[None], 1)) == 1


def test_a_column_of_words_takes_a_cycle_a_lane():
    assert cycles(Requests(128 * np.arange(32)[None], 4)) == 32


# -- tiles -----------------------------------------------------------------------------------------


def conflicts(requests):
    return cycles(requests) / fewest(requests)


def chunks(tile, transposed=False):
    """What four warps move between registers and a tile of a dtype that is not of 16 bits."""
    rows, cols = (tile.cols, tile.rows) if transposed else (tile.rows, tile.cols)
    at = held(RT(tile.dtype, rows, cols), 4, transposed)
    (requests,) = chunk_moves(at, tile.dtype, tile.layout.offset, True, False)
    return requests


@pytest.mark.parametrize("cols", [16, 32, 64, 128])
@pytest.mark.parametrize("rows", [16, 32, 64, 128])
def test_swizzled_tiles_of_16_bits_have_no_conflicts(rows, cols):
    found = matrices(shared_tile(bf16, rows, cols))
    assert cycles(found) == fewest(found) == rows * cols * 2 // 128


@pytest.mark.parametrize("swizzle", [16, 32, 64, 128])
@pytest.mark.parametrize("dtype", [bf16, f32, e4m3], ids=str)
def test_matrices_of_products_have_no_conflicts_in_a_panel(dtype, swizzle):
    tile = ST(dtype, 64, swizzle // dtype.bytes, SharedLayout(swizzle, 64, dtype.bytes))
    assert conflicts(matrices(tile)) == 1


@pytest.mark.parametrize(("row_bytes", "ways"), [(16, 1), (32, 2), (64, 4), (128, 8)])
def test_rows_without_a_swizzle_meet_in_the_banks_that_they_share(row_bytes, ways):
    """Eight rows of 16 bytes that lie `row_bytes` apart: 128 / row_bytes of them lie in banks of their own."""
    addresses = (np.arange(8) * row_bytes)[None]
    assert cycles(Requests(addresses, 16)) == ways


@pytest.mark.parametrize(
    ("dtype", "cols", "ways"),
    [
        # Half a warp has 32 bytes of four rows, two pieces of 16: the swizzle exchanges the two from a row to the next.
        (f32, 32, 2),
        (f32, 256, 2),
        (f32, 16, 2),  # two rows a line of 128 bytes, so from two rows to the next two
        # A quarter has 64 bytes of two rows, which the swizzle exchanges by pieces.
        (int64, 16, 2),
        # A warp has 8 bytes of eight rows: each in a piece of its own.
        (e4m3, 128, 1),
        (e4m3, 32, 1),
        (e4m3, 16, 1),
    ],
)
def test_pairs_of_neighbours_have_the_conflicts_that_their_rows_have(dtype, cols, ways):
    assert conflicts(chunks(shared_tile(dtype, 64, cols))) == ways


@pytest.mark.parametrize(
    ("dtype", "ways"),
    [
        # 32 bytes of every other of eight rows: two pieces of 16, which the swizzle brings to places of their own.
        (f32, 1),
        (int64, 1),
        # A word and a half or two of every other row, and no other lane asks for the rest of their pieces.
        (bf16, 1),
        (e4m3, 1),
    ],
)
def test_elements_of_a_transpose_have_no_conflicts_where_rows_fill_a_panel(dtype, ways):
    assert conflicts(chunks(shared_tile(dtype, 64, 256), transposed=True)) == ways


# -- kernels ---------------------------------------------------------------------------------------


def through(type_, rows, cols, warps=1):
    """A kernel that stores a part of a shared tile, and loads it."""

    @pk.kernel(warps=warps)
    def move(x, y, i):
        s = pk.shared(type_)
        pk.grid(1)
        part = s.tiles(rows, cols)[i, type_.cols // cols - 1]
        pk.store(part, pk.load(x[0], rows=rows, cols=cols))
        pk.sync()
        pk.store(y[0], pk.load(part))

    return move


@pytest.mark.skipif(lanes.COMPILER is None, reason="g++ is not installed")
@pytest.mark.parametrize(
    ("dtype", "rows", "cols"),
    [(bf16, 32, 16), (f32, 16, 16), (int8, 48, 48)],
)
def test_a_part_of_a_tile_costs_the_same_wherever_it_lies(tmp_path, dtype, rows, cols):
    type_ = shared_tile(dtype, 3 * rows, 96 if cols != 48 else 48)
    x = np.zeros((rows, cols), dtype.numpy)
    arguments = (through(type_, rows, cols), x, x.copy(), 2)
    store, load = shared_costs(recorded(*arguments))
    found = Counter()
    for (memory, writes, size, offsets), count in touched(tmp_path, *arguments).items():
        if memory == "shared":
            found[writes] += count * wavefronts(offsets, size)
    assert (store.what, load.what) == ("store", "load")
    assert (store.count, load.count) == (found[True], found[False])


@pytest.mark.skipif(lanes.COMPILER is None, reason="g++ is not installed")
@pytest.mark.parametrize("row", [0, 5, 15])
@pytest.mark.parametrize(
    ("dtype", "cols", "ways"),
    [
        (bf16, 64, 1),
        (bf16, 256, 1),
        # Panels of 64 bytes start at the same bank: the first 16 lanes have one panel and half of the next.
        (f32, 48, 3 / 2),
        (int8, 32, 1),
    ],
)
def test_a_row_of_a_tile_costs_the_same_wherever_it_lies(tmp_path, dtype, cols, ways, row):
    @pk.kernel(warps=1)
    def move(x, y, i):
        s = pk.shared(pk.st(dtype, 32, cols))
        pk.grid(1)
        part = s.tiles(16, cols)[1].row(i)
        pk.store(part, pk.load(x[0], cols=cols))
        pk.sync()
        pk.store(y[0], pk.load(part))

    x = np.zeros((1, cols), dtype.numpy)
    arguments = (move, x, x.copy(), row)
    costs, found = shared_costs(recorded(*arguments)), Counter()
    for (memory, writes, size, offsets), count in touched(tmp_path, *arguments).items():
        if memory == "shared":
            found[writes] += count * wavefronts(offsets, size)
    assert [(c.what, c.count) for c in costs] == [("store", found[True]), ("load", found[False])]
    assert all(c.count == ways * c.ideal for c in costs)


@pk.kernel
def roles(x, y):
    ring = pk.pipeline(2, a=pk.st(pk.bf16, 64, 64), b=pk.st(pk.bf16, 128, 64))
    out = pk.pipeline(1, pk.st(pk.f32, 64, 128))
    (i,) = pk.grid(4)
    with pk.producer():
        for k in pk.range(8):
            with ring.fill() as s:
                pk.load_async(s.a, x[i, k])
                pk.load_async(s.b, x[0, k])
    with pk.consumers(1):
        acc = pk.zeros(pk.f32, 64, 128)
        for _ in pk.range(8):
            with ring.drain() as s:
                acc = pk.mma_ABt(s.a, s.b, acc)
        with out.fill() as t:
            pk.store(t, acc)
    with pk.storer(), out.drain() as t:
        pk.store_async(y[i], t)


def test_each_line_is_told_with_its_place_its_operation_and_its_tile():
    x, y = np.zeros((256, 512), bf16.numpy), np.zeros((256, 128), np.float32)
    costs = shared_costs(recorded(roles, x, y))
    told = [(c.what, c.memory.split()[-1], c.count, c.ideal, c.assumed) for c in costs]
    assert told == [
        ("load_async", "64x64>", 64, 64, True),
        ("load_async", "128x64>", 128, 128, True),
        ("mma_ABt a", "64x64>", 64, 64, True),
        ("mma_ABt b", "128x64>", 128, 128, True),
        ("store", "64x128>", 512, 256, False),  # of f32, by pairs
        ("store_async", "64x128>", 256, 256, True),
    ]
    first = roles.function.__code__.co_firstlineno
    assert [c.loc.line - first for c in costs] == [8, 9, 14, 14, 16, 18]


def test_calls_of_one_line_are_summed():
    @pk.kernel(warps=4)
    def stores(x):
        s = pk.shared(pk.st(pk.bf16, 128, 64))
        pk.grid(1)
        t = pk.load(x[0], rows=64, cols=64)
        for i in range(2):
            pk.store(s.tiles(64, 64)[i, 0], t)
        pk.store_async(x[0], s)

    stored, copied = shared_costs(recorded(stores, np.zeros((128, 64), bf16.numpy)))
    assert (stored.count, stored.ideal) == (128, 128)
    assert copied.assumed


def test_no_case_costs_less_than_its_requests_must():
    scratch = 0
    for case in CASES.values():
        inputs, outputs = case.arrays()
        values = [*inputs, *outputs, *case.scalars]
        made = recorded(case.kernel, *values, **case.constants)
        named = zip(case.kernel.parameters.names(len(values)), values, strict=True)
        tensors = {n: describe(v) for n, v in named if isinstance(v, np.ndarray)}
        costs = shared_costs(made)
        assert all(0 < cost.ideal <= cost.count for cost in costs), case.name
        moved = [c for c in global_costs(made, tensors) if c.ideal]
        assert all(cost.ideal <= cost.count for cost in moved), case.name
        assert moved or not outputs, case.name
        scratch += any(cost.memory == "scratch" for cost in costs)
    assert scratch


@pytest.mark.parametrize("warps", [4, 8])
def test_a_product_of_warpgroups_reads_b_once_for_each_64_rows(warps):
    @pk.kernel(warps=warps)
    def product(y):
        a, b = pk.shared(pk.st(pk.bf16, 256, 64)), pk.shared(pk.st(pk.bf16, 32, 64))
        pk.grid(1)
        pk.store(y[0], pk.mma_ABt(a, b))

    left, right = shared_costs(recorded(product, np.zeros((256, 32), np.float32)))
    assert (left.what, left.count) == ("mma_ABt a", 256)
    assert (right.what, right.count) == ("mma_ABt b", 4 * 32)
