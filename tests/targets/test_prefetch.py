"""Prefetches in programs: their instructions, their lanes, and their place before the wait for earlier launches."""

from __future__ import annotations

import re
import shutil
import subprocess

import numpy as np
import pytest

import pykittens as pk
from pykittens.runtime import cubin, nvrtc
from pykittens.targets.architectures import TARGETS
from pykittens.targets.cuda.prefetch import FUNCTION
from pykittens.targets.cuda.program import emit
from tests.cases.prefetch import ahead, by_roles
from tests.running import recorded
from tests.targets.clean import frame, spills
from tests.targets.compiling import matrix

F32 = np.dtype(np.float32)
compiles = pytest.mark.skipif(
    nvrtc.available() is not None or cubin.disassembler() is None, reason="no compiler"
)


@compiles
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
def test_a_prefetch_is_one_instruction_for_each_line(arch):
    args = matrix(96, 160), matrix(96, 160)
    made = ahead.compile(*args, rows=64, cols=64, arch=arch)
    assert spills(made) == []
    assert frame(made) == 0
    # Rows of 128 bytes may lie in two lines: two instructions for each lane of two warps, and one for a vector. All of
    # the tile x[-1, 0] is outside. Hopper's copy engine takes both tiles.
    boxes = made.sass.count("UTMAPF.L2")
    assert boxes == (2 if arch == "sm_90a" else 0)
    assert made.sass.count("CCTL.E.PF2 ") == (1 if boxes else 2 + 1)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_warp_shares_the_lines_of_a_producer(arch):
    text = emit(recorded(by_roles, matrix(128, 192), matrix(128, 192)), TARGETS[arch]).program
    producer, consumer = re.split(r"// consumers", text)
    # One lane starts the copies and prefetches of the engine.
    by_engine = arch == "sm_90a"
    assert ("prefetch_tile<64, 64, 32>" in producer) != by_engine
    assert ("prefetch_box(x_map, (k + 2) * 64, i1 * 64);" in producer) == by_engine
    assert ("&& lane == 0) {  // producer" in producer) == by_engine
    assert "prefetch_tile<64, 200, 128>" in consumer


def test_warps_that_share_copies_share_prefetches():
    x = matrix(128, 193)[:, 1:]  # the copy engine cannot reach it
    text = emit(recorded(by_roles, x, matrix(128, 192)), TARGETS["sm_90a"]).program
    assert "its 4 warps share the copies" in text
    assert "prefetch_tile<64, 64, 128>" in text


