"""The addresses that are counted are those that emitted code touches, whatever a tile's type and shape."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import pykittens as pk
from pykittens.analysis.accesses import NOWHERE, matrices
from pykittens.analysis.banks import calls, shared_moves
from pykittens.analysis.sectors import global_moves
from pykittens.runtime.arrays import describe
from pykittens.types.dtypes import bf16, bool_, e4m3, f32, int8, int32, int64
from pykittens.types.layouts import tile_element
from pykittens.types.tiles import shared_tile
from tests import lanes
from tests.running import recorded
from tests.touched import touched

pytestmark = pytest.mark.skipif(lanes.COMPILER is None, reason="g++ is not installed")


def slow(*values):
    return [pytest.param(v, marks=pytest.mark.slow) for v in values]


SPREADS = (pk.plain, pk.per_row, pk.per_column)


def same(folder, kernel, *arrays, memory=("shared",), **constants):
    """Raise unless what the model says of each memory is what the lanes of the emitted code touch there."""
    made = recorded(kernel, *arrays, **constants)
    names = kernel.parameters.names(len(arrays))
    tensors = {n: describe(a) for n, a in zip(names, arrays, strict=True)}
    starts, end = {}, 0
    for shared in made.shared:
        starts[shared.value], end = (
            end,
            end + -(-getattr(shared.value.type, "bytes", 0) // 1024) * 1024,
        )
    told = Counter()
    for role, call in calls(made):
        moves = [
            ("shared", -starts[getattr(m.tile, "whole", m.tile)], m.requests)
            for m in shared_moves(call, role.warps)
        ]
        moves += [
            (m.tensor, tensors[m.tensor].address, m.requests)
            for m in global_moves(call, role.warps, tensors)
        ]
        for name, start, requests in moves:
            for request in requests if name in memory else ():
                offsets = np.where(request.addresses == NOWHERE, -1, request.addresses - start)
                told.update((name, request.size, tuple(o)) for o in offsets.tolist() if max(o) >= 0)
    found = Counter()
    for (name, _, size, offsets), count in touched(folder, kernel, *arrays, **constants).items():
        if name in memory:
            found[name, size, offsets] += count
    assert told
    assert told == found


# -- shared tiles ----------------------------------------------------------------------------------


@pk.kernel(warps=2)
def through_a_tile(x, y, *, rows: int, cols: int):
    s = pk.shared(pk.st(x.dtype, rows, cols))
    pk.grid(1)
    pk.store(s, pk.load(x[0], rows=rows, cols=cols))
    pk.sync()
    pk.store(y[0], pk.load(s))


@pytest.mark.parametrize("dtype", [bf16, f32, e4m3, *slow(int64)], ids=str)
@pytest.mark.parametrize(("rows", "cols"), [(64, 64), (32, 16), (32, 48)])
def test_loads_and_stores_of_a_shared_tile_touch_what_is_counted(tmp_path, dtype, rows, cols):
    x = np.zeros((rows, cols), dtype.numpy)
    same(tmp_path, through_a_tile, x, x.copy(), memory=("shared", "x", "y"), rows=rows, cols=cols)


@pk.kernel(warps=2)
def through_a_transposed_tile(x, y, *, rows: int, cols: int):
    s = pk.shared(pk.st(x.dtype, cols, rows))
    pk.grid(1)
    pk.store(s, pk.load(x[0], rows=rows, cols=cols, transposed=True), transposed=True)
    pk.sync()
    pk.store(y[0], pk.load(s, transposed=True), transposed=True)


@pytest.mark.parametrize("dtype", [bf16, f32, e4m3, *slow(int64)], ids=str)
@pytest.mark.parametrize(("rows", "cols"), [(64, 64), (32, 16), (32, 48)])
def test_what_is_moved_transposed_touches_what_is_counted(tmp_path, dtype, rows, cols):
    x = np.zeros((cols, rows), dtype.numpy)
    memory, sides = ("shared", "x", "y"), {"rows": rows, "cols": cols}
    same(tmp_path, through_a_transposed_tile, x, x.copy(), memory=memory, **sides)


@pytest.mark.parametrize(("rows", "cols", "warps"), [(64, 48, 4), (64, 64, 2), (16, 128, 1)])
def test_matrices_of_a_transpose_bring_every_element_to_its_place(rows, cols, warps):
    """PTX ISA, "stmatrix": with .trans a lane holds two neighbours of a column, and each address is that of a row."""
    tile = shared_tile(bf16, cols, rows)
    requests = matrices(tile, warps, transposed=True).addresses.reshape(warps, -1, 32)
    found = {}
    for warp, turn, lane, matrix, half in np.ndindex(*requests.shape, 4, 2):
        register = 8 * turn + 2 * matrix + half
        row, place = 2 * (lane % 4) + half, lane // 4
        address = requests[warp, turn, 8 * matrix + row] + 2 * place
        found[int(address)] = tile_element(lane, register, warp, cols, warps)
    places = ((r, c, int(tile.layout.offset(c, r))) for r, c in np.ndindex(rows, cols))
    assert found == {at: (r, c) for r, c, at in places}


@pk.kernel(warps=1)
def through_a_vector(x, y, *, length: int, spread):
    s = pk.shared(pk.sv(x.dtype, length))
    pk.grid(1)
    pk.store(s, pk.load(x, cols=length, spread=spread))
    pk.sync()
    pk.store(y, pk.load(s, spread=spread))


@pytest.mark.parametrize("dtype", [bf16, f32, int8], ids=str)
@pytest.mark.parametrize("spread", SPREADS, ids=str)
def test_loads_and_stores_of_a_shared_vector_touch_what_is_counted(tmp_path, dtype, spread):
    x = np.zeros(208, dtype.numpy)
    arrays = (x, x.copy())
    same(
        tmp_path,
        through_a_vector,
        *arrays,
        memory=("shared", "x", "y"),
        length=208,
        spread=spread,
    )


@pk.kernel(warps=2)
def through_parts(x, y, *, part: int, spread):
    s = pk.shared(pk.sv(x.dtype, 192))
    pk.grid(1)
    pk.store(s.parts(part)[0], pk.load(x, cols=part, spread=spread))
    pk.sync()
    pk.store(y, pk.load(s.parts(part)[0], spread=spread))
    pk.store(y[0], pk.load(s.parts(1)[0]))


@pytest.mark.parametrize("dtype", [bf16, f32, int8, *slow(int64)], ids=str)
@pytest.mark.parametrize(
    ("part", "spread"), [(96, s) for s in SPREADS] + [(6, pk.plain), (3, pk.plain)], ids=str
)
def test_loads_and_stores_of_parts_of_a_vector_touch_what_is_counted(tmp_path, dtype, part, spread):
    x = np.zeros(192, dtype.numpy)
    same(tmp_path, through_parts, x, x.copy(), part=part, spread=spread)


@pk.kernel(warps=2)
def copied_by_lanes(x, y):
    s = pk.shared(pk.st(x.dtype, 32, 48))
    done = pk.semaphore(1)
    pk.grid(1)
    done.expect(s)
    pk.load_async(s, x, signal=done)
    done.wait(0)
    pk.store_async(y, s)


@pytest.mark.parametrize("dtype", [bf16, f32, *slow(int8, int64)], ids=str)
def test_copies_that_the_engine_does_not_reach_touch_what_is_counted(tmp_path, dtype):
    x, y = np.zeros((2, 32, 49), dtype.numpy)[:, :, :48]
    same(tmp_path, copied_by_lanes, x, y, memory=("shared", "x", "y"))


# -- products of single warps ----------------------------------------------------------------------


@pk.kernel(warps=2)
def product(y, *, dtype, function, in_registers: bool):
    a_across, b_across = function in (pk.mma_AtB, pk.mma_AtBt), function in (pk.mma_AB, pk.mma_AtB)
    a = pk.shared(pk.st(dtype, *((64, 32) if a_across else (32, 64))))
    b = pk.shared(pk.st(dtype, *((64, 48) if b_across else (48, 64))))
    pk.grid(1)
    left = pk.zeros(dtype, 32, 64) if in_registers else a
    pk.store(y[0], function(left, b))


@pytest.mark.parametrize("dtype", [bf16, int8, *slow(f32)], ids=str)
@pytest.mark.parametrize("name", ["mma_ABt", "mma_AB", "mma_AtB", "mma_AtBt"])
def test_products_of_single_warps_read_what_is_counted(tmp_path, dtype, name):
    y = np.zeros((32, 48), np.int32 if dtype is int8 else np.float32)
    same(tmp_path, product, y, dtype=dtype, function=getattr(pk, name), in_registers=False)


@pytest.mark.parametrize("dtype", [bf16, int8, *slow(f32)], ids=str)
@pytest.mark.parametrize("name", ["mma_ABt", "mma_AB"])
def test_products_with_an_operand_in_registers_read_what_is_counted(tmp_path, dtype, name):
    y = np.zeros((32, 48), np.int32 if dtype is int8 else np.float32)
    same(tmp_path, product, y, dtype=dtype, function=getattr(pk, name), in_registers=True)


# -- tensors ---------------------------------------------------------------------------------------


@pk.kernel(warps=2)
def vector_of_a_row(x, y, *, length: int, spread):
    pk.grid(1)
    pk.store(y[2], pk.load(x[1], cols=length, spread=spread))


@pytest.mark.parametrize("dtype", [bf16, f32, e4m3, *slow(int64, bool_)], ids=str)
def test_vectors_of_tensors_touch_what_is_counted(tmp_path, dtype):
    x = np.zeros((3, 1024), dtype.numpy)
    for length, spread in ((500, pk.plain), (96, pk.per_row), (80, pk.per_column)):
        folder = tmp_path / str(length)
        folder.mkdir()
        arrays = (x, x.copy())
        memory = ("x", "y")
        same(folder, vector_of_a_row, *arrays, memory=memory, length=length, spread=spread)


@pytest.mark.parametrize("dtype", [bf16, f32, int8, bool_], ids=str)
def test_vectors_whose_rows_are_not_aligned_go_by_elements(tmp_path, dtype):
    x = np.zeros((3, 517), dtype.numpy)
    arrays = (x, x.copy())
    same(tmp_path, vector_of_a_row, *arrays, memory=("x", "y"), length=500, spread=pk.plain)


@pk.kernel(warps=2)
def odd_vector(x, y):
    pk.grid(1)
    pk.store(y[1, 1], pk.load(x[1, 1], cols=37))


@pytest.mark.parametrize("dtype", [bf16, f32, int8], ids=str)
def test_vectors_that_start_anywhere_go_by_elements(tmp_path, dtype):
    x = np.zeros((3, 128), dtype.numpy)
    same(tmp_path, odd_vector, x, x.copy(), memory=("x", "y"))


@pk.kernel(warps=2)
def rows_by_index(x, index, y):
    pk.grid(1)
    rows = pk.load(index, cols=32, spread=pk.per_row)
    t = pk.gather(x[..., 1], rows, cols=32)
    pk.scatter(y[..., 1], rows, t)


@pytest.mark.parametrize("dtype", [bf16, f32], ids=str)
def test_rows_by_index_touch_what_is_counted(tmp_path, dtype):
    x, index = np.zeros((32, 72), dtype.numpy), np.arange(32, dtype=np.int32)
    same(tmp_path, rows_by_index, x, index, x.copy(), memory=("x", "y", "index"))


@pk.kernel(warps=2)
def added(x, y):
    pk.grid(1)
    pk.store(y[0], pk.load(x[0], rows=32, cols=32), op="add")


# Elements of 16 bits alone are compared and swapped, as often as others come between.
@pytest.mark.parametrize(
    ("dtype", "width"), [(bf16, 32), (f32, 32), (int32, 32), (f32, 33), (int32, 33)]
)
def test_what_is_combined_with_memory_touches_what_is_counted(tmp_path, dtype, width):
    x = np.zeros((32, width), dtype.numpy)
    same(tmp_path, added, x, x.copy(), memory=("x", "y"))


@pk.kernel(warps=2)
def added_transposed(x, y):
    pk.grid(1)
    pk.store(y[0], pk.load(x[0], rows=32, cols=32), op="add", transposed=True)


@pytest.mark.parametrize("dtype", [f32, int32], ids=str)
def test_what_is_combined_transposed_touches_what_is_counted(tmp_path, dtype):
    x = np.zeros((32, 32), dtype.numpy)
    same(tmp_path, added_transposed, x, x.copy(), memory=("x", "y"))


@pk.kernel(warps=2)
def window_and_elements(x, y):
    pk.grid(1)
    w = x.window(1, 3, 40)
    pk.store(y[0], pk.load(w[0], rows=32, cols=32))
    pk.store(y[1, 7], pk.load(x[3, 5]))


def test_windows_and_elements_touch_what_is_counted(tmp_path):
    x = np.zeros((64, 64), np.float32)
    same(tmp_path, window_and_elements, x, x.copy(), memory=("x", "y"))
