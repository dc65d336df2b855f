"""Products that the user waits for: NaN before the wait, and the result of managed products after it."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens import bf16
from pykittens.ir.nodes import WaitProducts, walk
from tests.running import recorded

BF16 = np.dtype(ml_dtypes.bfloat16)


@pk.kernel
def early_and_late(A, C):
    tile, full = pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(1)
    pk.grid(1)
    full.expect(tile)
    pk.load_async(tile, A[0], signal=full)
    full.wait(0)
    first = pk.mma_AB(tile, tile, managed=False)
    second = pk.mma_AB(tile, tile, first, managed=False)
    pk.store(C[0], first)
    pk.mma_wait(1)
    pk.store(C[1], first)
    pk.store(C[2], second)
    pk.mma_wait()
    pk.store(C[3], second)


def test_a_product_by_hand_holds_no_number_before_its_wait():
    a = np.eye(64).astype(BF16)
    c = np.zeros((256, 64), np.float32)
    early_and_late(a, c)
    assert np.isnan(c[:64]).all()
    assert np.array_equal(c[64:128], np.eye(64))
    assert np.isnan(c[128:192]).all()
    assert np.array_equal(c[192:], 2 * np.eye(64))


def test_the_wait_pass_leaves_products_by_hand_alone():
    made = recorded(early_and_late, np.eye(64).astype(BF16), np.zeros((256, 64), np.float32))
    assert not any(isinstance(n, WaitProducts) for n in walk(made.body))


def test_a_wait_for_a_managed_product_counts_those_by_hand_behind_it():
    @pk.kernel
    def kernel(A, C):
        tile, full = pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(1)
        pk.grid(1)
        full.expect(tile)
        pk.load_async(tile, A[0], signal=full)
        full.wait(0)
        by_hand = pk.mma_AB(tile, tile, managed=False)
        managed = pk.mma_AB(tile, tile)
        pk.store(C[0], managed)
        pk.store(C[1], by_hand)

    c = np.zeros((128, 64), np.float32)
    kernel(np.eye(64).astype(BF16), c)
    assert np.array_equal(c, np.tile(np.eye(64), (2, 1)))


def test_a_stage_held_back_is_given_back_before_another_role_is_waited_for():
    @pk.kernel
    def kernel(A, C):
        ring = pk.pipeline(2, pk.st(bf16, 64, 64))
        done = pk.semaphore(1)
        pk.grid(1)
        with pk.producer():
            for i in pk.range(3):
                with ring.fill() as t:
                    pk.load_async(t, A[i, 0])
            done.arrive()
        with pk.consumers(1):
            with ring.drain() as t:
                c = pk.mma_AB(t, t)
            done.wait(0)
            pk.store(C[0], c)
            for _ in range(2):
                with ring.drain():
                    pass

    c = np.zeros((64, 64), np.float32)
    kernel(np.tile(np.eye(64), (3, 1)).astype(BF16), c)
    assert np.array_equal(c, np.eye(64))
