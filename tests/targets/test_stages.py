"""A pipeline that no role uses takes no barriers and no shared memory."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
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


def filled(copy_at: int | None) -> str:
    """The CUDA text of fills that wait for a flag, with a copy before (0) or after it (1), or without one."""

    @pk.kernel
    def kernel(x: Any, y: Any, flags: Any) -> None:
        (i,) = pk.grid(4)
        ring = pk.pipeline(2, pk.sv(pk.bf16, 64))
        with pk.producer():
            for k in pk.range(8):
                with ring.fill() as t:
                    if copy_at == 0:
                        pk.load_async(t, x[k])
                    pk.wait(flags[k], i)
                    if copy_at == 1:
                        pk.load_async(t, x[k])
        with pk.storer():
            for k in pk.range(8):
                with ring.drain() as t:
                    pk.store_async(y[k], t)

    return kernel.emitted(
        matrix(64, 64), matrix(64, 64), np.zeros(8, np.int32), arch="sm_90a"
    ).program


@pytest.mark.parametrize("copy_at", [None, 0, 1])
def test_a_stage_is_full_only_after_the_waits_of_its_fill(copy_at):
    text = filled(copy_at)
    waits = text.index("flag_wait(")
    if copy_at == 1:  # the copy is issued after the wait, and completes the barrier
        assert text.index("barrier_arrive_expect(") < waits < text.index("copy_box(")
    else:
        assert "barrier_arrive_expect(" not in text
        assert waits < text.index("barrier_arrive(")


def test_a_ring_of_vectors_wastes_little_shared_memory():
    @pk.kernel
    def kernel(x: Any, y: Any) -> None:
        pk.grid(1)
        vectors = pk.pipeline(3, a=pk.sv(pk.bf16, 16), b=pk.sv(pk.bf16, 80))
        tiles = pk.pipeline(1, pk.st(pk.bf16, 64, 64))
        with pk.producer():
            with vectors.fill() as v:
                pk.load_async(v.a, x[0])
                pk.load_async(v.b, x[1])
            with tiles.fill() as t:
                pk.load_async(t, x[0, 0])
        with pk.storer():
            with vectors.drain() as v:
                pk.store_async(y[0], v.a)
            with tiles.drain() as t:
                pk.store_async(y[0, 0], t)

    assert emitted(kernel, "sm_90a").shared_bytes == TILE_BYTES + 3 * (128 + 256) + 4 * BARRIERS
