"""Semaphores, turns, flags and explicit waits in CUDA C++: the instructions of a group, and memory offsets."""

from __future__ import annotations

import itertools
import re

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from tests.targets.clean import spills
from tests.targets.compiling import matrix

BF16 = np.dtype(ml_dtypes.bfloat16)


def program(kernel, *args, arch="sm_90a", **constants):
    kernel.compile(*args, arch=arch, **constants)
    text = kernel.source(*args, arch=arch, **constants)
    return text[text.index('extern "C"') :]


@pk.kernel
def ring(x, y):
    rows = pk.pipeline(1, pk.st(bf16, 64, 64))
    tiles, vector = pk.shared(pk.st(bf16, 64, 64), count=2), pk.shared(pk.sv(f32, 48))
    full, empty = pk.semaphore(1, count=2), pk.semaphore(3)
    pk.grid(1)
    with pk.producer():
        for i in pk.range(x.rows):
            empty.wait(i + 1)
            full[i % 2].expect(tiles[i % 2])
            pk.load_async(tiles[i % 2], x[i, 0], signal=full[i % 2])
            with rows.fill() as t:
                pk.load_async(t, x[i, 0])
    with pk.warps(3) as w:
        pk.store(vector, pk.zeros(f32, 48))
        for i in pk.range(x.rows):
            full[i % 2].wait(i // 2)
            with rows.drain():
                pass
            pk.store(y[i, w], pk.load(vector))
            empty.arrive()


def test_memory_outside_pipelines_lies_behind_their_stages_and_before_their_barriers():
    text = program(ring, matrix(128, 64), matrix(2, 144, dtype=np.dtype(np.float32)))
    found = re.findall(r"u32 (\w+) = smem(?: \+ (\d+))?", text)
    at = {name: int(offset or 0) for name, offset in found}
    assert at == {"rows": 0, "tiles": 8192, "vector": 24576, "full": 25600, "empty": 25632}
    assert "rows_full = smem + 25648" in text
    assert "for (int i = 0; i < 2; ++i) semaphore_init(full + 16 * i, 1);" in text
    assert "for (int i = 0; i < 1; ++i) semaphore_init(empty + 16 * i, 3);" in text


def test_a_producer_of_one_lane_waits_for_nobody_and_a_warp_for_its_lanes():
    text = program(ring, matrix(128, 64), matrix(2, 144, dtype=np.dtype(np.float32)))
    producer, warps = text[text.index("// producer") :].split("// warps")
    assert "lane == 0) {  // producer" in text
    assert "__syncwarp" not in producer
    assert "group_sync" not in producer
    assert re.search(r"^ +semaphore_expect\(t\d+, 8192\);\n", producer, re.M)
    assert re.search(r"__syncwarp\(\);\n +if \(lane == 0\) \{\n +barrier_arrive\(empty\);", warps)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_copy_by_lanes_brings_its_bytes_when_all_have_stored(arch):
    aligned = arch == "sm_80"
    x = matrix(128, 64, aligned=aligned)
    text = program(ring, x, matrix(2, 144, dtype=np.dtype(np.float32)), arch=arch)
    word = r"start_copy|copies_wait" if aligned else r"copy_in_skewed|fence_async"
    order = re.findall(
        rf"({word}|__syncwarp|semaphore_land)[<(]", text[text.index("// producer") :]
    )
    wanted = (
        ["start_copy", "copies_wait", "__syncwarp", "semaphore_land"]
        if aligned
        else ["copy_in_skewed", "fence_async", "__syncwarp", "semaphore_land"]
    )
    start = order.index(wanted[0])
    assert order[start : start + 4] == wanted


def test_a_group_of_several_warps_arrives_once_when_all_are_there():
    @pk.kernel
    def kernel(y, flags):
        full = pk.semaphore(2)
        pk.grid(1)
        with pk.warpgroups(2):
            full.arrive()
            full.wait(0)
            pk.sync()
            pk.signal(flags[3], 2, op="add")
            pk.wait(flags[4], 1)
            pk.store_wait(2, read=True)

    text = program(kernel, np.zeros(8, np.float32), np.zeros(8, np.int32))
    meets = r"group_sync\(\w+ \+ 1, 128\);\n +"
    assert re.search(meets + r"if \(thread == 0\) \{\n +barrier_arrive\(full\);\n", text)
    assert "barrier_wait(full, 0);" in text
    one = r"if \(thread == 0\) \{\n +"
    assert re.search(r"fence_engines\(\);\n +" + meets + one + r"flag_add\(flags \+ 3, 2\);", text)
    assert re.search(one + r"flag_wait\(flags \+ 4, 1\);\n +\}\n +" + meets + "fence_engines", text)
    assert "stores_wait" not in text  # the group starts none


@pk.kernel
def turns(y):
    pk.grid(1)
    with pk.consumers(3) as w:
        for i in pk.range(y.rows):
            with pk.in_turn():
                pk.store(y[i, w], pk.zeros(f32, 8))


def test_each_warp_hands_the_turn_on_and_the_first_group_begins():
    text = program(turns, np.zeros((2, 24), np.float32))
    assert "for (int i = 0; i < 3; ++i) barrier_init(turns1 + 8 * i, 4);" in text
    assert "u32 turns1_phase = w == 0;" in text
    assert re.search(
        r"barrier_wait\(turns1 \+ 8 \* w, turns1_phase\);\n +turns1_phase \^= 1;", text
    )
    assert "if (lane == 0) barrier_arrive(turns1 + 8 * ((w + 1) % 3));" in text


@pk.kernel
def products(A, C):
    tile, full = pk.shared(pk.st(bf16, 64, 64)), pk.semaphore(1)
    pk.grid(1)
    full.expect(tile)
    pk.load_async(tile, A[0], signal=full)
    full.wait(0)
    early = pk.mma_AB(tile, tile, managed=False)
    late = pk.mma_AB(tile, tile, managed=False)
    pk.mma_wait(1)
    pk.store(C[0], early)
    pk.mma_wait()
    pk.store(C[1], late)


def test_a_wait_by_hand_makes_those_results_final_that_it_covers():
    text = program(products, matrix(64, 64), np.zeros((128, 64), np.float32))
    found = re.findall(r"products_wait<\d>\(\);|pin\(\w+\);|store_chunk<2, true>\(\w+,", text)
    # A tile is stored by one of two loops: whole, or cut by a side of the matrix.
    assert [text for text, _ in itertools.groupby(found)] == [
        "products_wait<1>();",
        "pin(early);",
        "store_chunk<2, true>(early,",
        "products_wait<0>();",
        "pin(early);",
        "pin(late);",
        "store_chunk<2, true>(late,",
    ]
    assert spills(products.compile(matrix(64, 64), np.zeros((128, 64), np.float32))) == []
    assert "products_wait" not in program(
        products, matrix(64, 64), np.zeros((128, 64), np.float32), arch="sm_80"
    )


def test_a_producer_that_loads_registers_runs_with_all_its_lanes():
    @pk.kernel
    def kernel(x, y):
        tile, full = pk.shared(pk.sv(f32, 64)), pk.semaphore(1)
        pk.grid(1)
        with pk.producer():
            pk.store(tile, pk.load(x[0], cols=64))
            full.arrive()
        with pk.warps(1):
            full.wait(0)
            pk.store(y[0], pk.load(tile))

    text = program(kernel, np.zeros((1, 64), np.float32), np.zeros((1, 64), np.float32))
    assert "if (warp_of_block == 0) {  // producer" in text
    assert re.search(r"__syncwarp\(\);\n +if \(lane == 0\) \{\n +barrier_arrive\(full\);", text)


def test_more_shared_memory_than_there_is_is_told_by_what_takes_it():
    @pk.kernel
    def kernel(y):
        tiles = pk.shared(pk.st(f32, 256, 256), count=2)
        pk.grid(1)
        pk.store(y[0], pk.load(tiles[1].tiles(64, 64)[0, 0]))

    with pytest.raises(pk.KernelError, match="524288 bytes of shared memory") as caught:
        kernel.compile(np.zeros((64, 64), np.float32))
    assert caught.value.operands == {"tiles": "2 x st<f32, 256x256>"}
