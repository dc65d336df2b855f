"""A pipeline that no role uses takes no barriers and no shared memory."""

from __future__ import annotations

import re
from typing import Any

import pytest

import pykittens as pk
from pykittens.targets.architectures import TARGETS
from tests.targets.compiling import matrix

TILE_BYTES = 64 * 64 * 2
BARRIERS = 16  # bytes of the full and the empty barrier of a stage


def copied(first: int, last: int, reuse: bool = False) -> Any:
    """A copy through one pipeline, beside `first` pipelines before it and `last` after it that no role uses."""

    @pk.kernel
    def kernel(x: Any, y: Any) -> None:
        unused = [pk.pipeline(3, pk.st(pk.bf16, 64, 64)) for _ in range(first)]
        ring = pk.pipeline(2, pk.st(pk.bf16, 64, 64), reuse=unused[0] if reuse else None)
        for _ in range(last):
            pk.pipeline(3, pk.st(pk.bf16, 64, 64), reuse=ring)
        tasks = pk.persistent(x.tiles(64, 64))
        with pk.producer():
            for row, col in tasks:
                with ring.fill() as tile:
                    pk.load_async(tile, x[row, col])
        with pk.storer():
            for row, col in tasks:
                with ring.drain() as tile:
                    pk.store_async(y[row, col], tile)

    return kernel


def emitted(kernel: Any, arch: str) -> Any:
    return kernel.emitted(matrix(64, 64), matrix(64, 64), arch=arch)


@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize(("first", "last"), [(1, 0), (0, 1), (2, 2)])
def test_an_unused_pipeline_takes_no_barriers_and_no_memory(arch, first, last):
    program = emitted(copied(first, last), arch)
    assert re.findall(r"barrier_init\(\w+ \+ 8 \* i, (\d+)\)", program.program) == (
        re.findall(r"barrier_init\(\w+ \+ 8 \* i, (\d+)\)", emitted(copied(0, 0), arch).program)
    )
    assert program.shared_bytes == emitted(copied(0, 0), arch).shared_bytes


def test_the_memory_of_an_unused_pipeline_is_kept_for_the_pipeline_that_takes_it_over():
    program = emitted(copied(1, 0, reuse=True), "sm_90a")
    assert program.shared_bytes == 3 * TILE_BYTES + 2 * BARRIERS
    assert program.program.count("barrier_init(") == 2


def test_a_kernel_without_a_used_pipeline_initialises_nothing():
    @pk.kernel
    def kernel(x, y):
        pk.pipeline(2, pk.st(pk.bf16, 64, 64))
        (row,) = pk.grid(1)
        pk.store(y[row, 0], pk.load(x[row, 0], rows=64, cols=64))

    program = emitted(kernel, "sm_90a")
    assert program.shared_bytes == 0
    assert "barrier_init" not in program.program
