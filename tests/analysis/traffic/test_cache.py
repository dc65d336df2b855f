"""What comes from memory: the orders of blocks rank as measured, and the counts are those of an exact LRU cache."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.analysis.traffic import schedule
from pykittens.analysis.traffic.cache import traffic
from pykittens.ir.orders import decode, taker
from pykittens.runtime.arguments import check
from pykittens.types.devices import H100

BF16 = np.dtype(ml_dtypes.bfloat16)
TILE = 64 * 64 * 2  # bytes
SMALL = replace(H100, name="a small one", sms=4)


def shaped(*shape, dtype=BF16):
    """An array of a shape that may be larger than memory: one element, repeated."""
    return np.lib.stride_tricks.as_strided(
        np.empty(1, dtype), shape, [0] * (len(shape) - 1) + [dtype.itemsize]
    )


def traffic_of(kernel, *args, device=H100, blocks_per_sm=1, contents=(), **constants):
    """The traffic of a call."""
    arguments = check(kernel.parameters, args, constants)
    shapes = {n: a.shape for n, a in arguments.tensors.items()}
    known = {n: arguments.tensors[n].numpy() for n in contents}
    recorded = kernel.record(arguments)
    return traffic(recorded, shapes, arguments.scalars, device, blocks_per_sm, known)


@pk.kernel
def product(A, B, C, *, order, rows=128, cols=256, depth=64):
    """C = A @ B.T with tasks in an order of the caller's."""
    ring = pk.pipeline(2, a=pk.st(bf16, rows, depth), b=pk.st(bf16, cols, depth))
    tasks = pk.persistent(C.tiles(rows, cols), order=order)
    with pk.producer():
        for row, col in tasks:
            for k in pk.range(pk.cdiv(A.cols, depth)):
                with ring.fill() as s:
                    pk.load_async(s.a, A[row, k])
                    pk.load_async(s.b, B[col, k])
    with pk.consumers(1):
        for row, col in tasks:
            acc = pk.zeros(f32, rows, cols)
            for _ in pk.range(pk.cdiv(A.cols, depth)):
                with ring.drain() as s:
                    acc = pk.mma_ABt(s.a, s.b, acc)
            pk.store(C[row, col], acc.to(bf16))


@pk.kernel
def attention(Q, K, V, O, *, queries_fastest):
    """The copies of attention: queries, and all keys and values of their head."""
    batch, heads, _, d = Q.shape
    d, blocks = pk.static(d), pk.cdiv(Q.rows, 128)
    queries = pk.pipeline(1, pk.st(bf16, 128, d))
    keys = pk.pipeline(2, k=pk.st(bf16, 128, d), v=pk.st(bf16, 128, d))
    tasks = pk.persistent((batch, heads, blocks) if queries_fastest else (blocks, heads, batch))
    with pk.producer():
        for x, h, y in tasks:
            b, block = (x, y) if queries_fastest else (y, x)
            with queries.fill() as t:
                pk.load_async(t, Q[b, h, block, 0])
            for j in pk.range(blocks):
                with keys.fill() as t:
                    pk.load_async(t.k, K[b, h, j, 0])
                    pk.load_async(t.v, V[b, h, j, 0])
    with pk.storer():
        for x, h, y in tasks:
            b, block = (x, y) if queries_fastest else (y, x)
            for _ in pk.range(blocks):
                with keys.drain():
                    pass
            with queries.drain() as t:
                pk.store_async(O[b, h, block, 0], t)


# -- the orders of blocks --------------------------------------------------------------------------


def test_a_product_in_supergroups_reads_less_than_half_of_what_row_major_reads():
    tensors = [np.empty((16384, 16384), BF16) for _ in range(3)]
    grouped = traffic_of(product, *tensors, order=pk.supergroup(8))
    rows = traffic_of(product, *tensors, order=pk.row_major)
    steps, stores = 256 * (128 + 256) * 64 * 2, 128 * 256 * 2  # bytes of a tile of C
    assert grouped.total.asked_bytes == rows.total.asked_bytes == 128 * 64 * (steps + stores)
    assert 2 * grouped.total.hbm_read < rows.total.hbm_read
    # Of each wave of 132 tiles, 8 rows of A and about 17 columns of B; the other order has all 64 columns of B.
    for found, down, across in ((grouped, 8, 132 / 8), (rows, 132 / 64, 64)):
        wave = (down * 128 + across * 256) * 16384 * 2
        assert found.total.hbm_read == pytest.approx(128 * 64 / 132 * wave, rel=0.15)


def test_attention_with_query_blocks_fastest_reads_keys_once_and_with_batches_fastest_for_every_block():
    tensors = [np.empty((16, 16, 4096, 128), BF16) for _ in range(4)]
    queries = traffic_of(attention, *tensors, queries_fastest=True)
    batches = traffic_of(attention, *tensors, queries_fastest=False)
    assert queries.total.asked_bytes == batches.total.asked_bytes
    assert queries.total.hbm_read == queries.total.least_read == 3 * tensors[0].nbytes
    assert batches.total.hbm_read == (1 + 2 * 32) * tensors[0].nbytes
    assert queries.total.hbm_written == batches.total.hbm_written == tensors[0].nbytes


