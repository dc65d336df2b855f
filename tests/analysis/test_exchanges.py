"""Exchanges through shared memory: the addresses of the emitted code, and the moves the compiler makes of them."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

import pykittens as pk
from pykittens.analysis.accesses import NOWHERE
from pykittens.analysis.banks import calls, cycles, fewest, shared_moves
from pykittens.runtime import cubin, nvrtc
from pykittens.types.dtypes import bf16, bool_, e4m3, f32, int64
from tests import lanes
from tests.running import recorded
from tests.touched import touched

needs_lanes = pytest.mark.skipif(lanes.COMPILER is None, reason="g++ is not installed")
needs_machine_code = pytest.mark.skipif(
    nvrtc.available() is not None or cubin.disassembler() is None, reason="no compiler"
)


def of_tile(function, rows=64, cols=64):
    @pk.kernel(warps=4)
    def move(x, y):
        pk.grid(1)
        pk.store(y[0], function(pk.load(x[0], rows=rows, cols=cols)))

    return move


def of_vector(function, length, spread=pk.plain):
    @pk.kernel(warps=4)
    def move(x, y):
        pk.grid(1)
        pk.store(y[0], function(pk.load(x[0], cols=length, spread=spread)))

    return move


KERNELS = {
    "transpose": of_tile(pk.transpose),
    "transpose_wide": of_tile(pk.transpose, 64, 128),
    "row": of_tile(lambda t: pk.row(t, 0)),
    "plain_to_row": of_vector(lambda v: pk.spread(v, pk.per_row), 256),
    "plain_to_column": of_vector(lambda v: pk.spread(v, pk.per_column), 256),
    "row_to_plain": of_vector(lambda v: pk.spread(v, pk.plain), 256, pk.per_row),
    "row_to_column": of_vector(lambda v: pk.spread(v, pk.per_column), 256, pk.per_row),
    "column_to_row": of_vector(lambda v: pk.spread(v, pk.per_row), 64, pk.per_column),
    "part": of_vector(lambda v: v[64:192], 1024),
    "part_anywhere": of_vector(lambda v: v[61:189], 1024),
    "part_in_place": of_vector(lambda v: v[1024:2048], 4096),
    "concat": of_vector(lambda v: pk.concat(v, v, 0), 256),
}
REDUCTIONS = {
    "col_sum": of_tile(pk.col_sum),
    "col_argmax": of_tile(pk.col_argmax),
}


def arrays(name, dtype):
    tiles = name.startswith(("transpose", "col_")) or name == "row"
    shape = (64, 128 if name == "transpose_wide" else 64) if tiles else (1, 4096)
    out = np.zeros((128, 4096), np.int32 if name == "col_argmax" else dtype.numpy)
    return np.zeros(shape, dtype.numpy), out


def told(kernel, *args):
    """The requests through scratch memory."""
    return [
        request
        for role, call in calls(recorded(kernel, *args))
        for move in shared_moves(call, role.warps)
        for request in move.requests
    ]


@needs_lanes
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", [f32, pytest.param(bf16, marks=pytest.mark.slow)], ids=str)
def test_elements_go_through_the_places_that_are_counted(tmp_path, name, dtype):
    """The emitted code moves one by one what the compiler joins: a request of more elements is so many of them."""
    args, expected, found = arrays(name, dtype), Counter(), Counter()
    for request in told(KERNELS[name], *args):
        for k in range(0, request.size, dtype.bytes):
            offsets = np.where(request.addresses == NOWHERE, -1, request.addresses + k)
            expected.update(map(tuple, offsets.tolist()))
    for (memory, _, bytes_, offsets), count in touched(tmp_path, KERNELS[name], *args).items():
        if memory == "shared":
            assert bytes_ == dtype.bytes
            found[offsets] += count
    assert found == expected


@needs_lanes
@pytest.mark.parametrize("dtype", [bf16, f32], ids=str)
def test_partial_results_go_through_the_places_that_are_counted(tmp_path, dtype):
    """The lanes of a column take turns to write, so which moves are one instruction is not seen in their order."""
    kernel, args = REDUCTIONS["col_sum"], arrays("col_sum", dtype)
    expected, found = Counter(), Counter()
    for request in told(kernel, *args):
        for k in range(0, request.size, 4):
            expected.update((request.addresses[request.addresses != NOWHERE] + k).tolist())
    for (memory, _, bytes_, offsets), count in touched(tmp_path, kernel, *args).items():
        if memory == "shared":
            assert bytes_ == 4
            for offset in offsets:
                found[offset] += count * (offset >= 0)
    assert +found == expected


SIZES = {"8": 1, "16": 2, "": 4, "64": 8, "128": 16}


def check_machine_code(kernel, args):
    """Of each size, a warp runs as many moves as the machine code has: it is all unrolled."""
    expected = Counter()
    for request in told(kernel, *args):
        expected[request.size] += len(request.addresses)
    sass = kernel.compile(*args, arch="sm_90a").sass
    found = Counter()
    for size in re.findall(r"\b(?:LDS|STS)(?:\.U?(\d+))?(?=[ .])", sass):
        found[SIZES[size]] += 1
    assert {size: 4 * count for size, count in found.items()} == +expected


@needs_machine_code
@pytest.mark.parametrize("dtype", [bf16, f32, e4m3, int64, bool_], ids=str)
@pytest.mark.parametrize("name", ["transpose", "plain_to_row", "plain_to_column", "part"])
def test_the_compiler_joins_the_neighbours_that_are_counted_as_one_move(name, dtype):
    check_machine_code(KERNELS[name], arrays(name, dtype))


@needs_machine_code
@pytest.mark.parametrize("dtype", [bf16, f32], ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_the_compiler_joins_partial_results_that_are_counted_as_one_move(name, dtype):
    check_machine_code(REDUCTIONS[name], arrays(name, dtype))


def test_a_tile_of_f32_is_turned_with_conflicts_where_it_is_written_alone():
    """Rows are 68 words apart. Four lanes read rows two apart, eight banks on: all differ. Four rows of eight words are
    written at once, four banks on: each bank has two.
    """
    writes, *reads = told(KERNELS["transpose"], *arrays("transpose", f32))
    assert sum(map(cycles, reads)) == sum(map(fewest, reads)) == 4 * 32
    assert fewest(writes) == 4 * 16 * 2
    assert cycles(writes) == 2 * fewest(writes)


def test_a_part_that_stays_in_its_lanes_moves_nothing():
    assert told(KERNELS["part_in_place"], *arrays("part_in_place", f32)) == []
