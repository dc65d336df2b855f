"""Copies between tensors and stages: bytes that are expected come, and views narrower than a panel are copied."""

import ctypes
import re
import shutil
import subprocess
from importlib.resources import files

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.runtime import cubin, nvrtc
from pykittens.targets.architectures import TARGETS
from pykittens.targets.emit import emit
from pykittens.types.layouts import SharedLayout, swizzle_for
from tests.kernels_pipeline import mixed_fill, taken_over, two_fillers
from tests.running import recorded
from tests.targets.clean import spills
from tests.targets.compiling import matrix

BF16 = np.dtype(ml_dtypes.bfloat16)


@pk.kernel
def strips(x, y):
    """Tiles of 64 columns filled and emptied in strips."""
    ring = pk.pipeline(2, pk.st(bf16, 64, 64))
    tasks = pk.persistent(y.tiles(64, 64))
    with pk.producer():
        for row, col in tasks:
            with ring.fill() as t:
                for j in range(4):
                    pk.load_async(t.tiles(64, 16)[0, j], x[row, col * 4 + j])
    with pk.storer():
        for row, col in tasks:
            with ring.drain() as t:
                for j in range(2):
                    pk.store_async(y[row, col * 2 + j], t.tiles(64, 32)[0, j])


@pytest.mark.parametrize("aligned", [True, False])
def test_a_view_narrower_than_a_panel_is_copied_by_the_lanes(aligned):
    x, y = matrix(128, 128, aligned=aligned), matrix(128, 128, aligned=aligned)
    text = strips.source(x, y)
    kernel = text[text.index('extern "C"') :]
    into, out = ("start_copy", "copy_back") if aligned else ("copy_in_skewed", "copy_out_skewed")
    assert kernel.count(f"{into}<64, 16,") == 4
    assert kernel.count(f"{out}<64, 32,") == 2
    assert "expect" not in kernel
    assert ("copies_wait();" in kernel) == aligned
    # The part of a row starts at a byte of the row, and the copy swizzles it with its place in the panel.
    assert re.findall(rf"{into}<[^>]*>\(t, (\d+), 8192", kernel) == ["0", "32", "64", "96"]
    assert re.findall(rf"{out}<.*, t3, (\d+), 8192", kernel) == ["0", "64"]
    if nvrtc.available() is None:
        assert spills(strips.compile(x, y)) == []


def test_strips_are_right_in_the_emulator():
    x = np.random.default_rng(0).standard_normal((100, 200)).astype(BF16)
    y = np.full_like(x, np.nan)
    strips(x, y)
    assert (x == y).all()


@pk.kernel
def tasks_inside(x, y):
    """A stage that the copies of all tasks of the block go to."""
    ring = pk.pipeline(1, pk.st(f32, 64, 32))
    tasks = pk.persistent((2,))
    with pk.producer(), ring.fill() as t:
        for (i,) in tasks:
            pk.load_async(t.tiles(32, 32)[i], x[i, 0])
    with pk.storer(), ring.drain() as t:
        pk.store_async(y[0, 0], t)


def test_copies_in_a_loop_over_tasks_expect_their_own_bytes():
    args = [matrix(64, 32, dtype=np.dtype(np.float32)) for _ in range(2)]
    text = tasks_inside.source(*args)
    loop = text.index("for (int task")
    assert re.search(r"barrier_expect\(t_full, 4096\);\s+copy_box", text[loop:])
    assert "barrier_arrive_expect(t_full" not in text


@pk.kernel
def side_by_side(x, y, *, cols, registers):
    """Stages of three tiles, the last of which is stored."""
    tiles = {"a": (128, 64), "b": (64, cols), "c": (64, 64)}
    ring = pk.pipeline(2, **{name: pk.st(bf16, *sides) for name, sides in tiles.items()})
    (i,) = pk.grid(1)
    with pk.producer(copy_warps=8, registers=registers), ring.fill() as s:
        pk.load_async(s.a, x[0, i])
        pk.prefetch(x[1, i], rows=128, cols=64)
        pk.load_async(s.b, x[i, 0])
        pk.load_async(s.c, x[i, 0])
    with pk.consumers(1), ring.drain() as s:
        pk.store(y[0, 0], pk.load(s.c))


