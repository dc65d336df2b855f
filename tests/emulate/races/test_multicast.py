"""With multicast=True, all blocks of a cluster name one tile."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.finding import Kind
from tests.races import faults, findings, tile


@pk.kernel(cluster=2)
def product(A, B, C, *, of: str):
    ring = pk.pipeline(2, a=pk.st(bf16, 64, 64), b=pk.st(bf16, 64, 64))
    row, col = pk.grid(*C.tiles(64, 64))
    steps = pk.cdiv(A.cols, 64)
    with pk.producer():
        for k in pk.range(steps):
            with ring.fill() as s:
                pk.load_async(s.a, A[row, k], multicast="A" in of)
                pk.load_async(s.b, B[col, k], multicast="B" in of)
    with pk.consumers(1):
        acc = pk.zeros(f32, 64, 64)
        for _ in pk.range(steps):
            with ring.drain() as s:
                acc = pk.mma_ABt(s.a, s.b, acc)
        pk.store(C[row, col], acc)


def matrices():
    return (
        tile(128, 192, dtype=bf16),
        tile(128, 192, dtype=bf16),
        np.full((128, 128), np.nan, np.float32),
    )


@pytest.mark.parametrize("of", ["", "A"])
def test_a_tile_of_the_whole_cluster_is_right(of):
    assert faults(product, *matrices(), of=of) == set()


@pytest.mark.parametrize("of", ["B", "AB"])
def test_a_tile_of_one_block_is_an_error(of):
    (found,) = findings(product, *matrices(), of=of)
    assert found.kind is Kind.MULTICAST
    assert [str(s) for s in found.steps] == [
        "block (0, 0), producer copies its part of `B` at [row 0, column 0]",
        "block (0, 1), producer copies its part of `B` at [row 64, column 0]",
    ]
    assert {s.loc.text.strip() for s in found.steps} == {
        'pk.load_async(s.b, B[col, k], multicast="B" in of)'
    }
    assert "omit multicast=True" in found.help
