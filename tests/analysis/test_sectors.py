"""Sectors of global memory: what is known of tiles, vectors and copies, and of requests of any kind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pykittens as pk
from pykittens.analysis.requests import NOWHERE, Requests
from pykittens.analysis.sectors import fewest, global_costs, sectors
from pykittens.runtime.arrays import describe
from pykittens.types.dtypes import bf16, e4m3, f32, int8
from tests.running import recorded


@dataclass
class Given:
    """A tensor argument as far as it matters here."""

    strides: tuple[int, ...]
    itemsize: int
    address: int = 0


def costs(kernel, *arrays, given=None, **constants):
    made = recorded(kernel, *arrays, **constants)
    names = kernel.parameters.names(len(arrays))
    tensors = {n: describe(a) for n, a in zip(names, arrays, strict=True)}
    return global_costs(made, tensors | (given or {}))


SLOTS = st.lists(st.integers(-1, 300), min_size=32, max_size=32)


@given(slots=SLOTS, size=st.sampled_from([1, 2, 4, 8, 16]))
def test_a_sector_counts_once_a_request(slots, size):
    bytes_ = {s * size + b for s in slots if s >= 0 for b in range(size)}
    asked = Requests(np.array([[s * size if s >= 0 else NOWHERE for s in slots]]), size)
    assert sectors(asked) == len({b // 32 for b in bytes_})
    assert fewest(asked) == -(-len(bytes_) // 32)
    assert sectors(asked) >= fewest(asked)


@pk.kernel(warps=4)
def tiles(x, y):
    row, col = pk.grid(2, 2)
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64))


@pytest.mark.parametrize(
    ("dtype", "elements", "each", "ideal"),
    [
        (f32, 2, 8, 8),  # a lane moves two elements, and a request eight rows of 32 bytes
        (bf16, 4, 8, 8),
        (e4m3, 2, 8, 2),  # a quarter of a sector
    ],
)
def test_a_request_of_a_tile_touches_eight_rows(dtype, elements, each, ideal):
    x = np.zeros((128, 128), dtype.numpy)
    load, store = costs(tiles, x, x.copy(), given=aligned("xy", 128, dtype))
    requests = 64 * 64 // (elements * 32)
    assert (load.count, load.ideal) == (each * requests, ideal * requests)
    assert (store.count, store.ideal) == (load.count, load.ideal)
    assert [(c.what, c.memory) for c in (load, store)] == [("load", "x"), ("store", "y")]


def aligned(names, width, dtype):
    return {n: Given((width, 1), dtype.bytes) for n in names}


def test_rows_that_start_inside_a_sector_touch_one_more():
    """32 bytes of a row that starts at byte 16 of a sector lie in two."""
    x = np.zeros((128, 128), np.float32)
    places = {"x": Given((128, 1), 4, 16), "y": Given((128, 1), 4)}
    load, store = costs(tiles, x, x.copy(), given=places)
    assert load.count == 2 * load.ideal
    assert store.count == store.ideal


def test_rows_that_no_vector_fits_go_element_by_element():
    """Of two elements a lane, each is a request: 8 rows with 4 elements, two apart, of 16 bytes in all."""
    x = np.zeros((128, 129), np.float32)
    load, _ = costs(tiles, x, np.zeros((128, 128), np.float32), given={"x": Given((136, 1), 4)})
    requests = 64 * 64 // 32
    assert (load.count, load.ideal) == (8 * requests, 4 * requests)


@pk.kernel
def transposed_tiles(x, y):
    (i,) = pk.grid(2)
    pk.store(y[0, i], pk.load(x[0, i], rows=64, cols=32, transposed=True), transposed=True)


@pytest.mark.parametrize(("dtype", "ideal"), [(f32, 4), (bf16, 2), (int8, 1)])
def test_a_request_of_a_transposed_tile_touches_four_rows(dtype, ideal):
    """Of each row eight neighbours: a whole sector where an element has 4 bytes."""
    x = np.zeros((128, 128), dtype.numpy)
    load, store = costs(transposed_tiles, x, x.copy(), given=aligned("xy", 128, dtype))
    requests = 64 * 32 // 32
    assert (load.count, load.ideal) == (4 * requests, ideal * requests)
    assert (store.count, store.ideal) == (load.count, load.ideal)


@pk.kernel(warps=4)
def rows(x, y, *, spread):
    (i,) = pk.grid(4)
    pk.store(y[i], pk.load(x[i], cols=256, spread=spread))


@pytest.mark.parametrize(
    ("spread", "load_ideal", "store_ideal"),
    [
        (pk.plain, 32, 32),
        (pk.per_row, 32, 32),  # eight rows a request
        (pk.per_column, 4 * 32, 32),  # each warp reads all, the first writes
    ],
)
def test_vectors_touch_no_more_sectors_than_they_fill(spread, load_ideal, store_ideal):
    x = np.zeros((4, 256), np.float32)
    load, store = costs(rows, x, x.copy(), given=aligned("xy", 256, f32), spread=spread)
    assert (load.count, load.ideal) == (load_ideal, load_ideal)
    assert (store.count, store.ideal) == (store_ideal, store_ideal)


@pk.kernel(warps=4)
def elements(x, y):
    (i,) = pk.grid(4)
    pk.store(y[i, 0], pk.load(x[i, 1]))


def test_an_element_is_a_sector_for_each_warp_that_reads_it_and_one_to_write():
    x = np.zeros((4, 16), np.float32)
    load, store = costs(elements, x, x.copy())
    assert (load.count, load.ideal, store.count, store.ideal) == (4, 4, 1, 1)


@pk.kernel(warps=1)
def gathered(x, index, y):
    pk.grid(1)
    at = pk.load(index, cols=16, spread=pk.per_row)
    pk.scatter(y[..., 0], at, pk.gather(x[..., 1], at, cols=64))


def test_rows_by_index_cost_what_a_tile_does():
    x, index = np.zeros((64, 128), np.float32), np.zeros(16, np.int32)
    of_index, gather, scatter = costs(
        gathered, x, index, x.copy(), given=aligned("xy", 128, f32) | {"index": Given((1,), 4)}
    )
    assert (of_index.count, of_index.ideal) == (2, 2)
    assert gather.count == gather.ideal == 16 * 64 * 4 // 32
    assert scatter.count == scatter.ideal == gather.count


# -- copies ----------------------------------------------------------------------------------------


def copied(dtype, cols, cluster=1):
    @pk.kernel(cluster=cluster)
    def copy(x, y):
        ring = pk.pipeline(2, pk.st(dtype, 64, cols))
        tasks = pk.persistent((2, 2), cluster_axis=1) if cluster > 1 else pk.persistent((2, 2))
        with pk.producer():
            for i, _ in tasks:
                with ring.fill() as s:
                    pk.load_async(s, x[i], multicast=cluster > 1)
        with pk.storer():
            for i, _ in tasks:
                with ring.drain() as s:
                    pk.store_async(y[i], s)

    return copy


@pytest.mark.parametrize("cols", [16, 64, 256])
def test_copies_of_aligned_rows_touch_what_they_fill(cols):
    x = np.zeros((128, cols), bf16.numpy)
    given = aligned("xy", cols, bf16)
    load, store = costs(copied(bf16, cols), x, x.copy(), given=given)
    assert load.count == load.ideal == store.count == store.ideal == 64 * cols * 2 // 32
    assert load.assumed
    assert store.assumed


def test_a_copy_from_the_middle_of_a_sector_touches_one_more_a_row_of_its_boxes():
    x = np.zeros((128, 256), bf16.numpy)
    given = {"x": Given((256, 1), 2, 16), "y": Given((256, 1), 2)}
    load, _ = costs(copied(bf16, 256), x, x.copy(), given=given)
    assert load.ideal == 64 * 16
    assert load.count == 64 * 4 * 5  # four boxes, rows of 128 bytes


def test_rows_of_half_a_sector_touch_the_other_half_too():
    x = np.zeros((128, 48), e4m3.numpy)
    given = aligned("xy", 48, e4m3)
    load, _ = costs(copied(e4m3, 48), x, x.copy(), given=given)
    assert load.ideal == 64 * 48 // 32
    assert load.count == 3 * 64


def test_each_block_of_a_cluster_fetches_its_share():
    x = np.zeros((128, 64), bf16.numpy)
    given = aligned("xy", 64, bf16)
    load, store = costs(copied(bf16, 64, cluster=2), x, x.copy(), given=given)
    assert 2 * load.count == store.count == 64 * 4


def test_copies_that_the_engine_does_not_reach_are_requests_of_lanes():
    """Rows of 64 elements of 2 bytes: 128 bytes from the granule of 16 that holds the first, and from the next one."""
    x = np.zeros((128, 65), bf16.numpy)
    given = {n: Given((65, 1), 2) for n in "xy"}
    load, store = costs(copied(bf16, 64), x, x.copy(), given=given)
    asked = []
    for row in range(64, 128):
        at, skew = divmod(65 * 2 * row, 16)
        spans = [(at, at + 8), (at + 1, at + 9)][: 2 if skew else 1]
        asked += [(row // 4, i, g // 2) for i, span in enumerate(spans) for g in range(*span)]
    assert load.count == len(set(asked))
    assert not load.assumed
    # Granules that are stored at once, and the elements at both ends of a row, eight in all.
    assert 64 * 4 < store.count <= 64 * (5 + 8)


# -- places ----------------------------------------------------------------------------------------


@given(stride=st.integers(16, 70), shift=st.integers(0, 7))
def test_no_layout_of_rows_touches_fewer_sectors_than_it_fills(stride, shift):
    places = {"x": Given((stride, 1), 4, 4 * shift), "y": Given((stride, 1), 4)}
    for cost in global_costs(RECORDED, places):
        assert cost.count >= cost.ideal


@pk.kernel(warps=1)
def one_tile(x, y):
    pk.grid(1)
    pk.store(y[0], pk.load(x[0], rows=16, cols=16))


RECORDED = recorded(one_tile, np.zeros((16, 17), np.float32), np.zeros((16, 17), np.float32))


@pk.kernel(warps=1)
def known_places(x, y):
    (i,) = pk.grid(4)
    pk.store(y[0, 0], pk.load(x[0, 1], rows=16, cols=16))
    pk.store(y[0, 0], pk.load(x[0, i], rows=16, cols=16))


def test_an_index_that_only_a_running_kernel_knows_is_taken_as_one():
    x = np.zeros((64, 64), e4m3.numpy)
    given = aligned("xy", 64, e4m3)
    known, _, unknown, _ = costs(known_places, x, x.copy(), given=given)
    assert (known.count, known.ideal) == (unknown.count, unknown.ideal)
    assert known.loc.line == unknown.loc.line - 1


@pk.kernel(warps=1)
def window_of_a_window(x, y, low, high):
    pk.grid(1)
    pk.store(y[0], pk.load(x.window(1, 0, 40).window(1, low, high)[0, 0], cols=64))


def test_bounds_that_only_a_running_kernel_knows_may_lie_anywhere():
    x = np.zeros((4, 64), np.float32)
    load, store = costs(window_of_a_window, x, x.copy(), 3, 20, given=aligned("xy", 64, f32))
    # By granules, as if the window began where it can be seen to: at one, so that no row is skewed.
    assert load.count == load.ideal == 8
    assert store.count == store.ideal == 8


# -- views -----------------------------------------------------------------------------------------


@pk.kernel(warps=4)
def heads(x, y, index):
    """A head in a tile, a column of a table from a vector, and elements of it by index."""
    pk.grid(1)
    t = pk.load(x[:, 1], rows=64, cols=32)
    pk.store(y[:, 1], pk.row_sum(t))
    pk.store(y[:, 0], pk.gather(y[:, 1], pk.load(index, cols=64, spread=pk.per_row)))


@pytest.mark.parametrize(("width", "pitch"), [(2, 8), (3, 12), (16, 64)])
def test_columns_touch_the_sectors_between_their_elements(width, pitch):
    x, y = np.zeros((64, 3, 32), np.float32), np.zeros((64, width), np.float32)
    given = {"x": Given((96, 32, 1), 4), "y": Given((width, 1), 4)}
    load, store, _, gather, other = costs(heads, x, y, np.zeros(64, np.int32), given=given)
    assert load.count == load.ideal == 64 * 32 * 4 // 32
    # A request stores 8 rows of a warp.
    assert store.count == sum(len({(8 * i + j) * pitch // 32 for j in range(8)}) for i in range(8))
    assert store.ideal == 8
    assert gather.count == 8 * len({j * pitch // 32 for j in range(32)})
    assert (other.count, other.ideal) == (store.count, store.ideal)
