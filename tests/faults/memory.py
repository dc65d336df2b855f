"""Wrong loads, stores, copies, gathers and windows."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens import bf16, f32


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def moving(body):
    """A kernel of one block that does something with two arguments."""

    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        body(x, y)

    return kernel


def spread_of_a_wrong_length(out):
    moving(lambda x, y: pk.store(y, pk.load(x, cols=40, spread=pk.per_row)))(ones(64), out((64,)))


def spread_that_is_none(out):
    moving(lambda x, y: pk.store(y, pk.load(x, cols=64, spread="rows")))(ones(64), out((64,)))


def spread_vector_too_long(out):
    moving(lambda x, y: pk.store(y, pk.load(x, cols=1024, spread=pk.per_column)))(
        ones(1024), out((1024,))
    )


def element_of_another_dtype(out):
    moving(lambda x, y: pk.store(y[0, 0], 0.5))(ones(4, 4), out((4, 4), np.int32))


def combining_in_8_bits(out):
    moving(lambda x, y: pk.store(y[0], pk.load(x[0], cols=16), op="add"))(
        ones(2, 16, dtype=np.int8), np.zeros((2, 16), np.int8)
    )


def combining_by_no_operation(out):
    moving(lambda x, y: pk.store(y[0], pk.load(x[0], cols=16), op="mul"))(ones(2, 16), out((2, 16)))


def gather_by_a_plain_vector(out):
    moving(lambda x, y: pk.store(y, pk.gather(y, pk.load(x, cols=64), cols=16)))(
        ones(64, dtype=np.int32), out((64, 16))
    )


def gather_of_a_row(out):
    def body(x, y):
        index = pk.load(x, cols=64, spread=pk.per_row)
        pk.store(y, pk.gather(y[1, 0], index, cols=16))

    moving(body)(ones(64, dtype=np.int32), out((64, 16)))


def gather_by_floats(out):
    def body(x, y):
        pk.store(y, pk.gather(y, pk.load(x, cols=64, spread=pk.per_row), cols=16))

    moving(body)(ones(64), out((64, 16)))


def scatter_of_other_rows(out):
    def body(x, y):
        index = pk.load(x, cols=64, spread=pk.per_row)
        pk.scatter(y, index, pk.zeros(f32, 128, 16))

    moving(body)(ones(64, dtype=np.int32), out((64, 16)))


def window_of_no_axis(out):
    moving(lambda x, y: pk.store(y, pk.load(x.window(2, 0, 4), cols=16)))(ones(4, 16), out((16,)))


def window_with_a_float_bound(out):
    moving(lambda x, y: pk.store(y, pk.load(x.window(0, 0, 4.0), cols=16)))(ones(4, 16), out((16,)))


def window_with_a_wide_bound(out):
    moving(lambda x, y: pk.store(y, pk.load(y.window(0, 0, pk.load(x[0])), cols=4)))(
        ones(4, dtype=np.int64), out((4,))
    )


def load_of_a_stage_being_filled(out):
    @pk.kernel
    def kernel(x, y):
        ring = pk.pipeline(1, pk.st(f32, 64, 16))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s, x)
            t = pk.load(s)
        with ring.drain():
            pk.store(y, t)

    kernel(ones(64, 16), out((64, 16)))


def load_of_a_part_by_its_sides(out):
    @pk.kernel
    def kernel(x, y):
        ring = pk.pipeline(1, pk.st(f32, 128, 16))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s, x)
        with ring.drain() as s:
            pk.store(y, pk.load(s, rows=64, cols=16))

    kernel(ones(128, 16), out((64, 16)))


def shared_vector_of_a_wrong_length(out):
    @pk.kernel
    def kernel(x, y):
        pk.pipeline(1, pk.sv(bf16, 100))
        pk.grid(1)

    kernel(ones(4), out((4,)))


def tile_to_a_shared_vector(out):
    @pk.kernel
    def kernel(x, y):
        ring = pk.pipeline(1, pk.sv(f32, 64))
        pk.grid(1)
        with ring.fill() as s:
            pk.store(s, pk.load(x, rows=64, cols=16))
        with ring.drain() as s:
            pk.store_async(y, s)

    kernel(ones(64, 16), out((64,)))


def tiles_of_a_shared_vector(out):
    @pk.kernel
    def kernel(x, y):
        ring = pk.pipeline(1, pk.sv(f32, 64))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s.tiles(1, 32)[0, 0], x)
        with ring.drain() as s:
            pk.store_async(y, s)

    kernel(ones(64), out((64,)))


def tiles_of_a_row(out):
    @pk.kernel
    def kernel(x, y):
        tile = pk.shared(pk.st(f32, 64, 64))
        pk.grid(1)
        pk.load(tile.row(3).tiles(1, 32)[0])

    kernel(ones(64), out((64,)))


def copy_to_a_row_of_a_shared_tile(out):
    @pk.kernel
    def kernel(x, y):
        ring = pk.pipeline(1, pk.st(f32, 64, 64))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s.row(3), x)
        with ring.drain() as s:
            pk.store_async(y, s)

    kernel(ones(64), out((64,)))


def spread_vector_to_a_row(out):
    @pk.kernel
    def kernel(x, y):
        tile = pk.shared(pk.st(f32, 64, 64))
        pk.grid(1)
        pk.store(tile.row(3), pk.load(x, cols=64, spread=pk.per_column))

    kernel(ones(64), out((64,)))


def parts_that_leave_a_rest(out):
    moving(lambda x, y: pk.load(pk.shared(pk.sv(f32, 64)).parts(48)[0]))(ones(64), out((64,)))


def copy_to_a_part_of_a_shared_vector(out):
    @pk.kernel
    def kernel(x, y):
        ring = pk.pipeline(1, pk.sv(f32, 64))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s.parts(32)[0], x)
        with ring.drain() as s:
            pk.store_async(y, s)

    kernel(ones(64), out((64,)))


def load_of_all_parts_of_a_shared_vector(out):
    @pk.kernel
    def kernel(x, y):
        vector = pk.shared(pk.sv(f32, 64))
        pk.grid(1)
        pk.store(y, pk.load(vector.parts(32)))

    kernel(ones(64), out((64,)))


def part_outside_a_shared_vector(out):
    @pk.kernel
    def kernel(x, y, i):
        vector = pk.shared(pk.sv(f32, 64))
        pk.grid(1)
        pk.store(vector, pk.load(x, cols=64))
        pk.store(y, pk.load(vector.parts(32)[i]))

    kernel(ones(64), out((64,)), 2)


def transposed_vector(out):
    moving(lambda x, y: pk.store(y[0], pk.load(x[0], cols=16, transposed=True)))(
        ones(2, 16), out((2, 16))
    )


def transposed_number(out):
    moving(lambda x, y: pk.store(y[0, 0], 1.0, transposed=True))(ones(2, 16), out((2, 16)))


def transposed_by_a_word(out):
    moving(lambda x, y: pk.store(y, pk.load(x, rows=64, cols=16), transposed="yes"))(
        ones(64, 16), out((16, 64))
    )


def transposed_to_a_shared_tile_of_its_own_sides(out):
    @pk.kernel
    def kernel(x, y):
        tile = pk.shared(pk.st(f32, 64, 32))
        pk.grid(1)
        pk.store(tile, pk.load(x, rows=64, cols=32), transposed=True)

    kernel(ones(64, 32), out((64, 32)))


def transposed_from_a_shared_tile_too_narrow(out):
    @pk.kernel
    def kernel(x, y):
        tile = pk.shared(pk.st(f32, 64, 32))
        pk.grid(1)
        pk.store(y, pk.load(tile, transposed=True))

    kernel(ones(64, 32), out((64, 32)))


def transposed_shared_vector(out):
    @pk.kernel
    def kernel(x, y):
        vector = pk.shared(pk.sv(f32, 64))
        pk.grid(1)
        pk.store(y, pk.load(vector, transposed=True))

    kernel(ones(64), out((64,)))