@pk.kernel
def weights_ahead(W, x, y):
    """y = W x: each warp prefetches its rows of W before it waits for the launch that may still write x."""
    pk.overlap()
    (i,) = pk.grid(W.rows // 4)
    with pk.warps(4) as w:
        pk.prefetch(W[4 * i + w], cols=256)
        a, b = pk.load(W[4 * i + w], cols=256), pk.load(x, cols=256)
        pk.store(y[4 * i + w], pk.sum(a * b))


@pk.kernel
def weights_ready(W, x, y):
    """The same by tiles; what is not ready is prefetched, too."""
    pk.overlap(ready=W)
    (i,) = pk.grid(W.rows // 16)
    with pk.warps(1):
        pk.prefetch(W[i, 0], rows=16, cols=256)
        pk.prefetch(x, cols=256)
        a = pk.load(W[i, 0], rows=16, cols=256)
        b = pk.load(x, cols=256, spread=pk.per_column)
        pk.store(y[i], pk.row_sum(a * b))


@pytest.mark.parametrize("kernel", [weights_ahead, weights_ready])
def test_prefetches_do_not_wait_for_earlier_launches(kernel):
    args = matrix(64, 256, dtype=F32), np.ones(256, F32), np.zeros(64, F32)
    kernel(*args)
    assert np.allclose(args[2], args[0].sum(axis=1), rtol=1e-3, atol=1e-3)
    text = emit(recorded(kernel, *args), TARGETS["sm_90a"]).program
    wait = text.index("earlier_launches_wait();")
    assert text.count("earlier_launches_wait();") == 1
    assert text.rindex("prefetch_tile<") < wait < text.index("// pk.store(")
    assert (text.index("pk.load(W") < wait) == (kernel is weights_ready)
    assert "earlier_launches_wait" not in emit(recorded(kernel, *args), TARGETS["sm_80"]).program


@pk.kernel
def only_ahead(W):
    """Brings W nearer for the launches after it."""
    pk.overlap()
    (i,) = pk.grid(W.rows // 16)
    with pk.warps(1):
        pk.prefetch(W[i, 0], rows=16, cols=256)
    with pk.warps(1):
        pk.prefetch(W[i, 1], rows=16, cols=256)


def test_a_launch_of_prefetches_alone_ends_after_earlier_launches():
    text = emit(recorded(only_ahead, matrix(64, 512, dtype=F32)), TARGETS["sm_90a"]).program
    head, first, second = text.split("{  // warps")
    assert "earlier_launches_wait();" not in head
    for role in (first, second):
        assert role.index("prefetch_box(") < role.index("earlier_launches_wait();")


@compiles
@pytest.mark.parametrize("kernel", [weights_ahead, weights_ready])
def test_the_compiler_leaves_prefetches_before_the_wait(kernel):
    args = matrix(64, 256, dtype=F32), np.ones(256, F32), np.zeros(64, F32)
    sass = kernel.compile(*args, arch="sm_90a").sass
    assert "CCTL.E.PF2" in sass
    assert sass.rindex("CCTL.E.PF2") < sass.index("ACQBULK")


# -- the device function on this machine -----------------------------------------------------------

HOST = """
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <set>
#define DEVICE static inline
typedef unsigned int u32; typedef unsigned long long u64; typedef long long i64;
using std::max; using std::min;
static std::multiset<u64> named;
static u64 __cvta_generic_to_global(const void* at) { return (u64)(uintptr_t)at; }
"""
# Every place of a tile around matrices whose rows start anywhere in a line: the lines of the elements of the tile that
# are inside are named once for each row, by an address of one of these elements.
MAIN = """
template <int ROWS, int COLS, int THREADS, class T> void check() {
    const i64 stride = 131;
    const int rows = 5, cols = 129;
    alignas(128) static T memory[8 * 131];
    for (int skew = 0; skew < 70; ++skew)
        for (int row = -ROWS; row <= rows; ++row)
            for (int col = -COLS - 1; col <= cols + 1; col += col % 9 == 0 ? 1 : 4) {
                std::multiset<u64> lines, found;
                std::set<u64> inside;
                for (int r = max(row, 0); r < min(row + ROWS, rows); ++r) {
                    std::set<u64> of_row;
                    for (int c = max(col, 0); c < min(col + COLS, cols); ++c) {
                        const u64 at = (u64)(memory + skew + r * stride + c);
                        of_row.insert(at / 128), inside.insert(at);
                    }
                    lines.insert(of_row.begin(), of_row.end());
                }
                named.clear();
                for (int thread = 0; thread < THREADS; ++thread)
                    prefetch_tile<ROWS, COLS, THREADS>(memory + skew, stride, row, col, rows, cols, thread);
                for (u64 at : named) {
                    found.insert(at / 128);
                    if (inside.count(at / sizeof(T) * sizeof(T)) == 0) { printf("outside"); return; }
                }
                if (found != lines) { printf("other lines: %d %d %d", skew, row, col); return; }
            }
}
int main() {
    check<1, 1, 32, unsigned char>(), check<3, 64, 32, unsigned short>(), check<2, 65, 64, unsigned short>();
    check<7, 17, 32, double>(), check<1, 200, 128, float>(), check<2, 129, 32, unsigned char>();
    check<4, 1, 32, double>(), check<9, 33, 96, unsigned short>();
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_each_line_of_a_tile_is_named_once_and_nothing_outside(tmp_path):
    instruction = re.search(r'asm volatile\(.*"l"\((.*)\)\);', FUNCTION)
    assert instruction is not None
    text = FUNCTION.replace(instruction[0], f"named.insert({instruction[1]});")
    text = text.replace('_Pragma("unroll 4")', "")
    (tmp_path / "lines.cpp").write_text(HOST + text + MAIN)
    flags = ["-std=c++17", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover"]
    subprocess.run(["g++", *flags, "lines.cpp", "-o", "lines"], cwd=tmp_path, check=True)
    run = subprocess.run([tmp_path / "lines"], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
