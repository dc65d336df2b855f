"""Configurations of grouped products, chosen by the average number of rows per group and the limits of a GPU."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

from pykittens.errors import ArgumentError
from pykittens.kernels.gemm.choose import fitted
from pykittens.kernels.gemm.config import Config, GemmShape, check
from pykittens.kernels.limits import Limits, first_that_fits

# Rows per group above which tiles of 128 rows waste less time than tiles of 64: a block with one warpgroup
# multiplies at about three quarters of the speed of one with two, and a group ends half a tile early on average.
MANY = 96


@functools.lru_cache(4096)
def pick_rows(shape: GemmShape, groups: int, limits: Limits) -> Config:
    """The configuration for groups that share the `m` rows of a shape, on a GPU of these limits."""
    found = list(candidates(shape, groups, limits))
    able = next(filter(None, (fitted(c, shape, limits) for c in found)), None)
    least = [replace(c, stages=2) for c in found]
    sizes = shape.out_bytes, shape.gated, shape.blocks
    return able or first_that_fits("grouped_gemm", least, lambda c: c.shared_bytes(*sizes), limits)


@functools.lru_cache(4096)
def pick_k(shape: GemmShape, groups: int, limits: Limits) -> Config:
    """The configuration for groups that share the `k` elements of a shape, on a GPU of these limits."""
    return pick_rows(replace(shape, m=shape.m * groups), groups, limits)


def checked(function: str, config: Config | None, shape: GemmShape) -> Config | None:
    """The configuration that a caller asked for; an ArgumentError if grouped products do not support it."""
    if config is None:
        return None
    if isinstance(config, Config):
        for word in ("cluster", "turns", "swap", "splits"):
            if getattr(config, word) != getattr(Config, word):
                raise ArgumentError(f"{function}: `config` must not have `{word}`")
    config = check(function, config, shape)
    if shape.blocks and config.pieces > 1:
        raise ArgumentError(
            f"{function}: tiles of {config.cols} columns have scales of several blocks",
            help="with `row_blocks` a tile has 128 columns, or 64, 32 or 16",
        )
    return config


def candidates(shape: GemmShape, groups: int, limits: Limits) -> Iterator[Config]:
    """The configurations for a shape, the one that should be fastest first; the last takes the least memory."""
    few = shape.m <= MANY * groups
    # Registers hold the sums of a tile, of two with a gate, and with scales of blocks also products to be scaled.
    if limits.warpgroups:
        widest = 256 // (1 + shape.gated) // (1 + shape.blocks)
    else:
        widest = 32 if shape.gated or shape.blocks else 64
    cols = min((w for w in (64, 128) if shape.n <= w <= widest), default=widest)
    if limits.warpgroups:
        rows, consumers = (64, 1) if few else (128, 2)
        sharing = max(1, min(groups, shape.m))
        tiles = sharing * -(-shape.m // (sharing * rows)) * -(-shape.n // cols)
        if cols > 128 and tiles < limits.multiprocessors:
            cols = 128  # narrower ones keep more of the multiprocessors busy
        for out_cols in (64, 32, 16):
            yield Config(rows, cols, consumers=consumers, out_cols=min(out_cols, cols))
        return
    rows, consumers = (64, 1) if few else (256, 2)
    for out_cols in (32, 16):
        alone = Config(rows, cols, depth=64, stages=4, consumers=consumers, out_cols=out_cols)
        yield replace(alone, warpgroups=False)
    yield replace(alone, rows=64, cols=min(cols, 64), consumers=1, warpgroups=False)
