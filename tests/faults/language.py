"""Kernels that break a rule of the language."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens import bf16, f32, int32
from tests.running import put

BF16 = np.dtype(ml_dtypes.bfloat16)
ONES = np.ones((64, 64), BF16)


def plain_helper(x, n):
    if n > 2:
        x = x + 1
    return x


def value_of_another_role(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        with pk.warps(1):
            t = pk.zeros(f32, 8)
        with pk.warps(2):
            pk.store(y[0], t)

    kernel(out((1, 8)), 1)


def value_outside_its_loop(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        for i in pk.range(n):
            t = pk.zeros(f32, 8)
        pk.store(y[0], t)

    kernel(out((1, 8)), 1)


def index_outside_its_loop(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        for i in pk.range(n):
            put(y, i, 1)
        put(y, i, 2)

    kernel(out((8, 8), np.int32), 1)


def overlap_in_a_loop(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        for i in pk.range(n):
            pk.overlap()
            put(y, i, 1)

    kernel(out((8, 8), np.int32), 1)


def overlap_in_a_role(out):
    @pk.kernel
    def kernel(y):
        pk.grid(1)
        with pk.warps(1):
            pk.overlap()
            put(y, 0, 1)

    kernel(out((8, 8), np.int32))


def stage_behind_its_with(out):
    @pk.kernel
    def kernel(A, y):
        keys = pk.pipeline(1, pk.st(bf16, 64, 64))
        pk.grid(1)
        with keys.fill() as key:
            pk.load_async(key, A[0])
        with keys.drain() as key:
            pass
        pk.store(y[0], pk.mma_AB(key, key))

    kernel(ONES, out((64, 64)))


def view_behind_its_with(out):
    @pk.kernel
    def kernel(A, y):
        keys = pk.pipeline(1, pk.st(bf16, 64, 64))
        pk.grid(1)
        with keys.fill() as key:
            pk.load_async(key, A[0])
        with keys.drain() as key:
            half = key.tiles(64, 32)[0, 1]
        pk.store(y[0], pk.mma_AB(half, half))

    kernel(ONES, out((64, 64)))


def shared_tile_outside_its_loop(out):
    @pk.kernel
    def kernel(y, n):
        tiles = pk.shared(pk.st(f32, 64, 64), count=2)
        pk.grid(1)
        for i in pk.range(n):
            tile = tiles[i % 2]
        pk.store(y[0], pk.load(tile))

    kernel(out((64, 64)), 1)


def semaphore_outside_its_branch(out):
    @pk.kernel
    def kernel(y, n):
        full = pk.semaphore(1, count=2)
        pk.grid(1)
        if n > 0:
            first = full[n]
            first.arrive()
        first.wait(0)

    kernel(out((1, 8)), 1)


def window_outside_its_loop(out):
    @pk.kernel
    def kernel(x, y, n):
        pk.grid(1)
        part = []
        for i in pk.range(n):
            part.append(x.window(0, i, n))
        pk.store(y[0], pk.load(part[0][0], cols=8))

    kernel(np.ones((4, 8), np.float32), out((1, 8)), 1)


def value_of_a_turn_outside_its_role(out):
    @pk.kernel
    def kernel(y):
        pk.grid(1)
        with pk.warps(2), pk.in_turn():
            t = pk.zeros(f32, 8)
        with pk.producer():
            pk.store(y[0], t)

    kernel(out((1, 8)))


def turn_outside_any_kernel(out):
    with pk.in_turn():
        pass


def carried_name_changes_type(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        acc = 0
        for i in pk.range(n):
            acc = acc + pk.zeros(int32, 8)
        pk.store(y[0], acc)

    kernel(out((8, 8)), 1)


def carried_name_is_none(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        best = None
        for i in pk.range(n):
            x = pk.load(y[i], cols=8)
            best = x if best is None else pk.maximum(best, x)
        pk.store(y[0], best)

    kernel(out((8, 8)), 1)


def carried_name_is_a_number(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        most = 0.0
        for i in pk.range(n):
            most = pk.row_max(pk.load(y[i, 0], rows=64, cols=16)) + most
        pk.store(y[0, 0], pk.zeros(pk.f32, 64, 16) + most)

    kernel(out((64, 16)), 1)


def name_of_two_types(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        if n > 2:
            x = 1
        else:
            x = 2.0
        put(y, 0, x)

    kernel(out((8, 8)), 1)


def name_of_one_branch(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        if n > 2:
            x = 1
        put(y, 0, x)

    kernel(out((8, 8), np.int32), 1)


def branch_in_a_plain_function(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        put(y, 0, plain_helper(n, n))

    kernel(out((8, 8), np.int32), 1)


def range_in_a_plain_function(out):
    def count(n):
        return [i for i in pk.range(n)]

    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        put(y, 0, count(n)[0])

    kernel(out((8, 8), np.int32), 1)


def never_drained(out):
    @pk.kernel
    def kernel(A, y):
        keys = pk.pipeline(1, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer(), keys.fill() as key:
            pk.load_async(key, A[0])
        with pk.consumers(1):
            pk.store(y[0], pk.zeros(f32, 64, 64))

    kernel(ONES, out((64, 64)))


def tile_outside_the_roles(out):
    @pk.kernel
    def kernel(y):
        pk.grid(1)
        t = pk.zeros(f32, 8)
        with pk.warps(1):
            pk.store(y[0], t)

    kernel(out((1, 8)))


def break_in_a_loop(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        for i in pk.range(n):
            put(y, i, i)
            break

    kernel(out((8, 8), np.int32), 1)


def shape_of_another_rank(out):
    @pk.kernel
    def kernel(Q, y):
        batch, heads, n, d = Q.shape
        pk.grid(batch)

    kernel(np.ones((2, 3, 4), BF16), out((8, 8)))


def condition_that_is_a_tile(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        t = pk.load(x[0], cols=8)
        if t > 0:
            pk.store(y[0], t)

    kernel(np.ones((1, 8), np.float32), out((1, 8)))


def conditional_expression(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        put(y, 0, 1 if n > 2 else 2)

    kernel(out((8, 8), np.int32), 1)


def run_time_value_as_a_length(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        parts = [pk.zeros(int32, 8) for _ in range(n)]
        pk.store(y[0], parts[0])

    kernel(out((8, 8), np.int32), 1)


def returned_value(out):
    @pk.kernel
    def kernel(y):
        pk.grid(1)
        return pk.zeros(f32, 8)

    kernel(out((1, 8)))


def deadlock(out):
    @pk.kernel
    def kernel(A, y, n):
        keys = pk.pipeline(2, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer():
            for _ in pk.range(n):
                with keys.fill() as key:
                    pk.load_async(key, A[0])
        with pk.consumers(2) as w:
            c = pk.zeros(f32, 64, 64)
            for _ in pk.range(n + 1):
                with keys.drain() as key:
                    c = pk.mma_AB(key, key, c)
            pk.store(y[w], c)

    kernel(ONES, out((128, 64)), 2)
