"""The accesses that are counted are those that emitted code makes, run by g++ or as the compiler joins them."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

import pykittens as pk
from pykittens.analysis.banks import cycles, fewest, phases, shared_moves
from pykittens.analysis.requests import NOWHERE, calls_by_role
from pykittens.analysis.sectors import global_moves
from pykittens.ir.structure import memory_of
from pykittens.runtime import cubin, nvrtc
from pykittens.runtime.arrays import describe
from pykittens.types.dtypes import bf16, bool_, e4m3, f32, int8, int64
from tests import lanes
from tests.running import recorded
from tests.touched import touched

needs_lanes = pytest.mark.skipif(lanes.COMPILER is None, reason="g++ is not installed")
needs_machine_code = pytest.mark.skipif(
    nvrtc.available() is not None or cubin.disassembler() is None, reason="no compiler"
)


def same(folder, kernel, *arrays, apart=False, **constants):
    """Raise unless the lanes of the emitted code touch in each memory what the model says of them.

    Compared are those that are served together: a phase of shared memory, an instruction of a tensor. If lanes pass a
    place of the code at different times, compare each of them `apart`.
    """
    made = recorded(kernel, *arrays, **constants)
    names = kernel.parameters.names(len(arrays))
    tensors = {n: describe(a) for n, a in zip(names, arrays, strict=True)}
    starts, end = {}, 0
    for shared in made.shared:
        starts[shared.value] = end
        end += -(-getattr(shared.value.type, "bytes", 0) // 1024) * 1024
    counted, found = Counter(), Counter()
    for role, call in calls_by_role(made):
        for move in shared_moves(role, call, tensors):
            start = starts[memory_of(move.memory)]
            for r in move.requests:
                counted.update(("shared", r.size, at) for at in together(phases(r), start))
        for move in global_moves(role, call, tensors):
            start = -tensors[move.memory].address
            for r in move.requests:
                counted.update((move.memory, r.size, at) for at in together(r.addresses, start))
    for (name, _, size, offsets), count in touched(folder, kernel, *arrays, **constants).items():
        phase = min(32, 128 // size) if name == "shared" else 32
        for at in together(np.array(offsets).reshape(-1, phase)):
            found[name, size, at] += count
    assert counted
    if apart:
        counted, found = each_lane(counted), each_lane(found)
    assert counted == found


def together(addresses, start=0):
    """The addresses of each row that are any, from `start` on; lanes may change places."""
    found = (sorted((row[row != NOWHERE] + start).tolist()) for row in addresses)
    return [tuple(row) for row in found if row]


def each_lane(instructions):
    """The accesses of single lanes."""
    accesses = Counter()
    for (memory, size, addresses), count in instructions.items():
        for at in addresses:
            accesses[memory, size, at] += count
    return accesses


# -- tiles and vectors -----------------------------------------------------------------------------


@pk.kernel(warps=2)
def tiles(x, y, *, rows: int, cols: int):
    s, t = pk.shared(pk.st(x.dtype, rows, cols)), pk.shared(pk.st(x.dtype, cols, rows))
    pk.grid(1)
    a = pk.load(x[0], rows=rows, cols=cols)
    b = pk.load(y[0], rows=rows, cols=cols, transposed=True)
    pk.store(s, a)
    pk.store(t, b, transposed=True)
    pk.sync()
    pk.store(x[0], pk.load(s))
    pk.store(y[0], pk.load(t, transposed=True), transposed=True)


@needs_lanes
@pytest.mark.parametrize(
    ("dtype", "rows", "cols"),
    [(bf16, 32, 48), (f32, 32, 16), (e4m3, 64, 64), (int64, 64, 16)],
    ids=str,
)
def test_tiles_touch_what_is_counted(tmp_path, dtype, rows, cols):
    x = np.zeros((rows, cols), dtype.numpy)
    same(tmp_path, tiles, x, np.zeros((cols, rows), dtype.numpy), rows=rows, cols=cols)


@pk.kernel(warps=2)
def vectors(x, y):
    s = pk.shared(pk.sv(x.dtype, 256))
    pk.grid(1)
    for spread in (pk.plain, pk.per_row, pk.per_column):
        v = pk.load(x[1], cols=128, spread=spread)
        pk.store(y[2], v)
        pk.store(s.parts(128)[0], v)
        pk.sync()
        pk.store(y[0], pk.load(s.parts(128)[0], spread=spread))
    pk.store(y[0], pk.load(s))
    pk.store(y[0, 0], pk.load(s.parts(1)[0]))
    # Lanes that have nothing come last: the accesses of a lane at one place of the code are counted.
    pk.store(y[1], pk.load(x[1], cols=500))
    pk.store(s.parts(2)[0], pk.load(x[1], cols=2))


@needs_lanes
@pytest.mark.parametrize("dtype", [bf16, f32, int8], ids=str)
def test_vectors_touch_what_is_counted(tmp_path, dtype):
    x = np.zeros((3, 512), dtype.numpy)
    same(tmp_path, vectors, x, x.copy())


def rows(warps, cols):
    @pk.kernel(warps=warps)
    def move(x, y):
        s = pk.shared(pk.st(x.dtype, 16, cols))
        pk.grid(1)
        pk.store(s.row(0), pk.load(x[1], cols=cols))
        pk.sync()
        pk.store(y[0], pk.load(s.row(0)))

    return move


@needs_lanes
@pytest.mark.parametrize("dtype", [bf16, f32, e4m3, int64], ids=str)
@pytest.mark.parametrize(("warps", "cols"), [(1, 16), (1, 64), (4, 64), (1, 256), (2, 1024)])
def test_rows_of_tiles_touch_what_is_counted(tmp_path, dtype, warps, cols):
    x = np.zeros((2, cols), dtype.numpy)
    same(tmp_path, rows(warps, cols), x, x.copy())


def ragged(warps, length):
    @pk.kernel(warps=warps)
    def move(x, y):
        pk.grid(1)
        pk.store(y[2], pk.load(x[1, 1], cols=length))

    return move


@needs_lanes
@pytest.mark.parametrize("dtype", [bf16, f32, int8, int64, bool_], ids=str)
@pytest.mark.parametrize(
    ("warps", "length", "width"),
    [(1, 500, 1017), (2, 500, 1017), (2, 1100, 2201), (1, 60, 123), (2, 37, 512)],
)
def test_vectors_at_any_address_touch_what_is_counted(tmp_path, dtype, warps, length, width):
    x = np.zeros((4, width), dtype.numpy)
    same(tmp_path, ragged(warps, length), x, x.copy(), apart=True)


@pk.kernel(warps=2)
def elsewhere(x, index, y):
    pk.grid(1)
    named = pk.load(index, cols=32, spread=pk.per_row)
    pk.scatter(y[..., 1], named, pk.gather(x[..., 1], named, cols=32))
    pk.store(y[0], pk.load(x.window(1, 3, 40)[0], rows=32, cols=32), op="add")
    pk.store(y[1, 7], pk.load(x[3, 5]))


# Elements of 16 bits alone are compared and swapped, as often as others come between.
@needs_lanes
@pytest.mark.parametrize(("dtype", "width"), [(bf16, 64), (f32, 64), (f32, 65)], ids=str)
def test_rows_by_index_windows_and_sums_touch_what_is_counted(tmp_path, dtype, width):
    x, index = np.zeros((64, width), dtype.numpy), np.arange(32, dtype=np.int32)
    same(tmp_path, elsewhere, x, index, x.copy())


@pk.kernel(warps=2)
def copied_by_lanes(x, y, *, cols):
    s = pk.shared(pk.st(x.dtype, 32, cols))
    done = pk.semaphore(1)
    pk.grid(1)
    done.expect(s)
    pk.load_async(s, x[1, 1], signal=done)
    done.wait(0)
    pk.store_async(y[1, 1], s)


@needs_lanes
@pytest.mark.parametrize(
    ("dtype", "cols", "pitch"),
    [(bf16, 48, 145), (bf16, 160, 321), (f32, 32, 99), (int8, 64, 199), (int8, 16, 51)],
)
def test_copies_that_the_engine_does_not_reach_touch_what_is_counted(tmp_path, dtype, cols, pitch):
    x = np.zeros((100, pitch), dtype.numpy)
    same(tmp_path, copied_by_lanes, x, x.copy(), apart=True, cols=cols)


@pk.kernel(warps=2)
def of_planes(x, y, *, way):
    """A matrix, a column or an element of a tensor of rank 3."""
    pk.grid(1)
    match way:
        case "middle":
            pk.store(y[:, 2], pk.load(x[:, 1], rows=32, cols=32))
        case "last":
            pk.store(y[:, :, 1], pk.load(x[:, :, 3], rows=32, cols=16))
        case "transposed":
            t = pk.load(x[:, :, 3], rows=32, cols=16, transposed=True)
            pk.store(y[:, :, 1], t, transposed=True)
        case "element":
            pk.store(y[:, 3][2, 2], pk.load(x[:, 2, 2][7]))
        case spread:
            pk.store(y[:, 0, 0], pk.load(x[:, 0, 5], cols=32, spread=spread))


WAYS = ("middle", "last", "transposed", "element", pk.plain, pk.per_row, pk.per_column)


@needs_lanes
@pytest.mark.parametrize("dtype", [bf16, f32, int8], ids=str)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_planes_of_a_tensor_touch_what_is_counted(tmp_path, dtype, way):
    x = np.zeros((32, 32, 32), dtype.numpy)
    same(tmp_path, of_planes, x, x.copy(), way=way)


@pk.kernel(warps=2)
def columns_copied_by_lanes(x, y):
    s, v = pk.shared(pk.st(x.dtype, 32, 16)), pk.shared(pk.sv(x.dtype, 32))
    done = pk.semaphore(1)
    pk.grid(1)
    done.expect(s, v)
    pk.load_async(s, x[:, :, 1], signal=done)
    pk.load_async(v, x[:, 1, 2], signal=done)
    done.wait(0)
    pk.store_async(y[:, :, 3], s)
    pk.store_async(y[:, 0, 0], v)


@needs_lanes
def test_columns_that_lanes_copy_touch_what_is_counted(tmp_path):
    x = np.zeros((32, 16, 8), f32.numpy)
    same(tmp_path, columns_copied_by_lanes, x, x.copy())


# -- products of single warps ----------------------------------------------------------------------


@pk.kernel(warps=2)
def products(y, *, dtype):
    wide, deep = pk.shared(pk.st(dtype, 32, 64)), pk.shared(pk.st(dtype, 64, 32))
    pk.grid(1)
    held = pk.zeros(dtype, 32, 64)
    for a in (wide, held):
        pk.store(y[0], pk.mma_ABt(a, wide))
        pk.store(y[0], pk.mma_AB(a, deep))
    pk.store(y[0], pk.mma_AtB(deep, deep))
    pk.store(y[0], pk.mma_AtBt(deep, wide))


@needs_lanes
@pytest.mark.parametrize("dtype", [bf16, int8, f32], ids=str)
def test_products_of_single_warps_read_what_is_counted(tmp_path, dtype):
    same(
        tmp_path,
        products,
        np.zeros((32, 32), np.int32 if dtype is int8 else np.float32),
        dtype=dtype,
    )


# -- scratch memory --------------------------------------------------------------------------------


@pk.kernel(warps=4)
def exchanges(x, y):
    pk.grid(1)
    tile, plain = pk.load(x[0], rows=64, cols=64), pk.load(x[0], cols=1024)
    by_row = pk.load(x[0], cols=256, spread=pk.per_row)
    by_column = pk.load(x[0], cols=64, spread=pk.per_column)
    pk.store(y[0], pk.transpose(tile))
    pk.store(y[0], pk.row(tile, 0))
    pk.store(y[0], pk.spread(plain[0:256], pk.per_column))
    pk.store(y[0], pk.spread(by_row, pk.plain))
    pk.store(y[0], pk.spread(by_column, pk.per_row))
    pk.store(y[0], plain[64:192])
    pk.store(y[0], plain[61:189])
    pk.store(y[0], pk.concat(plain, plain, 0))


@pk.kernel(warps=4)
def column_sums(x, y):
    pk.grid(1)
    pk.store(y[0], pk.col_sum(pk.load(x[0], rows=64, cols=64)))


def through_scratch(kernel, *args):
    """The requests of shared memory of a kernel that has no shared tiles."""
    return [
        request
        for role, call in calls_by_role(recorded(kernel, *args))
        for move in shared_moves(role, call)
        for request in move.requests
    ]


def touched_elements(folder, kernel, *args):
    """The addresses in shared memory of each instruction, all of which move one element, and how often."""
    found = Counter()
    for (memory, _, size, offsets), count in touched(folder, kernel, *args).items():
        if memory == "shared":
            assert size == args[0].itemsize
            found[offsets] += count
    return found


@needs_lanes
def test_elements_go_through_the_places_that_are_counted(tmp_path):
    """The emitted code moves one by one what the compiler joins: a request of more elements is so many of them."""
    args, counted = (np.zeros((64, 4096), np.float32), np.zeros((64, 4096), np.float32)), Counter()
    for request in through_scratch(exchanges, *args):
        for k in range(0, request.size, 4):
            offsets = np.where(request.addresses == NOWHERE, -1, request.addresses + k)
            counted.update(map(tuple, offsets.tolist()))
    assert touched_elements(tmp_path, exchanges, *args) == counted


@needs_lanes
def test_partial_results_go_through_the_places_that_are_counted(tmp_path):
    """The lanes of a column take turns to write, so which moves are one instruction is not seen in their order."""
    args, counted, found = (np.zeros((64, 64), np.float32),) * 2, Counter(), Counter()
    for request in through_scratch(column_sums, *args):
        for k in range(0, request.size, 4):
            counted.update((request.addresses[request.addresses != NOWHERE] + k).tolist())
    for offsets, count in touched_elements(tmp_path, column_sums, *args).items():
        for at in offsets:
            found[at] += count * (at >= 0)
    assert +found == counted


def of_tile(function, cols=64):
    @pk.kernel(warps=4)
    def move(x, y):
        pk.grid(1)
        pk.store(y[0], function(pk.load(x[0], rows=64, cols=cols)))

    return move


def of_vector(function):
    @pk.kernel(warps=4)
    def move(x, y):
        pk.grid(1)
        pk.store(y[0], function(pk.load(x[0], cols=1024)))

    return move


TRANSPOSE, PART = of_tile(pk.transpose), of_vector(lambda v: v[64:192])
SPREAD = of_vector(lambda v: pk.spread(v[0:256], pk.per_column))
SIZES = {"8": 1, "16": 2, "": 4, "64": 8, "128": 16}


@needs_machine_code
@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        (TRANSPOSE, bf16),
        (TRANSPOSE, int64),
        (PART, e4m3),
        (SPREAD, bool_),
        (of_tile(pk.col_argmax, cols=128), f32),  # a column for each lane, so no warp is idle
    ],
)
def test_the_compiler_joins_the_neighbours_that_are_counted_as_one_move(kernel, dtype):
    """Of each size, a warp runs as many moves as the machine code has: it is all unrolled."""
    y = np.zeros((64, 4096), np.int32 if dtype is f32 else dtype.numpy)
    args, counted = (np.zeros((64, 4096), dtype.numpy), y), Counter()
    for request in through_scratch(kernel, *args):
        counted[request.size] += len(request.addresses)
    sass = kernel.compile(*args, arch="sm_90a").sass
    found = Counter()
    for size in re.findall(r"\b(?:LDS|STS)(?:\.U?(\d+))?(?=[ .])", sass):
        found[SIZES[size]] += 4
    assert found == counted


def test_a_tile_of_f32_is_turned_with_conflicts_where_it_is_written_alone():
    """Rows are 68 words apart. Four lanes read rows two apart, eight banks on: all differ. Four rows of eight words are
    written at once, four banks on: each bank has two.
    """
    writes, *reads = through_scratch(TRANSPOSE, *(np.zeros((64, 64), np.float32),) * 2)
    assert sum(map(cycles, reads)) == sum(map(fewest, reads)) == 4 * 32
    assert fewest(writes) == 4 * 16 * 2
    assert cycles(writes) == 2 * fewest(writes)


def test_a_part_that_stays_in_its_lanes_moves_nothing():
    x = np.zeros((1, 4096), np.float32)
    in_place = of_vector(lambda v: v[0:1024])
    assert through_scratch(in_place, x, x.copy()) == []
