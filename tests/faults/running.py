"""Windows, indices and numbers that are wrong when the kernel runs."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens import f32, int32
from tests.running import put


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def leading_index_below_0(out):
    @pk.kernel
    def kernel(x, y, i):
        pk.grid(1)
        pk.store(y[0], pk.load(x[i, 0, 0], cols=8))

    kernel(ones(3, 2, 8), out((1, 8)), -1)


def index_of_a_view(out):
    @pk.kernel
    def kernel(x, y, h):
        pk.grid(1)
        pk.store(y[0], pk.load(x[:, h][0, 0], rows=64, cols=16))

    kernel(np.ones((64, 2, 16), np.float32), out((64, 16), np.float32), 2)


def leading_index_of_a_store(out):
    @pk.kernel
    def kernel(y, i):
        pk.grid(1)
        pk.store(y[i, 0, 0], pk.zeros(f32, 64, 64))

    kernel(out((2, 64, 64)), 2)


def leading_index_of_one_element(out):
    @pk.kernel
    def kernel(x, y, i):
        pk.grid(1)
        put(y, 0, pk.load(x[i, 0, 0]))

    kernel(ones(3, 2, 8), out((1, 8)), 3)


def leading_index_of_a_gather(out):
    @pk.kernel
    def kernel(x, index, y, i):
        pk.grid(1)
        rows = pk.load(index, cols=64, spread=pk.per_row)
        pk.store(y, pk.gather(x.at(i), rows, cols=16))

    kernel(ones(3, 8, 16), ones(64, dtype=np.int32), out((64, 16)), 3)


def leading_index_of_a_store_of_the_copy_engine(out):
    @pk.kernel
    def kernel(x, y, i):
        ring = pk.pipeline(1, pk.st(f32, 64, 64))
        pk.grid(1)
        with pk.producer(), ring.fill() as s:
            pk.load_async(s, x[0])
        with pk.storer(), ring.drain() as s:
            pk.store_async(y[i, 0, 0], s)

    kernel(ones(64, 64), out((2, 64, 64)), -3)


def leading_index_outside_a_window(out):
    @pk.kernel
    def kernel(x, y, start, stop):
        pk.grid(1)
        pk.store(y[0], pk.load(x.window(0, start, stop)[1, 0, 0], cols=8))

    kernel(ones(5, 2, 8), out((1, 8)), 2, 3)


def window_whose_start_is_behind_its_stop(out):
    @pk.kernel
    def kernel(x, y, start, stop):
        pk.grid(1)
        pk.store(y[0], pk.load(x.window(0, start, stop)[0, 0, 0], cols=8))

    kernel(ones(5, 2, 8), out((1, 8)), 3, 2)


def window_beyond_the_tensor(out):
    @pk.kernel
    def kernel(x, y, start, stop):
        pk.grid(1)
        pk.store(y[0], pk.load(x.window(0, start, stop)[0, 0, 0], cols=8))

    kernel(ones(5, 2, 8), out((1, 8)), 7, 9)


def window_below_0(out):
    @pk.kernel
    def kernel(x, y, start, stop):
        pk.grid(1)
        pk.store(y[0], pk.load(x.window(0, start, stop)[0, 0, 0], cols=8))

    kernel(ones(5, 2, 8), out((1, 8)), -4, 2)


def coordinate_of_one_element_that_overflows(out):
    @pk.kernel
    def kernel(x, y, i):
        pk.grid(1)
        put(y, 0, pk.load(x.window(1, i, i)[0, 2**31 - 1]))

    kernel(ones(8, 8), out((1, 8)), 2**30)


def bounds_of_a_window_that_overflow(out):
    @pk.kernel
    def kernel(x, y, i):
        pk.grid(1)
        pk.store(y[0], pk.load(x.window(1, i, i).window(1, i, i)[0], cols=8))

    kernel(ones(8, 8), out((1, 8)), 2**30)


def view_outside_its_tile(out):
    @pk.kernel
    def kernel(y, i):
        tile = pk.shared(pk.st(f32, 128, 64))
        pk.grid(1)
        pk.store(tile.tiles(64, 64)[i, 0], pk.zeros(f32, 64, 64))

    kernel(out((64, 64)), 2)


def row_outside_a_shared_tile(out):
    @pk.kernel
    def kernel(y, i):
        tile = pk.shared(pk.st(f32, 64, 64))
        pk.grid(1)
        pk.store(tile.tiles(16, 64)[1].row(i), pk.zeros(f32, 64))

    kernel(out((64, 64)), 16)


def tile_beyond_the_last(out):
    @pk.kernel
    def kernel(y, i):
        tiles = pk.shared(pk.st(f32, 64, 64), count=3)
        pk.grid(1)
        pk.store(tiles[i], pk.zeros(f32, 64, 64))

    kernel(out((64, 64)), 3)


def semaphore_below_the_first(out):
    @pk.kernel
    def kernel(y, i):
        full = pk.semaphore(1, count=2)
        pk.grid(1)
        full[i].arrive()

    kernel(out((1, 8)), -1)


def row_outside_its_tile(out):
    @pk.kernel
    def kernel(y, i):
        pk.grid(1)
        pk.store(y, pk.zeros(f32, 64, 64) + pk.row(pk.zeros(f32, 64, 64), i))

    kernel(out((64, 64)), 64)


def columns_outside_their_tile(out):
    @pk.kernel
    def kernel(y):
        pk.grid(1)
        t = pk.zeros(f32, 64, 16)
        pk.store(y, t + pk.column(t, pk.row_index(64)))

    kernel(out((64, 16)))


def flag_of_another_matrix(out):
    @pk.kernel
    def kernel(flags, i):
        pk.grid(1)
        pk.signal(flags[i, 0, 0], 1)

    kernel(out((2, 3, 4), np.int32), 2)


def flag_waited_for_outside(out):
    @pk.kernel
    def kernel(flags, i):
        pk.grid(1)
        pk.wait(flags[0, i], 1)

    kernel(out((2, 3), np.int32), 3)


def _number(function):
    """A kernel that stores a number made of its argument."""

    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        put(y, 0, function(n))

    return lambda out, n: kernel(out((1, 8), np.int32), n)


def sum_that_overflows(out):
    _number(lambda n: n + (2**31 - 1))(out, 1)


def difference_that_overflows(out):
    _number(lambda n: -2 - n)(out, 2**31 - 1)


def product_that_overflows(out):
    _number(lambda n: n * n)(out, 2**16)


def negation_that_overflows(out):
    _number(lambda n: -n)(out, -(2**31))


def absolute_value_that_overflows(out):
    _number(lambda n: abs(n))(out, -(2**31))


def quotient_that_overflows(out):
    _number(lambda n: n // -1)(out, -(2**31))


def int_divided_by_0(out):
    _number(lambda n: 7 // n)(out, 0)


def remainder_by_0(out):
    _number(lambda n: n % (n - n))(out, 3)


def tiles_of_0_rows(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(pk.cdiv(y.rows, n))
        put(y, 0, 1)

    kernel(out((1, 8), np.int32), 0)


def wide_int_that_overflows(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0, 0], pk.load(x[0]) * 2)

    kernel(np.full(1, 2**62, np.int64), np.zeros((1, 1), np.int64))


def reduction_that_overflows(out):
    @pk.kernel
    def kernel(y):
        pk.grid(1)
        pk.store(y[0, 0], pk.sum(pk.full(int32, 2**30, 2)))

    kernel(out((1, 8), np.int32))


def product_of_elements_that_overflows(out):
    @pk.kernel
    def kernel(y):
        pk.grid(1)
        pk.store(y[0, 0], pk.prod(pk.full(int32, 2**10, 4)))

    kernel(out((1, 8), np.int32))


def phase_that_nobody_completes(out):
    @pk.kernel
    def kernel(y):
        full = pk.semaphore(2)
        pk.grid(1)
        with pk.warps(1):
            full.arrive()
        with pk.producer():
            full.wait(0)

    kernel(out((1, 8)))


def bytes_that_never_come(out):
    @pk.kernel
    def kernel(y):
        full = pk.semaphore(1)
        pk.grid(1)
        with pk.warps(1):
            full.expect(64)
            full.wait(0)

    kernel(out((1, 8)))


def flag_of_a_later_block(out):
    @pk.kernel
    def kernel(flags):
        (block,) = pk.grid(2)
        pk.wait(flags[1 - block], 1)
        pk.signal(flags[block], 1)

    kernel(np.zeros(2, np.int32))


def stage_that_is_never_filled(out):
    @pk.kernel
    def kernel(x, y, n):
        ring = pk.pipeline(2, pk.st(f32, 64, 64))
        pk.grid(1)
        with pk.producer():
            if n > 0:
                with ring.fill() as s:
                    pk.load_async(s, x[0])
        with pk.warpgroups(1), ring.drain() as s:
            pk.store(y[0], pk.load(s))

    kernel(ones(64, 64), out((64, 64)), 0)


def stages_that_are_left_full(out):
    @pk.kernel
    def kernel(x, y, n):
        ring = pk.pipeline(2, pk.st(f32, 64, 64))
        pk.grid(1)
        with pk.producer():
            for _ in pk.range(n):
                with ring.fill() as s:
                    pk.load_async(s, x[0])
        with pk.warpgroups(1), ring.drain():
            pass

    kernel(ones(64, 64), out((64, 64)), 2)
