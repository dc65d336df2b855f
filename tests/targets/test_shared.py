"""Parts of shared vectors and rows of shared tiles in CUDA C++: their addresses, and loads without bounds checks."""

from __future__ import annotations

import re

import numpy as np
import pytest

import pykittens as pk

F32 = np.dtype(np.float32)


def text(kernel, *args, arch="sm_90a", **constants):
    """The program of a kernel without comments."""
    program = kernel.emitted(*args, arch=arch, **constants).program
    return "\n".join(line.partition("//")[0].strip() for line in program.splitlines())


@pk.kernel
def parts(x, y, *, part: int, spread):
    ring = pk.pipeline(2, v=pk.sv(x.dtype, 256), t=pk.sv(x.dtype, 16))
    pk.grid(1)
    with pk.producer():
        for i in pk.range(4):
            with ring.fill() as s:
                pk.load_async(s.v, x[i])
                pk.load_async(s.t, x[i])
    with pk.consumers(2) as w:
        for i in pk.range(4):
            with ring.drain() as s:
                pk.store(y[i, w], pk.load(s.v.parts(part)[w], spread=spread))


@pytest.mark.parametrize("spread", [pk.per_row, pk.per_column])
def test_a_part_spread_over_the_lanes_is_one_address_and_loads_without_checks(spread):
    x, y = np.zeros((4, 256), F32), np.zeros((4, 256), F32)
    lines = text(parts, x, y, part=128, spread=spread).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("const u32 at ="))
    position = (
        "row_position<4>(0, warp, lane)" if spread is pk.per_row else "column_position(0, lane)"
    )
    assert re.fullmatch(
        rf"const u32 at = \w+ \+ w \* 512 \+ {re.escape(position)} \* 4;", lines[at]
    )
    assert lines[at + 1].startswith("UNROLL for (int i = 0; i < ")
    assert ("fetched<float>(at + " if spread is pk.per_row else "load_pair(at + ") in lines[at + 1]
    assert not any("load_chunk" in line for line in lines)


@pk.kernel
def elements(x, y, i):
    vector = pk.shared(pk.sv(x.dtype, 64))
    pk.grid(1)
    pk.store(vector, pk.load(x, cols=64))
    pk.sync()
    pk.store(y[0], pk.load(vector.parts(1)[0]))
    pk.store(y[1], pk.load(vector.parts(1)[5]))
    pk.store(y[2], pk.load(vector.parts(16)[i].parts(1)[i]))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_an_element_is_one_load_that_every_lane_does(arch):
    x, y = np.zeros(64, F32), np.zeros(3, F32)
    found = re.findall(r"= fetched<float>\((.*)\);", text(elements, x, y, 1, arch=arch))
    assert found == ["vector", "vector + 20", "vector + i1 * 64 + i1 * 4"]


@pytest.mark.parametrize(("part", "whole"), [(8, "true"), (6, "true"), (3, "false")])
def test_a_part_is_moved_in_chunks_where_all_parts_start_at_one(part, whole):
    @pk.kernel(warps=1)
    def kernel(x, y, i):
        row = pk.shared(pk.sv(pk.f32, 192))
        pk.grid(1)
        pk.store(row.parts(part)[i], pk.load(x, cols=part))
        pk.sync()
        pk.store(y, pk.load(row.parts(part)[i]))

    program = text(kernel, np.zeros(192, F32), np.zeros(192, F32), 0)
    shared = [line for line in program.splitlines() if "shared +" in line]
    assert len(shared) == 2
    assert all(f"_chunk<2, {whole}>" in line for line in shared)


def through_rows(dtype, rows, cols, warps=1, part=None):
    """The lines of a program that store and load a row, of a tile or of its parts of `part` columns."""

    @pk.kernel(warps=warps)
    def kernel(x, y, i):
        tile = pk.shared(pk.st(dtype, rows, cols))
        pk.grid(1)
        row = tile.row(i) if part is None else tile.tiles(16, part)[1, i].row(3)
        pk.store(row, pk.load(x, cols=part or cols))
        pk.sync()
        pk.store(y, pk.load(row))

    arrays = [np.zeros(part or cols, dtype.numpy) for _ in range(2)]
    return [line for line in text(kernel, *arrays, 0).splitlines() if "shared_at" in line]


@pytest.mark.parametrize(
    ("dtype", "cols", "warps", "step"),
    [
        (pk.bf16, 64, 1, 2),
        (pk.bf16, 256, 1, 8),
        (pk.bf16, 256, 4, 2),
        (pk.f32, 256, 1, 4),
        (pk.int64, 256, 1, 2),
        (pk.e4m3, 256, 1, 8),
    ],
    ids=str,
)
def test_a_row_is_moved_in_chunks_of_at_most_16_bytes(dtype, cols, warps, step):
    store, load = through_rows(dtype, 16, cols, warps)
    assert f"store_chunk<{step}, true>" in store
    assert f"load_chunk<{step}, true>" in load
    assert f"at < {cols} ? {step} : 0" in store


def test_the_address_of_a_row_is_that_of_its_tile_and_its_swizzle():
    (store, _) = through_rows(pk.bf16, 32, 128)
    assert "shared + (tile + shared_at<128>(i1, at * 2, 4096) - smem)" in store
    (store, _) = through_rows(pk.bf16, 32, 64, part=16)
    # The part (1, i) starts 16 rows of 128 bytes and i columns of 32 bytes after its tile.
    assert re.search(r"shared_at<128>\(3, at \* 2 \+ i1 \* 32( % 128)?, 4096\)", store), store
    assert "2048" in store