# -- an exact cache --------------------------------------------------------------------------------


class Exact:
    """A cache that is asked box by box, and blocks that take turns by the bytes they have moved."""

    def __init__(self, capacity):
        self.capacity, self.held, self.read, self.written = capacity, OrderedDict(), 0, 0

    def ask(self, box, size, writes):
        if box not in self.held:
            self.read += 0 if writes else size
            self.held[box] = [size, False]
        self.held.move_to_end(box)
        self.held[box][1] |= writes
        while sum(s for s, _ in self.held.values()) > self.capacity:
            self.evict()

    def evict(self):
        _, (size, dirty) = self.held.popitem(last=False)
        self.written += size * dirty

    def run(self, blocks):
        """Ask for the boxes of blocks, each a list of (unit of work, box, bytes, whether it is written)."""
        requests = []
        for block in blocks:
            time = 0
            for unit, *request in block:
                requests.append((time, unit, request))
                time += request[1]
        for _, _, request in sorted(requests, key=lambda r: r[:2]):
            self.ask(*request)
        while self.held:
            self.evict()


def boxes_of_product(order, extents, steps, blocks):
    """What each block of `product` moves with tiles of 64 x 64, written out."""
    found = [[] for _ in range(blocks)]
    for turn in range(extents[0] * extents[1]):
        row, col = decode(order, extents, turn)
        block = found[taker(order, turn, blocks)]
        for k in range(steps):
            block.append((turn, ("A", row, k), TILE, False))
            block.append((turn, ("B", col, k), TILE, False))
        block.append((turn, ("C", row, col), TILE, True))
    return found


ORDERS = {
    "rows": pk.row_major,
    "columns": pk.column_major,
    "groups": pk.supergroup(3),
    "alternating": pk.longest_first(3),
}


@pytest.mark.parametrize("tiles", [3, 20, 64, 200, 1000])
@pytest.mark.parametrize("order", ORDERS)
def test_a_product_moves_what_an_exact_cache_says(order, tiles):
    order, extents, steps = ORDERS[order], (10, 12), 9
    tensors = shaped(640, 576), shaped(768, 576), shaped(640, 768)
    exact = Exact(tiles * TILE)
    exact.run(boxes_of_product(order, extents, steps, SMALL.sms))
    device = replace(SMALL, l2_bytes=tiles * TILE)
    found = traffic_of(product, *tensors, device=device, order=order, rows=64, cols=64)
    assert found.total.hbm_read == exact.read
    assert found.total.hbm_written == exact.written == 640 * 768 * 2


