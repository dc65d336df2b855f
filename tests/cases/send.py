"""Tiles that blocks of clusters send to one another, and arrivals that say that their places are free."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.types.dtypes import DType, bf16, f16, f32, int32
from tests.cases.by_hand import whole
from tests.cases.core import Array, Case
from tests.kernels_send import all_to_all, product, ring

OPS = ("send", "expect", "arrive", "wait_phase", "item")


def _case(name: str, kernel: Any, dtype: DType, rows: int, width: int, reference: Any) -> Case:
    shape = (rows, width)

    def inputs(rng: np.random.Generator) -> list[Array]:
        return [whole(rng, shape, dtype)]

    return Case(f"send-{name}-{dtype}", OPS, kernel, inputs, ((shape, dtype),), reference)


def turned(cluster: int, rows: int) -> Any:
    """What a ring of blocks stores: each the tiles of the block before it in its cluster."""

    def reference(x: Array) -> tuple[Array]:
        return (np.roll(x.reshape(-1, cluster, rows, x.shape[1]), 1, 1).reshape(x.shape),)

    return reference


def summed(cluster: int, rows: int) -> Any:
    """What blocks store that all send to all: the sums of their clusters."""

    def reference(x: Array) -> tuple[Array]:
        tiles = x.astype(np.float64).reshape(-1, cluster, rows, x.shape[1])
        return (np.broadcast_to(tiles.sum(1, keepdims=True), tiles.shape).reshape(x.shape),)

    return reference


def _product() -> Case:
    def reference(a: Array, b: Array) -> tuple[Array]:
        left, right = (x.astype(np.float64).reshape(2, 64, 64) for x in (a, b))
        return ((left @ right[::-1].transpose(0, 2, 1)).reshape(128, 64),)

    return Case(
        "send-product-bf16",
        OPS[:1],
        product,
        lambda rng: [whole(rng, (128, 64), bf16) for _ in range(2)],
        (((128, 64), f32),),
        reference,
    )


def _cases() -> Any:
    for dtype, n, rows, cols in (
        (f32, 2, 64, 64),
        (bf16, 4, 64, 128),
        (f16, 8, 64, 48),
        (int32, 4, 128, 16),
    ):
        name = f"ring{n}-{rows}x{cols}"
        reference = turned(n, rows)
        yield _case(name, ring(n, dtype, rows, cols), dtype, 2 * n * rows, 5 * cols - 3, reference)
    for dtype, n in ((f32, 2), (bf16, 4), (f32, 8)):
        name, kernel = f"sum{n}", all_to_all(n, dtype)
        yield _case(name, kernel, dtype, 2 * n * 64, 200, summed(n, 64))
    yield _product()


CASES = list(_cases())
