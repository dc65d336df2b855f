"""Stores to other blocks in CUDA C++: addresses, widths, waits, and the checks of debug programs."""

from __future__ import annotations

import re

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import UnsupportedError
from pykittens.runtime import nvrtc
from pykittens.runtime.arguments import check
from pykittens.runtime.compiled import compile_kernel
from pykittens.targets.emit import emit
from pykittens.types.dtypes import bf16, f16, f32, int32
from tests.clocked import emitted
from tests.kernels_send import all_to_all, ring
from tests.targets.clean import spills

needs_compiler = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))


def program(kernel, dtype=f32, cols=200, **options):
    x = np.zeros((512, cols), dtype.numpy)
    recorded = kernel.record(check(kernel.parameters, (x, x.copy()), {}))
    return emit(recorded, "sm_90a", **options)


def test_a_lane_sends_its_pairs_to_the_place_of_another_block():
    text = program(ring(4)).program
    (send,) = re.findall(r"UNROLL for .* send\((.*)\);", text)
    assert send.endswith("__float_as_uint(t[i]), __float_as_uint(t[i + 1]), there")
    assert re.search(
        r"const u32 there = in_block\(t\d+, floor_mod\(\(rank1 \+ 1\), 4\)\);", text
    ), text
    assert re.search(
        r"const u32 at_row = in_block\(t\d+ \+ .*, floor_mod\(\(rank1 \+ 1\), 4\)\)", text
    ), text
    assert re.search(r"semaphore_arrive_at\(t\d+, floor_mod\(\(rank1 \+ 3\), 4\)\);", text), text


def test_only_waits_for_what_other_blocks_signal_are_of_the_cluster():
    @pk.kernel(cluster=2)
    def kernel(x, y):
        own, place = pk.shared(pk.st(f32, 64, 64)), pk.shared(pk.st(f32, 64, 64))
        copied, full = pk.semaphore(1), pk.semaphore(1, count=2)
        (rank,) = pk.grid(2)
        copied.expect(own)
        pk.load_async(own, x[rank, 0], signal=copied)
        copied.wait(0)
        full[1].expect(place)
        pk.send(place, pk.load(own), block=1 - rank, signal=full[1])
        full[1].wait(0)
        pk.store(y[rank, 0], pk.load(place))

    text = program(kernel, cols=64).program
    assert "barrier_wait(copied, 0);" in text
    assert len(re.findall(r"barrier_wait_of_cluster\(t\d+, 0\);", text)) == 1


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "word"), [(f32, "STAS.64"), (bf16, "STAS "), (f16, "STAS "), (int32, "STAS.64")]
)
def test_pairs_are_sent_in_one_instruction_without_spills(dtype, word):
    x = np.zeros((512, 200), dtype.numpy)
    for kernel in (ring(4, dtype), all_to_all(4, dtype)):
        made = kernel.compile(x, x.copy(), arch="sm_90a")
        assert spills(made) == []
        sent = [line for line in made.sass.splitlines() if "STAS" in line]
        assert sent
        assert all(word in line for line in sent)


@needs_compiler
def test_programs_for_debugging_check_the_block_and_programs_with_clocks_compile():
    x = np.zeros((512, 200), np.float32)

    @pk.kernel(cluster=4)
    def kernel(x, y, block):
        place, full = pk.shared(pk.st(f32, 64, 64)), pk.semaphore(1)
        pk.grid(4)
        full.expect(place)
        pk.send(place, pk.load(x[0], rows=64, cols=64), block=block, signal=full)
        full.wait(0)
        full.arrive(block=block)

    recorded = kernel.record(check(kernel.parameters, (x, x.copy(), 1), {}))
    source = emit(recorded, "sm_90a", debug=True)
    texts = [s.text for s in source.sites or ()]
    assert texts.count("block {0} is outside the 4 of a cluster") == 2
    assert "if (!(block >= 0 && block < 4)) debug.stop" in source.program
    compile_kernel(recorded, "sm_90a", debug=True)
    made = emitted(ring(4), x, x.copy())
    kernel = ring(4)
    recorded = kernel.record(check(kernel.parameters, (x, x.copy()), {}))
    compile_kernel(recorded, "sm_90a", clocks=True)
    reads = [r.text for r in made.reads or ()]
    assert "starts send" in reads
    assert "signals free" in reads
    assert "until a phase of full is complete" in reads


@pytest.mark.parametrize("arch", ["sm_80", "sm_89"])
def test_other_gpus_have_no_clusters(arch):
    x = np.zeros((512, 200), np.float32)
    kernel = ring(4)
    with pytest.raises(UnsupportedError, match=f"{arch} has no clusters of 4 blocks"):
        kernel.source(x, x.copy(), arch=arch)