@pk.kernel
def triangle(K, O):
    """Block i reads i + 1 tiles and writes them all to one: tasks of different length, and a tile written again."""
    (block,) = pk.grid(K.rows // 64)
    for j in pk.range(block + 1):
        pk.store(O[block % 3], pk.load(K[j], rows=64, cols=64))


# A cache that holds less than all running blocks ask for in one step is not followed that closely.
@pytest.mark.parametrize("tiles", [8, 12, 16, 20, 22, 100])
def test_a_grid_of_uneven_blocks_moves_what_an_exact_cache_says(tiles):
    count = 24
    slots = [[] for _ in range(SMALL.sms)]
    for block in range(count):  # to the slot that is free first
        slot = min(slots, key=len)
        for j in range(block + 1):
            slot += [(block, ("K", j), TILE, False), (block, ("O", block % 3), TILE, True)]
    exact = Exact(tiles * TILE)
    exact.run(slots)
    device = replace(SMALL, l2_bytes=tiles * TILE)
    found = traffic_of(triangle, shaped(64 * count, 64), shaped(192, 64), device=device)
    assert found.total.asked_bytes == sum(len(slot) for slot in slots) * TILE
    assert found.total.hbm_read == exact.read
    assert found.total.hbm_written == exact.written


# -- rules -----------------------------------------------------------------------------------------


@pk.kernel
def same(x, y):
    """Every block reads the same tiles."""
    (block,) = pk.grid(y.rows // 64)
    t = pk.zeros(bf16, 64, 64)
    for j in pk.range(x.rows // 64):
        t = t + pk.load(x[j], rows=64, cols=64)
    pk.store(y[block], t)


def test_blocks_that_ask_for_one_box_in_the_same_step_ask_memory_once():
    device = replace(SMALL, l2_bytes=TILE)
    found = traffic_of(same, shaped(640, 64), shaped(256, 64), device=device)
    assert found.tensors["x"].asked_read == 4 * 10 * TILE
    assert found.tensors["x"].hbm_read == 10 * TILE
    assert found.tensors["x"].hit_rate == 0.75


def test_what_fits_is_read_once_and_written_once():
    found = traffic_of(same, shaped(640, 64), shaped(64 * 500, 64))
    assert found.total.hbm_read == found.total.least_read == 10 * TILE
    assert found.total.hbm_written == found.total.least_written == 500 * TILE
    assert found.total.least_bytes == 510 * TILE
    assert found.hbm_seconds == 510 * TILE / H100.hbm_bytes_per_second


def test_more_blocks_a_multiprocessor_run_at_one_time():
    args = shaped(640, 64), shaped(64 * 500, 64)
    assert traffic_of(same, *args, device=SMALL).blocks == 4
    assert traffic_of(same, *args, device=SMALL, blocks_per_sm=3).blocks == 12
    assert traffic_of(same, *args).blocks == 132


def test_no_more_blocks_run_than_a_kernel_allows():
    @pk.kernel
    def few(x, y, n):
        for row, col in pk.persistent(x.tiles(64, 64), blocks=n + 2):
            pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64))

    x, y = np.zeros((6400, 64), np.float32), np.zeros((6400, 64), np.float32)
    assert [traffic_of(few, x, y, n).blocks for n in (5, 98, 1000)] == [7, 100, 100]


@pk.kernel(cluster=2)
def sent_to_both(x, y):
    """A tile of x that both blocks of a cluster use."""
    ring = pk.pipeline(2, pk.st(bf16, 64, 64))
    tasks = pk.persistent(y.tiles(64, 64), cluster_axis=0)
    with pk.producer():
        for row, col in tasks:
            with ring.fill() as t:
                pk.load_async(t, x[0, col], multicast=True)
    with pk.storer():
        for row, col in tasks:
            with ring.drain() as t:
                pk.store_async(y[row, col], t)


def test_multicast_asks_the_cache_once_a_cluster():
    found = traffic_of(sent_to_both, shaped(64, 640), shaped(256, 640))
    assert found.tensors["x"].asked_read == 2 * 10 * TILE  # two clusters' rows of tasks
    assert found.tensors["x"].hbm_read == 10 * TILE
    assert found.tensors["y"].asked_written == 40 * TILE


@pk.kernel
def summed(x, y):
    """Adds the rows of x to one tile in memory."""
    (block,) = pk.grid(x.rows // 64)
    pk.store(y[0], pk.load(x[block], rows=64, cols=64), op="add")


def test_what_is_combined_with_memory_is_read_there_first():
    found = traffic_of(summed, shaped(640, 64), shaped(64, 64)).tensors["y"]
    assert (found.asked_bytes, found.hbm_read, found.hbm_written) == (10 * TILE, TILE, TILE)


@pk.kernel
def embedded(table, index, lengths, y):
    """Rows named by an index in memory, as many as memory says."""
    (block,) = pk.grid(y.rows)
    t = pk.zeros(f32, 256)
    for i in pk.range(pk.load(lengths[block])):
        t = t + pk.load(table[pk.load(index[block, i])], cols=256)
    pk.store(y[block], t)


def embedding():
    f32_, i32 = np.dtype(np.float32), np.dtype(np.int32)
    index = np.tile(np.array([7, 3, 7, 7, 1000], i32), (6, 1))
    lengths = np.array([0, 1, 2, 3, 4, 5], i32)
    return shaped(100, 256, dtype=f32_), index, lengths, shaped(6, 256, dtype=f32_)


def test_what_depends_on_data_is_told_as_a_guess():
    found = traffic_of(embedded, *embedding())
    told = {g.what: g.loc.line for g in found.guesses}
    first = embedded.function.__code__.co_firstlineno
    assert told == {
        "the number of iterations depends on data: counted as one": first + 5,
        "the position in `table` depends on data: counted as memory not moved before": first + 6,
    }
    assert found.tensors["table"].hbm_read == found.tensors["table"].asked_read == 6 * 1024


def test_indices_and_lengths_whose_content_is_known_are_followed():
    found = traffic_of(embedded, *embedding(), contents=("index", "lengths"))
    assert not found.guesses
    assert found.tensors["table"].asked_read == (1 + 2 + 3 + 4 + 4) * 1024  # row 1000 is outside
    assert found.tensors["table"].hbm_read == found.tensors["table"].least_read == 2 * 1024


def test_each_line_has_its_share():
    found = traffic_of(same, shaped(640, 64), shaped(256, 64))
    first = same.function.__code__.co_firstlineno
    told = {(x.tensor, x.loc.line - first): m.asked_bytes for x, m in found.lines}
    assert told == {("x", 6): 40 * TILE, ("y", 7): 4 * TILE}


@pytest.mark.parametrize("at_once", [1, 50, 1000])
def test_how_many_boxes_are_followed_at_once_changes_nothing(at_once, monkeypatch):
    device = replace(SMALL, l2_bytes=64 * TILE)
    args = shaped(640, 576), shaped(768, 576), shaped(640, 768)
    constants = {"order": pk.supergroup(3), "rows": 64, "cols": 64}
    whole = traffic_of(product, *args, device=device, **constants)
    monkeypatch.setattr(schedule, "AT_ONCE", at_once)
    assert traffic_of(product, *args, device=device, **constants) == whole


def test_a_launch_of_nothing_moves_nothing():
    found = traffic_of(same, shaped(640, 64), np.empty((0, 64), BF16))
    assert (found.blocks, found.total.asked_bytes, found.total.hit_rate) == (0, 0, 1)
