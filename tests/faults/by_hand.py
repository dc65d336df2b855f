"""Wrong uses of semaphores, flags, turns and inline CUDA, and kernels whose waits for them never end."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens import bf16, f32
from tests.running import put

BF16 = np.dtype(ml_dtypes.bfloat16)
ONES = np.ones((64, 64), BF16)


def shared_in_a_role(out):
    @pk.kernel
    def kernel(y):
        pk.grid(1)
        with pk.warps(1):
            pk.shared(pk.st(f32, 16, 16))

    kernel(out((1, 8)))


def shared_of_no_type(out):
    @pk.kernel
    def kernel(y):
        pk.shared(f32)
        pk.grid(1)

    kernel(out((1, 8)))


def semaphore_of_no_arrivals(out):
    @pk.kernel
    def kernel(y):
        pk.semaphore(0)
        pk.grid(1)

    kernel(out((1, 8)))


def semaphore_beyond_the_last(out):
    @pk.kernel
    def kernel(y):
        full = pk.semaphore(1, count=2)
        pk.grid(1)
        full[2].arrive()

    kernel(out((1, 8)))


def semaphore_without_its_index(out):
    @pk.kernel
    def kernel(A, y):
        tile, full = pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(1, count=2)
        pk.grid(1)
        pk.load_async(tile, A[0], signal=full)

    kernel(ONES, out((1, 8)))


def semaphore_that_nobody_arrives_at(out):
    @pk.kernel
    def kernel(y):
        full = pk.semaphore(1, count=2)
        pk.grid(1)
        with pk.warps(2) as w:
            full[w].wait(0)

    kernel(out((1, 8)))


def arrival_outside_the_roles(out):
    @pk.kernel
    def kernel(y):
        full = pk.semaphore(1)
        pk.grid(1)
        full.arrive()
        with pk.warps(1):
            full.wait(0)

    kernel(out((1, 8)))


def phase_that_is_a_float(out):
    @pk.kernel
    def kernel(y):
        full = pk.semaphore(1)
        pk.grid(1)
        full.wait(0.5)

    kernel(out((1, 8)))


def bytes_that_are_a_float(out):
    @pk.kernel
    def kernel(y):
        full = pk.semaphore(1)
        pk.grid(1)
        full.expect(0.5)

    kernel(out((1, 8)))


def copy_without_a_semaphore(out):
    @pk.kernel
    def kernel(A, y):
        tile = pk.shared(pk.st(bf16, 64, 64))
        pk.grid(1)
        pk.load_async(tile, A[0])

    kernel(ONES, out((1, 8)))


def semaphore_for_a_stage(out):
    @pk.kernel
    def kernel(A, y):
        ring, full = pk.pipeline(1, pk.st(bf16, 64, 64)), pk.semaphore(1)
        pk.grid(1)
        with pk.producer(), ring.fill() as t:
            pk.load_async(t, A[0], signal=full)

    kernel(ONES, out((1, 8)))


def arrival_too_many(out):
    @pk.kernel
    def kernel(y):
        full = pk.semaphore(1)
        pk.grid(1)
        full.expect(64)
        full.arrive()

    kernel(out((1, 8)))


def semaphore_that_waits_for_ever(out):
    @pk.kernel
    def kernel(A, y):
        tile, full = pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(2)
        pk.grid(1)
        with pk.producer():
            full.expect(tile, tile)
            pk.load_async(tile, A[0], signal=full)
        with pk.warpgroups(1):
            full.wait(0)
            pk.store(y[0], pk.load(tile).to(f32))

    kernel(ONES, out((64, 64)))


def turn_outside_a_role(out):
    @pk.kernel
    def kernel(y):
        pk.grid(1)
        with pk.in_turn():
            put(y, 0, 1)

    kernel(out((1, 8), np.int32))


def turns_of_unequal_number(out):
    @pk.kernel
    def kernel(y):
        pk.grid(1)
        with pk.warps(2) as w:
            for _ in pk.range(1 + w):
                with pk.in_turn():
                    pass

    kernel(out((1, 8), np.int32))


def flag_that_is_a_float(out):
    @pk.kernel
    def kernel(y):
        pk.grid(1)
        pk.signal(y[0], 1)

    kernel(out((1, 8)))


def flag_outside_its_tensor(out):
    @pk.kernel
    def kernel(y):
        pk.grid(1)
        pk.signal(y[0, 8], 1)

    kernel(out((1, 8), np.int32))


def flag_that_nobody_signals(out):
    @pk.kernel
    def kernel(flags):
        (block,) = pk.grid(3)
        with pk.producer():
            pk.wait(flags[1, block], 2)
        with pk.warps(2) as w:
            pk.wait(flags[0, w], -1)

    kernel(np.zeros((2, 8), np.int32))


def product_that_nobody_waits_for(out):
    @pk.kernel
    def kernel(A, C):
        tile, full = pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(1)
        pk.grid(1)
        full.expect(tile)
        pk.load_async(tile, A[0], signal=full)
        full.wait(0)
        pk.mma_AB(tile, tile, managed=False)

    kernel(ONES, out((64, 64)))


def pending_that_is_no_number(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        pk.store_wait(n)

    kernel(out((1, 8)), 1)


def places_of_a_format(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        pk.print("{} of {}", n)

    kernel(out((1, 8)), 1)


def named_place_of_a_format(out):
    @pk.kernel
    def kernel(y, n):
        pk.grid(1)
        pk.print("{n}", n)

    kernel(out((1, 8)), 1)


def assertion_that_fails(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        t = pk.load(x[0], rows=64, cols=64)
        pk.assert_(t < 3, "less than three")
        pk.store(y[0], t)

    x = np.zeros((64, 64), np.float32)
    x[5, 7] = x[60, 0] = 3
    kernel(x, out((64, 64)))


def assertion_known_when_recorded(out):
    @pk.kernel
    def kernel(y):
        pk.grid(1)
        pk.assert_(1 > 2, "never")

    kernel(out((1, 8)))


def text_of_cuda_in_the_emulator(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        t = pk.load(x[0], cols=8)
        pk.store(y[0], pk.inline_cuda("__expf({0})", t, like=t))

    kernel(np.ones((1, 8), np.float32), out((1, 8)))


def places_of_a_text_of_cuda(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        t = pk.load(x[0], cols=8)
        pk.store(y[0], pk.inline_cuda("f({0}, {1})", t, like=t))

    kernel(np.ones((1, 8), np.float32), out((1, 8)))


def statement_on_a_tile(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.inline_cuda("f({0});", pk.load(x[0], cols=8))

    kernel(np.ones((1, 8), np.float32), out((1, 8)))
