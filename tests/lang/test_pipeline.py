"""Pipelines in the language: their tiles, names and stages."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from tests.refusals import refused
from tests.running import recorded

BF16 = np.dtype(ml_dtypes.bfloat16)


def square(seed=0, rows=64):
    return np.random.default_rng(seed).standard_normal((rows, 64)).astype(BF16)


def test_a_pipeline_of_one_tile_gives_the_tile_and_of_several_a_namespace():
    @pk.kernel
    def kernel(A, C):
        one, two = pk.pipeline(2, pk.st(bf16, 64, 64)), pk.pipeline(2, t=pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer():
            with one.fill() as tile:
                assert tile.shape == (64, 64)
                pk.load_async(tile, A[0])
            with two.fill() as stage:
                assert stage.t.shape == (64, 64)
                pk.load_async(stage.t, A[0])
        with pk.consumers(1):
            with one.drain() as tile, two.drain() as stage:
                product = pk.mma_AB(tile, stage.t)
            pk.store(C[0], product)

    A, C = square(), np.full((64, 64), np.nan, np.float32)
    kernel(A, C)
    assert np.array_equal(C, A.astype(np.float32) @ A.astype(np.float32))
    assert [p.name for p in recorded(kernel, A, C).pipelines] == ["one", "two"]


def test_a_stage_has_the_tiles_of_its_pipeline_only():
    @pk.kernel
    def kernel(A):
        ring = pk.pipeline(1, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer(), ring.fill() as stage:
            pk.load_async(stage.c, A[0])

    with pytest.raises(pk.KernelError, match="no tile `c`") as caught:
        kernel(square())
    assert "it has a, b" in str(caught.value)


def test_a_stage_cannot_be_used_behind_its_with():
    @pk.kernel
    def kernel(A):
        ring = pk.pipeline(1, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer():
            with ring.fill() as stage:
                view = stage.tiles(32, 64)[0]
            pk.load_async(view, A[0])

    with pytest.raises(pk.KernelError, match="belongs to a stage that was left at .*test_pipeline"):
        kernel(square())


def test_a_copy_goes_into_a_stage_being_filled_and_comes_from_one_being_drained():
    @pk.kernel
    def fills_drained(A):
        ring = pk.pipeline(1, pk.st(bf16, 64, 64))
        pk.grid(1)
        with ring.drain() as stage:
            pk.load_async(stage, A[0])

    @pk.kernel
    def stores_filled(A):
        ring = pk.pipeline(1, pk.st(bf16, 64, 64))
        pk.grid(1)
        with ring.fill() as stage:
            pk.store_async(A[0], stage)

    with pytest.raises(pk.KernelError, match="taken with `fill`"):
        fills_drained(square())
    with pytest.raises(pk.KernelError, match="taken with `drain`"):
        stores_filled(square())


@pytest.mark.parametrize(("filled", "drained"), [(True, False), (False, True)])
def test_a_pipeline_has_both_ends(filled, drained):
    @pk.kernel
    def kernel(A):
        ring = pk.pipeline(1, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer():
            if filled:
                with ring.fill() as stage:
                    pk.load_async(stage, A[0])
        with pk.storer():
            if drained:
                with ring.drain() as stage:
                    pk.store_async(A[0], stage)

    with pytest.raises(
        pk.KernelError, match="`ring` is (filled and never drained|drained and never filled)"
    ):
        kernel(square())


def test_one_group_may_fill_and_drain():
    @pk.kernel
    def kernel(A, C):
        ring = pk.pipeline(2, pk.st(bf16, 64, 64))
        (block,) = pk.grid(pk.cdiv(A.rows, 64))
        with ring.fill() as stage:
            pk.load_async(stage, A[block])
        with ring.drain() as stage:
            product = pk.mma_ABt(stage, stage)
        pk.store(C[block], product)

    A, C = square(rows=150), np.full((192, 64), np.nan, np.float32)
    kernel(A, C)
    tiles = np.zeros((192, 64), np.float32)
    tiles[:150] = A
    tiles = tiles.reshape(3, 64, 64)
    assert np.allclose(C.reshape(3, 64, 64), tiles @ tiles.swapaxes(1, 2), rtol=0, atol=2e-4)


def test_views_of_a_tile_must_divide_it():
    @pk.kernel
    def kernel(A, *, rows, index):
        ring = pk.pipeline(1, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer(), ring.fill() as stage:
            pk.load_async(stage.tiles(rows, 64)[index], A[0])

    with pytest.raises(
        pk.KernelError, match="`rows` and `cols` must divide the 64x64 of the tile exactly"
    ):
        kernel(square(), rows=48, index=0)
    with pytest.raises(pk.KernelError, match="`i` must be a row index from 0 to 1"):
        kernel(square(), rows=32, index=2)
    with pytest.raises(pk.KernelError, match="`rows` must be a multiple of 8, not 4"):
        kernel(square(), rows=4, index=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pk.st(bf16, 24, 64), "`rows` must be a multiple of 16"),
        (lambda: pk.st(bf16, 64, 0), "`cols` must be a positive compile-time int"),
        (lambda: pk.st(bf16, 272, 64), "`rows` must be at most 256"),
        (lambda: pk.st(pk.bool_, 64, 64), "`dtype` must be"),
        (lambda: pk.st("bf16", 64, 64), "`dtype` must be"),
    ],
)
def test_a_shared_tile_has_sides_the_copy_engine_takes(make, message):
    with refused(message):
        make()


def test_a_pipeline_stands_before_the_roles():
    @pk.kernel
    def kernel(A):
        pk.grid(1)
        with pk.producer():
            pk.pipeline(1, pk.st(bf16, 64, 64))

    with pytest.raises(pk.KernelError, match="must be before the roles"):
        kernel(square())


@pytest.mark.parametrize("stages", [0, -1, 1.5])
def test_a_pipeline_has_at_least_one_stage(stages):
    @pk.kernel
    def kernel(A):
        pk.grid(1)
        pk.pipeline(stages, pk.st(f32, 64, 64))

    with pytest.raises(pk.KernelError, match="`stages` must be a positive compile-time int"):
        kernel(square())