EVENTS = r"InFlight(?=<)|copy_in_skewed(?=<)|\bpieces\d*\.keep|barrier_arrive(?=\(a_full)"


@pytest.mark.parametrize(
    ("cols", "registers", "count"),
    [
        (64, 168, 3),  # a lane has 4, 2 and 2 pieces of the tiles
        (256, 168, 2),  # 4, 8 and 2
        (96, 168, 0),  # the pieces of the second tile are not alike
        (64, 104, 0),  # too few registers
    ],
)
def test_the_pieces_of_the_tiles_of_a_stage_are_in_flight_together(cols, registers, count):
    args = matrix(256, 512, aligned=False), matrix(64, 64)
    made = recorded(side_by_side, *args, cols=cols, registers=registers)
    kept = [f"pieces{i or ''}.keep" for i in range(count)]
    order = ["InFlight"] * count + kept + ["copy_in_skewed"] * (3 - count) + ["barrier_arrive"]
    assert re.findall(EVENTS, body(emit(made, "sm_90a").text)) == order
    # The checks of a debug program take the registers.
    debug = body(emit(made, "sm_90a", debug=True).text)
    assert re.findall(EVENTS, debug) == ["copy_in_skewed"] * 3 + ["barrier_arrive"]


@pytest.mark.parametrize("arch", ["sm_80", "sm_89"])
def test_lanes_move_pieces_where_no_engine_copies(arch):
    x, y = matrix(128, 128), matrix(128, 128)
    text = strips.source(x, y, arch=arch)
    kernel = text[text.index('extern "C"') :]
    assert kernel.count("start_copy<64, 16, 128, 32,") == 4
    assert kernel.count("copy_back<64, 32, 128, 32,") == 2
    # Each lane says when its copies have landed; nobody waits for them in between.
    assert "barrier_init(ring_full + 8 * i, 32)" in kernel
    assert kernel.count("barrier_arrive_copied(") == 1
    unaligned = strips.source(x, matrix(128, 128, aligned=False), arch=arch)
    assert "copy_out_skewed<64, 32, 128, 32, 4, unsigned short>" in unaligned
    assert "start_copy<64, 16, 128, 32," in unaligned


def test_a_group_meets_before_it_fills_memory_that_it_drained():
    text = taken_over.source(matrix(64, 256), matrix(64, 128), arch="sm_80")
    fill = text.index("barrier_wait(second_empty")
    assert "group_sync(" in text[text.index("mma_sync_bf16_f32(acc") : fill]


def test_a_stage_filled_by_pieces_and_by_stores_counts_both_arrivals():
    x, out = matrix(128, 16), matrix(128, 32)
    text = mixed_fill.source(x, out, arch="sm_80")
    # Four warps: each lane for its copies, and each warp for its stores.
    assert f"barrier_init(ring_full + 8 * i, {4 * 32 + 4})" in text
    assert text.count("barrier_arrive_copied(") - HEADER.count("barrier_arrive_copied(") == 1
    x, out = (matrix(128, n, dtype=np.dtype(np.float32)) for n in (64, 128))
    assert f"barrier_init(ring_full + 8 * i, {32 + 4})" in two_fillers.source(x, out, arch="sm_80")


@pytest.mark.skipif(
    nvrtc.available() is not None or cubin.disassembler() is None, reason="no compiler"
)
@pytest.mark.parametrize("arch", ["sm_80", "sm_89"])
def test_pieces_are_asynchronous_copies_and_wide_stores(arch):
    compiled = strips.compile(matrix(128, 128), matrix(128, 128), arch=arch)
    assert spills(compiled) == []
    for instruction in ("LDGSTS.E.BYPASS.128", "ARRIVES.LDGSTSBAR", "LDS.128", "STG.E.128"):
        assert instruction in compiled.sass, instruction


