"""Configurations of products: the candidates, those that fit, and the splits of sums."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from pykittens.errors import ResourceError
from pykittens.kernels.gemm.choose import candidates, fitted, pick
from pykittens.kernels.gemm.config import UNIT, Config, GemmShape, together, work
from pykittens.kernels.limits import Limits
from pykittens.targets.architectures import TARGETS

LIMITS = {n: Limits(n, t.shared_bytes, t.warpgroups) for n, t in TARGETS.items()}
SHAPES = [
    GemmShape(m, n, 700, batch, bytes=size, out_bytes=out, gated=gated, blocks=blocks and size == 1)
    for m, n, batch, size, out, gated, blocks in itertools.product(
        (1, 40, 128, 4096), (1, 4096), (1, 3), (1, 2), (1, 2, 4), (False, True), (False, True)
    )
]


@pytest.mark.parametrize("target", LIMITS)
def test_what_is_offered_fits_the_target(target):
    limits = LIMITS[target]
    for shape in SHAPES:
        offered = candidates(shape, limits)
        assert pick(shape, limits) == offered[0]
        assert len(set(offered)) == len(offered)
        for c in offered:
            needed = c.shared_bytes(shape.out_bytes, shape.gated, shape.blocks)
            assert needed <= limits.shared_bytes
            assert c.warpgroups == limits.warpgroups
            assert c.stages >= 2
            assert (c.cols // (c.pieces if shape.blocks else 1)) % c.out_cols == 0
            assert c.rows % ((UNIT if c.vectors else 64) * c.consumers) == 0


def test_a_product_that_is_looked_at_whole_is_not_transposed():
    for shape in SHAPES:
        asked = GemmShape(shape.m, shape.n, shape.k, may_swap=False)
        assert not any(c.swap for c in candidates(asked, LIMITS["sm_90a"]))


def test_a_gpu_with_too_little_shared_memory_is_told():
    with pytest.raises(ResourceError, match="gemm: no configuration fits sm_75: the smallest"):
        candidates(GemmShape(64, 64, 64), Limits("sm_75", 32 * 1024, warpgroups=False))


def test_blocks_that_wait_for_one_another_run_at_once():
    """And each has steps to do."""
    for shape in (
        *SHAPES,
        GemmShape(16, 512, 8192),
        GemmShape(256, 1024, 28672),
        GemmShape(1, 1, 100000),
    ):
        limits = LIMITS["sm_90a"]
        for c in candidates(shape, limits):
            tiles, steps = work(c, shape)
            assert c.splits == 1 or tiles * c.splits <= limits.multiprocessors
            assert c.splits <= max(steps // 2, 1)


@pytest.mark.parametrize("splits", [1, 2, 8, 100])
def test_no_more_blocks_share_tiles_than_run_at_once(splits):
    config = Config(128, 64, splits=splits)
    for m, n, most in ((128, 64, 132), (256, 640, 6), (1000, 1000, 1), (0, 64, 132)):
        found = together(config, GemmShape(m, n, 4096), 132)
        assert found == replace(config, splits=min(splits, most))


def test_fewer_blocks_of_a_tile_than_run_at_once_do_not_become_a_cluster():
    """As many splits as blocks of a cluster would exchange sums there, for which the stages leave no room."""
    config = Config(128, 64, splits=3, cluster=2)
    assert together(config, GemmShape(1024, 1024, 4096), 264) == replace(
        config, splits=2, cluster=1
    )
    assert together(config, GemmShape(512, 512, 4096), 264) == config


def test_few_tiles_of_many_steps_are_split():
    limits = LIMITS["sm_90a"]
    for m, n, k in ((16, 512, 8192), (64, 1024, 14336), (256, 1024, 28672)):
        assert pick(GemmShape(m, n, k), limits).splits > 1
    for m, n, k in ((16, 28672, 4096), (4096, 4096, 4096), (64, 64, 64)):
        assert pick(GemmShape(m, n, k), limits).splits == 1


@pytest.mark.parametrize("b_by_rows", [True, False])
def test_tiles_hold_few_rows_that_are_not_there(b_by_rows):
    for m in (80, 96, 112, 144, 160):
        c = pick(GemmShape(m, 8192, 8192, b_by_rows=b_by_rows), LIMITS["sm_90a"])
        side = c.cols if c.swap else c.rows
        assert -(-m // side) * side - m < 16


def test_narrow_parts_are_stored_two_at_a_time_unless_that_takes_a_stage():
    limits, seen = LIMITS["sm_90a"], set()
    for shape in (
        GemmShape(160, 19712, 1408),
        GemmShape(4096, 4544, 1536),
        GemmShape(300, 300, 300),
    ):
        for c in candidates(shape, limits):
            if c.parts > 1 and c.out_cols < 64 and c.splits == c.out_stages == 1:
                two = fitted(replace(c, out_stages=2), shape, limits)
                assert two is None or two.stages < c.stages
            seen.add(c.out_stages)
    assert seen == {1, 2}


def test_lanes_store_rows_of_two_lines_where_the_copy_engine_reaches_none():
    for out_bytes, wide in ((1, 256), (2, 128)):
        shape = GemmShape(5000, 5000, 100, out_bytes=out_bytes)
        for out_step, is_offered in ((out_bytes, True), (16, False)):
            offered = candidates(replace(shape, out_step=out_step), LIMITS["sm_90a"])
            assert any(c.out_cols == wide for c in offered if not c.swap) is is_offered


@pytest.mark.parametrize("swap", [True, False])
def test_tiles_of_any_width_are_split(swap):
    offered = candidates(GemmShape(440, 440, 12224), LIMITS["sm_90a"])
    split = {c.cols for c in offered if c.splits > 1 and c.swap is swap}
    assert {96, 112, 144, 192, 256} <= split


def test_transposed_products_with_operands_leave_registers_to_load_them():
    for shape in (GemmShape(250, 8192, 8192, operands=2), GemmShape(240, 28672, 4096, operands=1)):
        offered = candidates(shape, LIMITS["sm_90a"])
        assert any(c.swap for c in candidates(replace(shape, operands=0), LIMITS["sm_90a"]))
        assert all(c.rows // c.consumers * c.cols <= 64 * 160 for c in offered if c.swap)


@pytest.mark.parametrize(
    ("m", "n", "band"),
    [
        (256, 8192, 8),  # two rows of tiles: each band has both
        (1280, 8192, 15),  # ten rows: one band, not eight and two
        (8192, 256, 1),  # two columns: along them first
        (8192, 8192, 8),  # neither side is short
        (2048, 1536, 8),  # nor much shorter
        (8192, 100, 8),  # one column
    ],
)
def test_neighbours_in_the_grid_share_the_tiles_of_the_longer_side(m, n, band):
    shape = GemmShape(m, n, 4096, may_swap=False)
    found = [c for c in candidates(shape, LIMITS["sm_90a"]) if (c.rows, c.cols) == (128, 128)]
    assert {c.band for c in found if c.sharing == 1} == {band}
