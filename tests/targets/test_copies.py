"""Copies between tensors and stages: bytes that are expected come, and views narrower than a panel are copied."""

import re

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.runtime import cubin, nvrtc
from pykittens.targets.architectures import TARGETS
from pykittens.targets.emit import emit
from tests.kernels_pipeline import mixed_fill, taken_over, two_fillers
from tests.running import recorded
from tests.targets.clean import spills
from tests.targets.compiling import matrix

BF16 = np.dtype(ml_dtypes.bfloat16)


def body(source):
    return source[source.index('extern "C"') :]


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
    # Each lane says when its copies have landed; rows that are not aligned may start at multiples of 4 or 8 bytes.
    assert kernel.count("barrier_arrive_copied(") == 1
    assert kernel.count("start_narrow<64, 16,") == (0 if aligned else 4)
    assert "fence_async" not in kernel.partition("__syncthreads")[2]  # no engine reads the stage
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
    assert body(text).count("barrier_arrive_copied(") == 1
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


@pk.kernel
def windowed(x, y, start, stop, *, axis):
    ring = pk.pipeline(2, pk.st(bf16, 64, 64))
    pk.grid(1)
    with pk.producer(), ring.fill() as t:
        pk.load_async(t, x.window(axis, start, stop)[1, 0, 0])
    with pk.storer(), ring.drain() as t:
        pk.store_async(y.window(axis, start, stop)[1, 0, 0], t)


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
    """Copies of lanes arrive, and then a fence orders them before the engine that stores the stage."""
    x = np.zeros((3, 128, 128), BF16)
    text = body(windowed.source(x, x.copy(), 0, 64, axis=1))
    order = re.findall(r"(start_copy|barrier_\w+|fence_async|__syncwarp)[(<]", text)
    start = order.index("start_copy")
    wanted = [
        "barrier_arrive_copied",
        "__syncwarp",
        "barrier_arrive",
        "barrier_wait",
        "fence_async",
    ]
    assert order[start + 1 : start + 6] == wanted


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
