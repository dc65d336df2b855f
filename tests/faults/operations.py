"""Operations on operands that do not fit."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens import bf16, f16, f32, int32

BF16 = np.dtype(ml_dtypes.bfloat16)


def bf(*shape):
    return np.ones(shape, BF16)


def inner_sides(out):
    @pk.kernel
    def matmul(A, B, C):
        ring = pk.pipeline(2, a=pk.st(bf16, 64, 32), b=pk.st(bf16, 256, 64))
        pk.grid(1)
        with pk.producer(), ring.fill() as s:
            pk.load_async(s.a, A[0])
            pk.load_async(s.b, B[0])
        with pk.consumers(1):
            acc = pk.zeros(f32, 64, 256)
            with ring.drain() as s:
                acc = pk.mma_ABt(s.a, s.b, acc)
            pk.store(C[0], acc)

    matmul(bf(64, 32), bf(256, 64), out((64, 256)))


def product_of_too_few_rows(out):
    @pk.kernel
    def kernel(A, C):
        ring = pk.pipeline(2, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer(), ring.fill() as s:
            pk.load_async(s, A[0])
        with pk.consumers(1), ring.drain() as s:
            c = pk.mma_AB(s.tiles(32, 64)[0], s)
            pk.store(C[0], c)

    kernel(bf(64, 64), out((64, 64)))


def product_of_registers(out):
    @pk.kernel
    def kernel(A, C):
        pk.grid(1)
        a = pk.load(A[0], rows=64, cols=64)
        pk.store(C[0], pk.mma_AB(a, a))

    kernel(bf(64, 64), out((64, 64)))


def accumulator(out):
    @pk.kernel
    def kernel(A, C):
        ring = pk.pipeline(2, pk.st(bf16, 64, 64))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s, A[0])
        with ring.drain() as s:
            c = pk.mma_AB(s, s, pk.zeros(bf16, 64, 64))
        pk.store(C[0], c)

    kernel(bf(64, 64), out((64, 64)))


def tile_sides(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.load(x[0], rows=32, cols=64))

    kernel(bf(64, 64), out((64, 64), BF16))


def tile_columns(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.load(x[0], rows=64, cols=40))

    kernel(bf(64, 64), out((64, 64), BF16))


def tile_side_of_a_call(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.load(x[0], cols=x.cols))

    kernel(bf(64, 64), out((64, 64), BF16))


def tile_of_a_vector(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.load(x[0], rows=64, cols=64))

    kernel(bf(64), out((64, 64), BF16))


def vector_too_long(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        n = pk.static(x.cols)
        with pk.warps(2) as w:
            pk.store(y[w], pk.load(x[w], cols=n))

    kernel(bf(2, 6145), out((2, 6145), BF16))


def zeros_too_long(out):
    @pk.kernel
    def kernel(y):
        pk.grid(1)
        pk.store(y[0], pk.zeros(f32, 24577))

    kernel(out((1, 8)))


def mixed_dtypes(out):
    @pk.kernel
    def kernel(x, z, y):
        pk.grid(1)
        a = pk.load(x[0], rows=64, cols=64)
        b = pk.load(z[0], rows=64, cols=64)
        pk.store(y[0], a + b)

    kernel(bf(64, 64), np.ones((64, 64), np.float32), out((64, 64)))


def another_dtype_stored(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.load(x[0], rows=64, cols=64) + 1)

    kernel(bf(64, 64), out((64, 64)))


def copy_that_converts(out):
    @pk.kernel
    def kernel(x, y):
        ring = pk.pipeline(1, pk.st(f16, 64, 64))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s, x[0])
        with ring.drain() as s:
            pk.store_async(y[0], s)

    kernel(bf(64, 64), out((64, 64), BF16))


def fill_that_the_dtype_lacks(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.load(x[0], cols=8, fill=70000.0))

    kernel(np.ones((1, 4), np.float16), out((1, 8), np.float16))


def number_that_the_dtype_lacks(out):
    @pk.kernel
    def kernel(y):
        pk.grid(1)
        pk.store(y[0], pk.zeros(int32, 8) + 1.5)

    kernel(out((1, 8), np.int32))


def array_on_the_left(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], np.ones((64, 64), np.float32) + pk.load(x[0], rows=64, cols=64))

    kernel(np.ones((64, 64), np.float32), out((64, 64)))


def complex_number_of_numpy_on_the_left(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], np.complex64(2) * pk.load(x[0], rows=64, cols=64))

    kernel(np.ones((64, 64), np.float32), out((64, 64)))


def tile_of_a_tensor_in_arithmetic(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], x[0, 0] + 1.0)

    kernel(np.ones((64, 64), np.float32), out((64, 64)))


def attribute_of_a_tile_of_a_tensor(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.zeros(f32, x[0].rows))

    kernel(np.ones((64, 64), np.float32), out((64, 64)))


def stage_in_place_of_its_tile(out):
    @pk.kernel
    def kernel(x, y):
        ring = pk.pipeline(1, a=pk.st(bf16, 64, 64))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s, x[0])
        with ring.drain() as s:
            pk.store(y[0], s.a * 2)

    kernel(bf(64, 64), out((64, 64), BF16))


def power_beyond_64_bits(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        pk.store(y[0], pk.zeros(f32, 8) + 2**2000)

    kernel(out((1, 8)), 1)


def unequal_tiles(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        t = pk.load(x[0], rows=64, cols=64)
        pk.store(y[0], t + t[:, 0:32])

    kernel(bf(64, 64), out((64, 64), BF16))


def vector_in_a_tile(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        t = pk.load(x[0], rows=64, cols=64)
        pk.store(y[0], t * pk.load(x[1], cols=64))

    kernel(bf(64, 64), out((64, 64), BF16))


def shared_tile_in_arithmetic(out):
    @pk.kernel
    def kernel(x, y):
        ring = pk.pipeline(1, pk.st(bf16, 64, 64))
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s, x[0])
        with ring.drain() as s:
            pk.store(y[0], pk.exp(s))

    kernel(bf(64, 64), out((64, 64), BF16))


def integers_divided(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        pk.store(y[0], pk.zeros(int32, 8) / n)

    kernel(out((1, 8), np.int32), 3)


def function_of_integers(out):
    @pk.kernel
    def kernel(y):
        pk.grid(1)
        pk.store(y[0], pk.tanh(pk.zeros(int32, 8)))

    kernel(out((1, 8), np.int32))


def power_of_integers(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        pk.store(y[0], pk.zeros(int32, 8) + n**2)

    kernel(out((1, 8), np.int32), 3)


def floats_floor_divided(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.load(x[0], rows=64, cols=64) // 2)

    kernel(bf(64, 64), out((64, 64), BF16))


def bits_of_floats(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.load(x[0], rows=64, cols=64) & 1)

    kernel(bf(64, 64), out((64, 64), BF16))


def truth_of_integers(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        both = pk.logical_and(n, n > 2)
        pk.store(y[0], pk.where(both, pk.zeros(int32, 8), 1))

    kernel(out((1, 8), np.int32), 3)


def unknown_form_of_gelu(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.gelu(pk.load(x[0], rows=64, cols=64), approximate="fast"))

    kernel(bf(64, 64), out((64, 64), BF16))


def too_many_indices(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.load(x[0, 0, 0], cols=8))

    kernel(bf(8, 8), out((8, 8), BF16))


def tensor_of_three_axes_in_a_kernel_for_matrices(out):
    @pk.kernel
    def kernel(x, y):
        row, col = pk.grid(pk.cdiv(x.rows, 64), pk.cdiv(x.cols, 64))
        pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64))

    kernel(bf(8, 100, 64), out((8, 100, 64), BF16))


def tensor_of_three_axes_without_an_index(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.load(x, cols=8))

    kernel(bf(8, 8, 8), out((8, 8), BF16))


def slice_of_a_tensor(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.load(x[0:8], cols=8))

    kernel(bf(8, 8), out((8, 8), BF16))


def columns_off_the_grid(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.load(x[0], rows=64, cols=64)[:, 8:40])

    kernel(bf(64, 64), out((64, 64), BF16))


def reduction_of_a_vector(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        t = pk.load(x[0], rows=64, cols=64)
        pk.store(y[0], t - pk.maximum(pk.row_max(t), pk.row_max(pk.row_max(t))))

    kernel(bf(64, 64), out((64, 64), BF16))


def reduction_of_numbers_to_a_truth(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        t = pk.load(x[0], rows=64, cols=64)
        pk.store(y[0], pk.where(pk.row_any(t), t, 0.0))

    kernel(bf(64, 64), out((64, 64), BF16))


def scan_of_a_tile(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.cumsum(pk.load(x[0], rows=64, cols=64)))

    kernel(bf(64, 64), out((64, 64), BF16))


def tile_that_the_warps_cannot_turn(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.transpose(pk.load(x[0], rows=64, cols=48)))

    kernel(bf(64, 48), out((48, 64), BF16))


def row_of_a_tile_by_its_number(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        t = pk.load(x[0], rows=64, cols=64)
        pk.store(y[0], t * t[3])

    kernel(bf(64, 64), out((64, 64), BF16))


def vector_too_short_for_rows(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.outer_add(pk.load(x[0], cols=40), pk.load(x[1], cols=64)))

    kernel(bf(64, 64), out((64, 64), BF16))


def seed_of_64_bits(out):
    @pk.kernel
    def kernel(y):
        pk.grid(1)
        pk.store(y[0], pk.random_bits(2**40, 0, 0, rows=64, cols=64))

    kernel(out((64, 64), np.int32))


def operation_called_wrongly(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.load(x[0], 64, 64))

    kernel(bf(64, 64), out((64, 64), BF16))
