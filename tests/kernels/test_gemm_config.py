"""Configurations of products: what is offered, what fits, and shares of the work that miss nothing."""

from __future__ import annotations

import itertools

import pytest

from pykittens.errors import ResourceError
from pykittens.kernels.core import Limits
from pykittens.kernels.products.config import Config, Shape, Shares
from pykittens.kernels.products.pick import candidates, pick
from pykittens.targets.target import TARGETS

LIMITS = {n: Limits(n, t.shared_bytes, t.warpgroups) for n, t in TARGETS.items()}
SHAPES = [
    Shape(m, n, 700, batch, bytes=size, out_bytes=out, gated=gated, blocks=blocks and size == 1)
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
            assert c.rows % (64 * c.consumers) == 0


def test_a_product_that_is_looked_at_whole_is_not_transposed():
    for shape in SHAPES:
        asked = Shape(shape.m, shape.n, shape.k, may_swap=False)
        assert not any(c.swap for c in candidates(asked, LIMITS["sm_90a"]))


def test_a_gpu_with_too_little_shared_memory_is_told():
    with pytest.raises(ResourceError, match="gemm: no configuration fits sm_75: the smallest"):
        candidates(Shape(64, 64, 64), Limits("sm_75", 32 * 1024, warpgroups=False))


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("multiprocessors", [1, 2, 3, 7, 132])
def test_shares_are_even_and_cover_every_step_once(multiprocessors, swap):
    config = Config(128, 64, shares=True, swap=swap)
    for m, n, k in ((1, 1, 1), (128, 64, 64), (300, 300, 700), (5000, 100, 64), (700, 900, 1100)):
        shape = Shape(m, n, k)
        shares = Shares.of(config, shape, multiprocessors)
        sides = (n, m) if swap else (m, n)
        tiles = -(-sides[0] // 128) * -(-sides[1] // 64)
        steps = -(-k * 2 // 128)
        cut = (tiles - shares.whole * shares.blocks) * steps
        assert shares.blocks <= multiprocessors
        assert 0 <= shares.whole * shares.blocks <= tiles
        assert shares.share * shares.blocks >= cut
        assert shares.share * shares.blocks < cut + shares.blocks