# -- the device functions on this machine ----------------------------------------------------------

HEADER = files("pykittens.targets.cuda").joinpath("sm_80.cuh").read_text()
DEVICE = files("pykittens.targets.cuda").joinpath("device.cuh").read_text()
HOST = """
#include <cassert>
#include <cstdint>
#include <cstring>
#define DEVICE static inline
#define UNROLL
typedef unsigned int u32; typedef unsigned long long u64; typedef long long i64;
struct alignas(16) uint4 { u32 x, y, z, w; };
static unsigned char* memory;
static int min(int a, int b) { return a < b ? a : b; }
static void copy_piece(u32 to, const void* from, u32 bytes) {
    assert(to % 16 == 0 && bytes <= 16 && (bytes == 0 || (uintptr_t)from % 16 == 0));
    memcpy(memory + to, from, bytes);
    memset(memory + to + bytes, 0, 16 - bytes);
}
static uint4 load_piece(u32 at) { assert(at % 16 == 0); uint4 x; memcpy(&x, memory + at, 16); return x; }
"""
ENTRY = """
extern "C" void in_{name}(
        unsigned char* shared, u32 byte, const {type}* from, i64 stride, int row, int col, int rows, int cols) {{
    memory = shared;
    for (int thread = 0; thread < {threads}; ++thread)
        start_copy<{shape}, {threads}, {type}>(0, byte, {panel}, from, stride, row, col, rows, cols, thread);
}}
extern "C" void out_{name}(
        unsigned char* shared, u32 byte, {type}* to, i64 stride, int row, int col, int rows, int cols) {{
    memory = shared;
    for (int thread = 0; thread < {threads}; ++thread)
        copy_back<{shape}, {threads}, {type}>(to, stride, row, col, rows, cols, 0, byte, {panel}, thread);
}}
"""
TYPES = {1: "unsigned char", 2: "unsigned short", 4: "u32", 8: "u64"}
# Rows, columns of the tile, bytes of an element, threads, columns of the tile it is a view of.
TILES = {
    "usual": (128, 64, 2, 32, 64),
    "wide": (16, 256, 2, 32, 256),
    "wider": (16, 256, 4, 32, 256),
    "odd": (32, 48, 2, 32, 48),
    "group": (64, 80, 4, 128, 80),
    "bytes": (16, 16, 1, 32, 16),
    "long": (16, 64, 8, 32, 64),
    "view": (32, 32, 2, 32, 128),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The device functions that move pieces, compiled for this machine."""
    if (compiler := shutil.which("g++")) is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("pieces")
    place = DEVICE[DEVICE.index("template <int SWIZZLE> DEVICE u32 shared_at") :]
    place = place[: place.index("\n}\n") + 3]
    moves = HEADER[
        HEADER.index("// What thread `thread`") : HEADER.index("// -- products of a warp")
    ]
    entries = [
        ENTRY.format(
            name=name,
            type=TYPES[size],
            threads=threads,
            shape=f"{rows}, {cols}, {swizzle_for(owner, size)}",
            panel=rows * swizzle_for(owner, size),
        )
        for name, (rows, cols, size, threads, owner) in TILES.items()
    ]
    (folder / "pieces.cpp").write_text(HOST + place + moves + "".join(entries))
    options = ["-std=c++17", "-O1", "-fwrapv", "-shared", "-fPIC", "-w"]
    command = [compiler, *options, "pieces.cpp", "-o", "pieces.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "pieces.so"))


def aligned(count, dtype):
    """Elements that start at a multiple of 16 bytes."""
    raw = np.zeros(count * dtype.itemsize + 16, np.uint8)
    start = -raw.ctypes.data % 16
    return raw[start : start + count * dtype.itemsize].view(dtype)


@pytest.mark.parametrize("name", TILES)
@pytest.mark.parametrize("place", [(0, 0), (1, 1), (-1, 0), (0, -1), (2, 3), (9, 0), (0, 9)])
def test_pieces_land_where_the_layout_says_and_come_back(library, name, place):
    rows, cols, size, _, owner = TILES[name]
    dtype, layout = np.dtype(f"u{size}"), SharedLayout(swizzle_for(owner, size), rows, size)
    height, width = 3 * rows - 5, 3 * cols - 3
    stride = -(-width // 16) * 16
    tensor = aligned(height * stride, dtype).reshape(height, stride)
    rng = np.random.default_rng(size)
    tensor[:] = rng.integers(1, 2 ** min(8 * size, 63), tensor.shape, dtype=np.uint64)
    first = (owner - cols) if owner > cols else 0  # the last columns of the owner
    byte = first * size % layout.swizzle
    shared = aligned(rows * owner * size, np.dtype(np.uint8))
    shared[:] = 0x55
    row, col = place[0] * rows, place[1] * cols
    panel = first * size // layout.swizzle * layout.panel_bytes
    view = shared[panel:]
    edges = [ctypes.c_int(x) for x in (row, col, height, width)]
    getattr(library, f"in_{name}")(
        ctypes.c_void_p(view.ctypes.data), ctypes.c_uint32(byte),
        ctypes.c_void_p(tensor.ctypes.data), ctypes.c_int64(stride), *edges,
    )  # fmt: skip
    r, c = np.indices((rows, cols))
    inside = (row + r >= 0) & (row + r < height) & (col + c >= 0) & (col + c < width)
    expected = np.zeros((rows, cols), dtype)
    expected[inside] = tensor[(row + r)[inside], (col + c)[inside]]
    offset = layout.offset(r, first + c)
    landed = shared[offset[..., None] + np.arange(size)].copy().view(dtype)[..., 0]
    assert np.array_equal(landed, expected)
    back = aligned(height * stride, dtype).reshape(height, stride)
    getattr(library, f"out_{name}")(
        ctypes.c_void_p(view.ctypes.data), ctypes.c_uint32(byte),
        ctypes.c_void_p(back.ctypes.data), ctypes.c_int64(stride), *edges,
    )  # fmt: skip
    wanted = np.zeros_like(back)
    wanted[(row + r)[inside], (col + c)[inside]] = expected[inside]
    assert np.array_equal(back, wanted)
    untouched = np.ones(shared.size, bool)
    untouched[(offset[..., None] + np.arange(size)).ravel()] = False
    assert (shared[untouched] == 0x55).all()


@pk.kernel
def windowed(x, y, start, stop, *, axis):
    ring = pk.pipeline(2, pk.st(bf16, 64, 64))
    pk.grid(1)
    with pk.producer(), ring.fill() as t:
        pk.load_async(t, x.window(axis, start, stop)[1, 0, 0])
    with pk.storer(), ring.drain() as t:
        pk.store_async(y.window(axis, start, stop)[1, 0, 0], t)


def body(source):
    return source[source.index('extern "C"') :]


@pytest.mark.parametrize("axis", [1, 2])
def test_the_engine_copies_what_no_edge_of_a_window_cuts_and_the_lanes_the_rest(axis):
    x = np.zeros((3, 128, 128), BF16)
    text = body(windowed.source(x, x.copy(), 0, 64, axis=axis))
    # A window of columns may start inside of a piece.
    into, out = ("start_copy", "copy_back") if axis == 1 else ("copy_in_skewed", "copy_out_skewed")
    assert text.count("copy_box(") == text.count(f"{into}<64, 64") == 1
    assert text.count("store_box(") == text.count(f"{out}<64, 64") == 1
    assert text.count("|| ") == 2  # the upper edge cuts nothing where it is the tensor's own
    assert "&& lane == 0" not in text  # all lanes run the roles
    assert "stores_wait_read();" in text


@pk.kernel
def from_columns(x, y, *, unit, more):
    ring = pk.pipeline(2, pk.st(bf16, 64, 64))
    (part,) = pk.grid(3)
    a, b = (t.window(1, part * unit + more, t.cols) for t in (x, y))
    with pk.producer(), ring.fill() as t:
        pk.load_async(t, a[0, 1])
    with pk.storer(), ring.drain() as t:
        pk.store_async(b[0, 1], t)


@pytest.mark.parametrize(
    ("unit", "more", "by_lanes"),
    [(80, 0, False), (8, 16, False), (80, 4, True), (20, 0, True), (80, -16, True)],
)
def test_the_engine_copies_columns_that_start_at_multiples_of_16_bytes(unit, more, by_lanes):
    x = np.arange(64 * 300, dtype=np.float32).reshape(64, 300).astype(BF16)
    x = x[:, :296]
    y = np.zeros_like(x)
    x, y = (np.ascontiguousarray(t) for t in (x, y))
    from_columns(x, y, unit=unit, more=more)
    for part in range(3):
        at = part * unit + more + 64
        assert np.array_equal(y[:, at : at + 64], x[:, at : at + 64])
    text = body(from_columns.source(x, y, unit=unit, more=more))
    assert text.count("copy_box(") == text.count("store_box(") == 1
    assert ("copy_in_skewed<" in text) == by_lanes


@pk.kernel
def from_a_row(x, y, start, stop, *, inside):
    ring = pk.pipeline(2, pk.st(bf16, 64, 64))
    pk.grid(1)
    low = pk.maximum(start, 0) if inside else start
    a, b = (t.window(0, low, t.rows if stop is None else stop) for t in (x, y))
    with pk.producer():
        for i in pk.range(pk.cdiv(x.rows - start, 64)):
            with ring.fill() as t:
                pk.load_async(t, a[i, 0])
    with pk.storer():
        for i in pk.range(pk.cdiv(x.rows - start, 64)):
            with ring.drain() as t:
                pk.store_async(b[i, 0], t)


@pytest.mark.parametrize("start", [-5, 0, 1, 64, 100, 150])
def test_the_engine_copies_every_tile_of_a_window_that_ends_with_its_tensor(start):
    x = np.arange(100 * 64, dtype=np.float32).reshape(100, 64).astype(BF16)
    for inside, stop in ((True, None), (False, None), (True, 100)):
        text = body(from_a_row.source(x, x.copy(), start, stop, inside=inside))
        assert ("start_copy" in text) is (not inside or stop is not None)
    y = np.zeros_like(x)
    from_a_row(x, y, start, None, inside=True)
    first = max(start, 0)
    assert np.array_equal(y[first:], x[first:])
    assert not y[:first].any()


def test_an_engine_sees_what_lanes_have_copied():
    """Copies of lanes land, and then a fence orders them before the engine that stores the stage."""
    x = np.zeros((3, 128, 128), BF16)
    text = body(windowed.source(x, x.copy(), 0, 64, axis=1))
    order = re.findall(r"(start_copy|copies_wait|fence_async|__syncwarp|barrier_arrive)[(<]", text)
    start = order.index("start_copy")
    wanted = ["start_copy", "copies_wait", "fence_async", "__syncwarp", "barrier_arrive"]
    assert order[start : start + 5] == wanted


def test_a_window_of_a_leading_axis_is_copied_by_the_engine_alone():
    x = np.zeros((3, 128, 128), BF16)
    text = body(windowed.source(x, x.copy(), 0, 2, axis=0))
    assert "copy_in" not in text
    assert "start_copy" not in text
    assert "t_full, 0, 0, start + 1);" in text


@pk.kernel
def of_a_plane(x, y, h, *, axis):
    """Tile (1, 0) of a matrix of a tensor of rank 4, whose rows run along another axis than the last but one."""
    ring = pk.pipeline(2, pk.st(bf16, 64, 32))
    pk.grid(1)
    index = (0,) * axis + (slice(None),) + (0,) * (1 - axis) + (h, slice(None))
    with pk.producer(), ring.fill() as t:
        pk.load_async(t, x[index][1, 0])
    with pk.storer(), ring.drain() as t:
        pk.store_async(y[index][1, 0], t)


@pytest.mark.parametrize(("axis", "place"), [(0, "0, 64, h, 0"), (1, "0, 64, h, 0")])
def test_the_engine_copies_rows_along_any_axis(axis, place):
    x = np.zeros((70, 80, 3, 32), BF16)
    source = of_a_plane.compile(x, x.copy(), 2, axis=axis).source
    text = body(source.text)
    assert "copy_in" not in text
    assert "start_copy" not in text
    assert "copy_out" not in text
    assert text.count("copy_box(") == text.count("store_box(") == 1
    assert f"{place});" in text
    assert [m.axes(4) for m in source.maps] == [[3, axis, 2, 1 - axis]] * 2


def test_maps_of_one_tensor_with_other_rows_are_others():
    @pk.kernel
    def kernel(x):
        ring = pk.pipeline(3, pk.st(bf16, 16, 32))
        pk.grid(1)
        with pk.producer():
            for tile in (x[:, 1][0, 0], x[1, 0, 0], x.at(1)[0, 0]):
                with ring.fill() as t:
                    pk.load_async(t, tile)
        with pk.storer():
            for _ in range(3):
                with ring.drain():
                    pass

    maps = kernel.emitted(np.zeros((16, 16, 32), BF16)).maps
    assert [(m.tensor, m.row_axis) for m in maps] == [("x", 0), ("x", 1)]


@pk.kernel
def of_columns(x, y, *, op):
    ring = pk.pipeline(1, t=pk.st(f32, 16, 16), v=pk.sv(f32, 16))
    pk.grid(1)
    with pk.producer(), ring.fill() as s:
        pk.load_async(s.t, x[:, :, 1])
        pk.load_async(s.v, x[:, 0, 2])
    with pk.storer(), ring.drain() as s:
        pk.store_async(y[:, :, 3], s.t, op=op)
        pk.store_async(y[:, 0, 4], s.v, op=op)


@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize(
    ("op", "function"), [(None, "store_element("), ("add", "combine_element<Add>(")]
)
def test_the_lanes_copy_columns_that_are_no_neighbours(arch, op, function):
    x = np.zeros((16, 16, 8), np.float32)
    text = body(of_columns.compile(x, x.copy(), op=op, arch=arch).source.text)
    assert "_box(" not in text
    assert text.count("load_element(") == text.count(function) == 2


@pk.kernel
def vectors(x, y, *, length, op):
    ring = pk.pipeline(2, pk.sv(bf16, length))
    pk.grid(1)
    with pk.producer(), ring.fill() as v:
        pk.load_async(v, x[1])
    with pk.storer(), ring.drain() as v:
        pk.store_async(y, v, op=op)


@pytest.mark.parametrize(
    ("length", "boxes", "width"), [(48, 1, 48), (1024, 4, 256), (320, 5, 64), (384, 2, 192)]
)
def test_a_vector_is_copied_in_boxes_that_start_at_lines(length, boxes, width):
    x = np.zeros((2, length), BF16)
    source = vectors.compile(x, x[0].copy(), length=length, op=None).source
    assert body(source.text).count("copy_box(") == boxes
    assert {(m.rows, m.cols, m.swizzle) for m in source.maps} == {(1, width, 16)}


def test_a_vector_of_no_equal_boxes_is_copied_by_the_lanes():
    x = np.zeros((2, 272), BF16)  # 544 bytes: four lines and a part
    text = body(vectors.source(x, x[0].copy(), length=272, op=None))
    assert "start_copy<1, 272, 16," in text
    assert "copy_back<1, 272, 16," in text


@pytest.mark.parametrize(("op", "function"), [("add", "add_box("), ("max", "combine_out<Max, ")])
def test_the_engine_combines_what_it_keeps_a_nan_of_and_the_lanes_the_rest(op, function):
    x = np.zeros((2, 64), BF16)
    assert function in body(vectors.source(x, x[0].copy(), length=64, op=op))
