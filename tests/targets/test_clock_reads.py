"""Programs with clock reads: every word at which roles meet is timed; other programs have no clock reads."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens.analysis.timeline.clocks import HEAD
from pykittens.runtime import nvrtc
from pykittens.runtime.arguments import check
from pykittens.runtime.compiled import compile_kernel
from pykittens.targets.architectures import TARGETS
from pykittens.targets.cuda.program import text_of
from tests.clocked import WIDTH, emitted, ring, ring_arrays, words
from tests.mega.programs import Cell, added, cells
from tests.runtime.c_programs import build
from tests.runtime.c_programs import needs_compiler as needs_gcc
from tests.targets.compiling import CASES, matrix

needs_compiler = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
F32 = np.dtype(np.float32)


def words_arrays() -> tuple[Any, ...]:
    x, y = (np.zeros((2, n * WIDTH), np.float32) for n in (2, 3))
    return x, y, np.zeros(2, np.int32)


def program_of_cells() -> tuple[Any, tuple[Any, ...]]:
    """The kernel of a small program, and its arguments."""
    made = added(cells(2), [Cell("add", 2, 0, 1), Cell("double", 3, 2), Cell("total", 4, 1)])
    x = np.zeros((5, 64), np.float32)
    return made.kernel(), made.arguments(made.scheduled(x=x), x=x)


def without_reads(program: str) -> str:
    """A program without its clock reads and their parameters."""
    text = re.sub(r",\s*u64\* clock_records,\s*int most_records,\s*int most_blocks", "", program)
    text = re.sub(r"^ *(Clocks clocks;|clocks\.\w+\([^;]*\);)\n", "", text, flags=re.M)
    return re.sub(r"clocks\.read\(\d+\); ", "", text)


def test_the_text_of_a_program_with_clock_reads_is_the_reviewed_one(golden):
    text = emitted(ring, *ring_arrays()).program
    text = text[text.index('extern "C" __global__') :]
    golden("cuda/clocks-ring.cu", re.sub(r"#line .*\n", "", text))


@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize("kernel", ["ring", "words", "program", "matmul"])
def test_clock_reads_are_all_that_they_add(kernel, arch):
    case = CASES["matmul_pipeline"]
    made, args = {
        "ring": (ring, ring_arrays()),
        "words": (words, words_arrays()),
        "program": program_of_cells(),
        "matmul": (case.kernel, case.args),
    }[kernel]
    timed = emitted(made, *args, arch=arch)
    plain = emitted(made, *args, arch=arch, clocks=False)
    # Without the option nothing is left of it, and the threads of a group are all that a read may need.
    assert plain.reads is None
    assert not re.search(r"clocks\.\w+\(|Clocks|clock_records|clock64", plain.text)
    thread = r"^ *const int (?:thread|warp) = .*\n"
    bare = [
        re.sub(thread, "", text, flags=re.M)
        for text in (without_reads(timed.program), plain.program)
    ]
    assert bare[0] == bare[1]
    assert timed.text.replace(timed.program, "").startswith(
        plain.text.replace(plain.program, "")[:-1]
    )


def test_every_word_at_which_roles_meet_has_a_place():
    reads = emitted(words, *words_arrays()).reads
    assert reads is not None
    assert {(r.part, r.text) for r in reads if r.text} == {
        ("wait", "until it is its turn"),
        ("signal", "passes the turn"),
        ("wait", "until {stage} is free"),
        ("wait", "until {stage} is full"),
        ("wait", "until a phase of full is complete"),
        ("signal", "signals full"),
        ("wait", "until flags is set"),
        ("signal", "signals flags"),
        ("store", "until its stores have read"),
        ("store", "until its stores have written"),
    }
    assert {(r.seen, r.subject) for r in reads if r.seen} == {
        (seen, "outputs") for seen in ("taken", "filled", "drained", "returned")
    }
    assert all(r.loc is not None for r in reads if r.part == "wait")


def test_copies_in_a_role_that_computes_have_a_place():
    @pk.kernel
    def copied(x, y):
        tile, full = pk.shared(pk.sv(pk.f32, WIDTH)), pk.semaphore(1)
        (block,) = pk.grid(2)
        full.expect(tile)
        pk.load_async(tile, x[block, 0], signal=full)
        full.wait(0)
        pk.store_async(y[block, 0], tile)
        pk.store_wait()

    x, y, _ = words_arrays()
    reads = emitted(copied, x, y).reads
    assert reads is not None
    found = {(r.part, r.text) for r in reads if r.text.startswith("starts")}
    assert found == {("fetch", "starts load_async"), ("store", "starts store_async")}
    assert {r.part for r in reads if not r.text} == {"compute", "end"}


def test_the_branch_of_each_kind_of_instruction_has_a_start_and_an_end():
    kernel, args = program_of_cells()
    reads = emitted(kernel, *args).reads
    assert reads is not None
    kinds = {(r.subject, r.seen) for r in reads if r.seen in ("begins", "ends")}
    assert kinds == {(k, s) for k in ("add", "double", "total") for s in ("begins", "ends")}


def test_every_wait_is_between_two_reads():
    for kernel, args in ((words, words_arrays()), program_of_cells()):
        code = [
            line.strip()
            for line in emitted(kernel, *args).program.splitlines()
            if not line.lstrip().startswith(("#line", "//"))
        ]
        for at, line in enumerate(code):
            if re.match(r"(barrier|flag|stores)_wait", line):
                before = code[at - 1] if "{" not in code[at - 1] else code[at - 2]
                assert before.startswith("clocks.read("), (before, line)


def test_names_of_a_kernel_do_not_clash_with_those_of_clock_reads():
    @pk.kernel
    def clash(clock_records, most_records, clocks):
        (cycles,) = pk.grid(clock_records.rows)
        next = pk.load(clock_records[cycles], cols=64)
        pk.store(most_records[cycles], next + pk.load(clocks[cycles], cols=64))

    args = [matrix(8, 64, dtype=F32) for _ in range(3)]
    assert "u64* clock_records," in emitted(clash, *args).program
    if nvrtc.available() is None:
        kernel = clash.record(check(clash.parameters, args, {}))
        compile_kernel(kernel, "sm_90a", clocks=True)


@needs_compiler
@pytest.mark.parametrize("arch", TARGETS)
def test_programs_with_clock_reads_compile_without_spills(arch):
    for kernel, args in ((ring, ring_arrays()), (words, words_arrays()), program_of_cells()):
        recorded = kernel.record(check(kernel.parameters, args, {}))
        compiled = compile_kernel(recorded, arch, clocks=True)
        assert compiled.resources.spills == ()
        assert "%clock64" in compiled.ptx
        assert "%globaltimer" in compiled.ptx
        assert "%clock64" not in compile_kernel(recorded, arch).ptx


# Two groups of each of three blocks, the last of which records nothing; a thread beside each that leads.
HARNESS = """
#include <cstdint>
#include <cstdio>
typedef uint64_t u64; typedef uint32_t u32;
#define DEVICE inline
#define NO_UNROLL
static struct { u32 x; } blockIdx;
static u64 ns = 1000, clk = (1ull << 48) - 20;
DEVICE u64 nanoseconds() { return ns += 8; }
DEVICE u64 cycles() { return clk += 16; }
CLOCKS
int main() {
    const int most = 4, groups = 2;
    static u64 records[3 * groups * (Clocks::HEAD + most)];
    for (blockIdx.x = 0; blockIdx.x < 3; ++blockIdx.x)
        for (int group = 0; group < groups; ++group)
            for (int leads = 0; leads < 2; ++leads) {
                Clocks clocks;
                clocks.begin(records, most, 2, group, groups, leads);
                for (int i = 0; i < 1 + 3 * group; ++i) clocks.read(i);
                clocks.finish(9, most);
            }
    fwrite(records, 8, sizeof(records) / 8, stdout);
}
"""


@needs_gcc
def test_the_device_writes_the_records_that_the_host_reads(tmp_path):
    text = text_of("clock.cuh")
    text = text[text.index("// Both at the start") :]
    (tmp_path / "clock.cpp").write_text(HARNESS.replace("CLOCKS", text))
    build("-std=c++17", "-o", tmp_path / "clock", tmp_path / "clock.cpp", compiler="g++")
    done = subprocess.run([tmp_path / "clock"], capture_output=True, check=True)
    found = np.frombuffer(done.stdout, np.uint64).reshape(3, 2, HEAD + 4)
    assert not found[2].any()
    assert found[:2, :, 4].tolist() == [[2, 5], [2, 5]]
    places = (found[:2, :, HEAD:] >> np.uint64(48)).tolist()
    assert places == [[[0, 9, 0, 0], [0, 1, 2, 3]]] * 2
    reads = found[:2, :, HEAD:] & np.uint64((1 << 48) - 1)
    assert ((reads[:, 1, 1:] - reads[:, 1, :-1]) & np.uint64((1 << 48) - 1) == 16).all()
    assert (found[:2, :, 2] > found[:2, :, 0]).all()
    assert (found[:2, :, 3] > found[:2, :, 1]).all()
