"""How the work of grouped products is cut: by how many rows a group has on average, and by what a GPU has room for."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

from pykittens.errors import ArgumentError
from pykittens.kernels.core import Limits, first_that_fits
from pykittens.kernels.gemm_config import Config, Shape, fitted

# Rows a group from which on tiles of 128 rows waste less time than tiles of 64 do: a block with one warpgroup
# multiplies at about three quarters of the speed of one with two, and a group ends half a tile early on average.
MANY = 96
MULTIPROCESSORS = 132  # with fewer tiles than these, narrower ones keep more of them busy


@functools.lru_cache(4096)
def pick(shape: Shape, groups: int, limits: Limits) -> Config:
    """The configuration for groups that share the `m` rows of a shape, on a GPU of these limits."""
    cut = [(c, fitted(c, shape, limits)) for c in candidates(shape, groups, limits)]
    able = [fit for _, fit in cut if fit is not None]
    if able:
        return able[0]
    least = [(c, replace(c, stages=2).shared_bytes(shape.out_bytes, shape.gated)) for c, _ in cut]
    return first_that_fits("grouped_gemm", least, limits)


@functools.lru_cache(4096)
def pick_k(shape: Shape, groups: int, limits: Limits) -> Config:
    """The configuration for groups that share the `k` elements of a shape, on a GPU of these limits."""
    return pick(replace(shape, m=shape.m * groups), groups, limits)


def check(config: Config | None) -> Config | None:
    """The configuration that a caller asked for; raise if it cuts the work in a way that groups do not know."""
    if config is None:
        return None
    other = {"cluster": config.cluster > 1, "turns": config.turns, "swap": config.swap}
    other |= {"shares": config.shares}
    for word, asked in other.items():
        if asked:
            raise ArgumentError(f"grouped_gemm: `config` must not have `{word}`")
    return config


def candidates(shape: Shape, groups: int, limits: Limits) -> Iterator[Config]:
    """The configurations for a shape, the one that should be fastest first; the last takes the least memory."""
    few = shape.m <= MANY * groups
    # Registers hold the sums of a tile, with a gate those of two, and with scales of blocks their addends, too.
    if limits.warpgroups:
        widest = 256 // (1 + shape.gated) // (1 + shape.blocks)
    else:
        widest = 32 if shape.gated or shape.blocks else 64
    cols = min((w for w in (64, 128) if shape.n <= w <= widest), default=widest)
    if limits.warpgroups:
        rows, consumers = (64, 1) if few else (128, 2)
        sharing = max(1, min(groups, shape.m))
        tiles = sharing * -(-shape.m // (sharing * rows)) * -(-shape.n // cols)
        if cols > 128 and tiles < MULTIPROCESSORS:
            cols = 128
        for out_cols in (64, 32, 16):
            yield Config(rows, cols, consumers=consumers, out_cols=min(out_cols, cols))
        return
    rows, consumers = (64, 1) if few else (256, 2)
    for out_cols in (32, 16):
        alone = Config(rows, cols, depth=64, stages=4, consumers=consumers, out_cols=out_cols)
        yield replace(alone, warpgroups=False)
    yield replace(alone, rows=64, cols=min(cols, 64), consumers=1, warpgroups=False)
