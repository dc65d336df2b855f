"""Vectors whose elements carry a tag, through memory: the bits that the tag replaces are cut off."""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens.types.dtypes import f32
from pykittens.types.tiles import Spread
from tests.cases.core import Array, Case

WARPS = 4


def _through_memory(length: int, spread: Spread, tag: int, whole: bool = False) -> Case:
    """A block hands its vector to the next, whose columns start elsewhere; the last hands on to nobody.

    The last elements of a vector are outside of the tensor, unless all are promised to be inside.
    """
    cols = length if whole else length - 3

    @pk.kernel
    def through_memory(x, links, y):
        (block,) = pk.grid(3)
        v = pk.load(x, cols=length, spread=spread)
        if block > 0:
            source = links[block - 1, 0]
            v = v + pk.load_tagged(source, tag + block, cols=length, spread=spread, whole=whole)
        pk.store_tagged(links[block, 0], v, tag + block + 1, whole=whole)
        pk.store(y[block, 0], v)

    def reference(x: Array) -> tuple[Array, Array]:
        sums = np.zeros((3, len(x)), np.float32)
        sums[0] = x
        for i in (1, 2):
            sums[i] = x + (sums[i - 1].view(np.int32) & ~15).view(np.float32)
        tags = (tag + 1 + np.arange(3, dtype=np.int32))[:, None] & 15
        return (sums.view(np.int32) & ~15 | tags).view(np.float32), sums

    return Case(
        f"tagged-{str(spread).replace(' ', '_')}-{length}-{tag}{'-whole' * whole}",
        ("store_tagged", "load_tagged"),
        through_memory,
        lambda rng: [rng.standard_normal(cols).astype(np.float32)],
        (((3, cols), f32), ((3, cols), f32)),
        reference,
        before=0,
    )


def _cases() -> Any:
    for length, spread in ((64, Spread.PLAIN), (200, Spread.PLAIN), (4096, Spread.PLAIN)):
        yield _through_memory(length, spread, 0)
        yield _through_memory(length, spread, 5, whole=True)
    yield _through_memory(64 * WARPS, Spread.PER_ROW, 12)
    yield _through_memory(128, Spread.PER_COLUMN, -3)
    yield _through_memory(128, Spread.PER_COLUMN, 9, whole=True)


CASES = list(_cases())
