"""Rows at every address: what the device functions read and write on the CPU, byte by byte, and the emitted code."""

import ctypes
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from pykittens.types.layouts import SharedLayout, swizzle_for
from tests import lanes, touched
from tests.tiers import halved

needs_compiler = pytest.mark.skipif(lanes.COMPILER is None, reason="g++ is not installed")

# Each access to the watched memory counts for its bytes.
HOOKS = """
typedef unsigned long long u64;
static unsigned char *low, *high;
static int *reads, *writes;
extern "C" {
void watch(unsigned char* from, unsigned char* end, int* read, int* written) {
    low = from, high = end, reads = read, writes = written;
}
static void keep(const void* at, u64 bytes, bool writing) {
    const unsigned char* const first = (const unsigned char*)at;
    if (first + bytes <= low || first >= high) return;
    for (u64 i = 0; i < bytes; ++i) ++(writing ? writes : reads)[first + i - low];
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
#define HOOKED(N) \\
    void __tsan_read##N(void* at) { keep(at, N, false); } \\
    void __tsan_write##N(void* at) { keep(at, N, true); }
HOOKED(1) HOOKED(2) HOOKED(4) HOOKED(8) HOOKED(16)
void __tsan_read_range(void* at, u64 bytes) { keep(at, bytes, false); }
void __tsan_write_range(void* at, u64 bytes) { keep(at, bytes, true); }
}
"""
HEADERS = "".join(
    files("pykittens.targets.cuda").joinpath(name).read_text()
    for name in ("device.cuh", "skewed.cuh", "sm_80.cuh", "fills.cuh")
)
MEMORY = {1: "unsigned char", 2: "unsigned short", 4: "float", 8: "i64"}
COPIED = {1: "unsigned char", 2: "unsigned short", 4: "u32", 8: "u64"}
REGISTER = {1: "u32", 2: "u32", 4: "float", 8: "i64"}
LOADED = """
static void loaded{one_row}_{name}(
        const {type}* matrix, i64 stride, int row, int col, int rows, int cols, {register}* out) {{
    {register} x[{count}];
    load_skewed<{chunk}, {threads}, {one_row}>(
        x, matrix, stride, row, col, rows, cols, {length}, ({type})77, threadIdx.x);
    for (int i = 0; i < {count}; ++i) out[threadIdx.x * {count} + i] = x[i];
}}
"""
STORED = """
static void stored_{name}({type}* matrix, i64 stride, int row, int col, int rows, int cols, const {register}* in) {{
    {register} x[{count}];
    for (int i = 0; i < {count}; ++i) x[i] = in[threadIdx.x * {count} + i];
    store_skewed<{chunk}, {threads}>(x, matrix, stride, row, col, rows, cols, {length}, threadIdx.x);
}}
"""
TILE = """
static void in_{name}(
        const {type}* matrix, i64 stride, int row, int col, int rows, int cols, unsigned byte, unsigned char* out) {{
    copy_in_skewed<{shape}, {threads}, {most}>(0, byte, {panel}, matrix, stride, row, col, rows, cols, threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0) std::memcpy(out, shared, {bytes});
}}
static void out_{name}(
        {type}* matrix, i64 stride, int row, int col, int rows, int cols, unsigned byte, const unsigned char* in) {{
    if (threadIdx.x == 0) std::memcpy(shared, in, {bytes});
    __syncthreads();
    copy_out_skewed<{shape}, {threads}, {most}>(matrix, stride, row, col, rows, cols, 0, byte, {panel}, threadIdx.x);
}}
"""
TOGETHER = """
static void both_{name}(
        const {type}* matrix, i64 stride, int row, int col, int rows, int cols, unsigned byte, unsigned char* out) {{
    InFlight<{shape}, {threads}, {type}> first(0, byte, {panel}, matrix, stride, row, col, rows, cols, threadIdx.x);
    InFlight<{shape}, {threads}, {type}> second(
        {bytes}, byte, {panel}, matrix, stride, row + 1, col - 1, rows, cols, threadIdx.x);
    first.keep(); second.keep();
    __syncthreads();
    if (threadIdx.x == 0) std::memcpy(out, shared, 2 * {bytes});
}}
"""
START = """
static void start_{function}(void** args) {{ call({function}, args); }}
extern "C" int run_{function}(void** args) {{ return run(start_{function}, 1, {threads}, args, 0); }}
"""
# Bytes of an element, elements of a chunk, chunks of a lane, threads, elements of the vector.
VECTORS = {
    "bytes": (1, 8, 2, 32, 500),
    "few_bytes": (1, 4, 1, 64, 256),
    "halves": (2, 8, 2, 32, 512),
    "halves_past_two_chunks": (2, 8, 3, 32, 524),
    "halves_that_end_in_two_lanes": (2, 8, 3, 32, 515),
    "three_halves": (2, 2, 1, 32, 3),
    "halves_of_four_warps": (2, 8, 2, 128, 2000),
    "pairs": (2, 2, 1, 32, 64),
    "few_halves": (2, 4, 1, 64, 250),
    "floats": (4, 8, 1, 64, 512),
    "many_floats": (4, 8, 5, 32, 1280),
    "one_float": (4, 2, 1, 32, 1),
    "few_floats": (4, 2, 1, 32, 60),
    "longs": (8, 8, 3, 32, 768),
    "few_longs": (8, 2, 1, 128, 256),
}
# Rows and columns of the tile, bytes of an element, threads, columns of the tile it is a view of, pieces in flight.
TILES = {
    "usual": (32, 64, 2, 32, 64, 4),
    "four_warps": (64, 64, 2, 128, 64, 4),
    "odd": (16, 48, 2, 32, 48, 2),
    "bytes": (16, 48, 1, 32, 48, 4),
    "one_piece": (16, 8, 2, 64, 8, 1),
    "words": (8, 80, 4, 64, 80, 4),
    "long": (16, 16, 8, 32, 16, 4),
    "view": (8, 32, 2, 32, 128, 4),
    "vector": (1, 272, 2, 32, 272, 4),
    "two_panels": (32, 128, 2, 128, 128, 8),
    "half_a_panel": (96, 32, 2, 128, 32, 8),
    "bytes_of_four_warps": (32, 128, 1, 128, 128, 2),
    "words_of_four_warps": (48, 32, 4, 128, 32, 8),
    "longs_of_four_warps": (32, 16, 8, 128, 16, 4),
    "eight_warps": (128, 64, 2, 256, 128, 8),
    "sixteen_warps": (64, 64, 2, 512, 64, 4),
    "bytes_of_eight_warps": (64, 64, 1, 256, 64, 4),
    "six_pieces": (64, 48, 2, 128, 48, 4),
    "uneven_batches": (72, 96, 2, 128, 96, 3),
    "idle_lanes": (64, 40, 2, 128, 40, 4),
    "two_turns": (24, 160, 2, 128, 160, 4),
    "wide": (64, 256, 2, 128, 256, 2),
    "bytes_in_turns": (40, 144, 1, 64, 144, 4),
    "fewer_rows_than_lanes": (8, 32, 4, 256, 32, 4),
}
# Those whose pieces are alike, so that those of several tiles may be in flight.
ALIKE = (
    "four_warps", "one_piece", "view", "two_panels", "half_a_panel", "bytes_of_four_warps", "words_of_four_warps",
    "longs_of_four_warps", "eight_warps", "sixteen_warps", "bytes_of_eight_warps",
)  # fmt: skip
GUARD = 64  # bytes before and after a matrix


def compiled(folder: Path, functions: dict[str, tuple[str, int]]) -> ctypes.CDLL:
    """Functions that a block of so many threads runs, each with its text."""
    program = "".join(text for text, _ in functions.values())
    starts = "".join(START.format(function=n, threads=t) for n, (_, t) in functions.items())
    host = (Path(lanes.__file__).parent / "lanes.h").read_text(encoding="utf-8")
    text = "\n".join([host, lanes.needed(HEADERS, program), program, starts])
    return touched.compiled(folder, text, HOOKS)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    functions = {}
    for name, (size, chunk, chunks, threads, length) in VECTORS.items():
        register = REGISTER[size]
        count = chunk * chunks * size // (4 if register != "i64" else 8)
        parts = dict(
            name=name, type=MEMORY[size], register=register, count=count, chunk=chunk,
            threads=threads, length=length,
        )  # fmt: skip
        for one_row in (0, 1):
            functions[f"loaded{one_row}_{name}"] = LOADED.format(one_row=one_row, **parts), threads
        functions[f"stored_{name}"] = STORED.format(**parts), threads
    for name, (rows, cols, size, threads, owner, most) in TILES.items():
        swizzle = swizzle_for(owner, size)
        parts = dict(
            name=name, type=COPIED[size], shape=f"{rows}, {cols}, {swizzle}", threads=threads,
            most=most, panel=rows * swizzle, bytes=rows * owner * size,
        )  # fmt: skip
        functions[f"in_{name}"] = TILE.format(**parts), threads
        functions[f"out_{name}"] = "", threads
        if name in ALIKE:
            functions[f"both_{name}"] = TOGETHER.format(**parts), threads
    return compiled(tmp_path_factory.mktemp("skewed"), functions)


class Watched:
    """A matrix at a skew of a granule, between guards, whose bytes count their accesses."""

    def __init__(self, library, skew, rows, cols, stride, dtype):
        self.library, size = library, dtype.itemsize
        self.span = ((rows - 1) * stride + cols) * size
        raw = np.random.default_rng(skew).integers(0, 256, self.span + 2 * GUARD + 32, np.uint8)
        start = GUARD + (skew - raw.ctypes.data - GUARD) % 16
        self.bytes, self.start = raw, start
        self.before = raw.copy()
        self.matrix = np.lib.stride_tricks.as_strided(
            raw[start : start + self.span].view(dtype), (rows, cols), (stride * size, size)
        )
        self.reads, self.writes = (np.zeros(raw.size, np.int32) for _ in range(2))

    def run(self, function, *args):
        first = self.bytes.ctypes.data
        pointers = [ctypes.c_void_p(a) for a in (first, first + self.bytes.size)]
        counts = [ctypes.c_void_p(a.ctypes.data) for a in (self.reads, self.writes)]
        self.library.watch(*pointers, *counts)
        slots = (ctypes.c_void_p * len(args))(*(ctypes.addressof(a) for a in args))
        assert not getattr(self.library, f"run_{function}")(slots)
        outside = np.ones(self.bytes.size, bool)
        outside[self.start : self.start + self.span] = False
        assert not self.reads[outside].any()
        assert not self.writes[outside].any()

    def place(self, row, cols):
        """The bytes of some columns of a row."""
        size, stride = self.matrix.itemsize, self.matrix.strides[0]
        first = self.start + row * stride + cols.start * size
        return slice(first, first + len(cols) * size)


def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


def places(size, length):
    """Skews, rows and columns of the matrix, padding of its rows, and row and column of the vector."""
    for skew in range(0, 16, size):
        for cols in (1, 7, 16, length // 2 + 3, length, length + 1, 2 * length + 5):
            for row, col in (
                (0, 0),
                (1, 0),
                (2, 0),
                (1, length),
                (0, -length // 2),
                (3, 0),
                (-1, 0),
            ):
                yield skew, 3, cols, skew // size % 3 * (cols % 3), row, col


@needs_compiler
@pytest.mark.parametrize(("name", "one_row"), halved([*VECTORS], [0, 1]))
def test_a_vector_is_loaded_at_every_skew_and_nothing_outside_the_matrix(library, name, one_row):
    size, chunk, chunks, threads, length = VECTORS[name]
    dtype = np.dtype(np.float32 if size == 4 else f"u{size}")
    position = (
        np.arange(chunks)[None, :, None] * threads + np.arange(threads)[:, None, None]
    ) * chunk
    position = (position + np.arange(chunk)).reshape(threads, -1)
    for skew, rows, cols, padding, row, col in places(size, length):
        at = Watched(library, skew, rows, cols, cols + padding, dtype)
        out = np.zeros((threads, chunk * chunks), dtype)
        edges = [ctypes.c_int(x) for x in (row, col, rows, cols)]
        stride = ctypes.c_int64(cols + padding)
        at.run(f"loaded{one_row}_{name}", pointer(at.matrix), stride, *edges, pointer(out))
        inside = (position < length) & (col + position >= 0) & (col + position < cols)
        inside &= 0 <= row < rows
        wanted = np.full(out.shape, 77, dtype)
        if inside.any():
            wanted[inside] = at.matrix[row, (col + position)[inside]]
        assert out.tobytes() == wanted.tobytes(), (skew, cols, padding, row, col)
        assert not at.writes.any()


@needs_compiler
@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_is_stored_at_every_skew_and_each_of_its_bytes_once(library, name):
    size, chunk, chunks, threads, length = VECTORS[name]
    dtype = np.dtype(np.float32 if size == 4 else f"u{size}")
    position = (
        np.arange(chunks)[None, :, None] * threads + np.arange(threads)[:, None, None]
    ) * chunk
    position = (position + np.arange(chunk)).reshape(threads, -1)
    rng = np.random.default_rng(0)
    for skew, rows, cols, padding, row, col in places(size, length):
        at = Watched(library, skew, rows, cols, cols + padding, dtype)
        held = (
            rng.integers(0, 256, position.size * size, np.uint8).view(dtype).reshape(position.shape)
        )
        edges = [ctypes.c_int(x) for x in (row, col, rows, cols)]
        stride = ctypes.c_int64(cols + padding)
        at.run(f"stored_{name}", pointer(at.matrix), stride, *edges, pointer(held))
        wanted, written = at.before, np.zeros(at.bytes.size, np.int32)
        first, end = max(col, 0), min(cols, col + length)
        if 0 <= row < rows and first < end:
            place = at.place(row, range(first, end))
            row_held = np.zeros(position.max() + 1, dtype)
            row_held[position.ravel()] = held.ravel()
            wanted[place] = row_held[first - col : end - col].copy().view(np.uint8)
            written[place] = 1
        assert (at.bytes == wanted).all(), (skew, cols, padding, row, col)
        assert (at.writes == written).all(), (skew, cols, padding, row, col)


def tile_places(size, height, width):
    """Skews, rows and columns of the matrix, padding of its rows, and row and column of the tile."""
    for skew in range(0, 16, size):
        for rows, cols in (
            (max(3 * height - 5, 2), 3 * width - 3),
            (height, width),
            (2, 5),
            (1, 1),
        ):
            for row, col in ((0, 0), (1, 1), (-1, 0), (0, -1), (2, 2), (9, 0)):
                yield skew, rows, cols, skew // size % 3 * (cols % 3), row * height, col * width
        yield skew, 2 * height, 2 * width, 1, -3, -5


def offsets(name):
    """Where the bytes of a tile lie in shared memory, and the byte of its panel's rows at which its rows start."""
    height, width, size, _, owner, _ = TILES[name]
    layout = SharedLayout(swizzle_for(owner, size), height, size)
    r, c = np.indices((height, width))
    offset = layout.offset(r, (owner - width) + c)[..., None] + np.arange(size)
    # The view is of the last columns: its panel comes first here.
    panel = (owner - width) * size // layout.swizzle * layout.panel_bytes
    return offset - panel, ctypes.c_uint32((owner - width) * size % layout.swizzle)


def elements(matrix, r, c):
    """Which elements of a tile are inside a matrix, and the tile with zeros for the others."""
    inside = (r >= 0) & (r < matrix.shape[0]) & (c >= 0) & (c < matrix.shape[1])
    tile = np.zeros(r.shape, matrix.dtype)
    tile[inside] = matrix[r[inside], c[inside]]
    return inside, tile


@needs_compiler
@pytest.mark.parametrize("name", TILES)
def test_a_tile_is_copied_at_every_skew_and_each_of_its_bytes_once(library, name):
    height, width, size, _, owner, _ = TILES[name]
    dtype, (r, c) = np.dtype(f"u{size}"), np.indices((height, width))
    offset, byte = offsets(name)
    rng = np.random.default_rng(0)
    for skew, rows, cols, padding, row, col in tile_places(size, height, width):
        at = Watched(library, skew, rows, cols, cols + padding, dtype)
        shared = np.zeros(height * owner * size, np.uint8)
        edges = [ctypes.c_int(x) for x in (row, col, rows, cols)]
        stride = ctypes.c_int64(cols + padding)
        at.run(f"in_{name}", pointer(at.matrix), stride, *edges, byte, pointer(shared))
        inside, wanted = elements(at.matrix, row + r, col + c)
        landed = shared[offset].copy().view(dtype)[..., 0]
        assert (landed == wanted).all(), (skew, rows, cols, padding, row, col)
        assert not at.writes.any()
        shared = rng.integers(0, 256, shared.size, np.uint8)
        at.run(f"out_{name}", pointer(at.matrix), stride, *edges, byte, pointer(shared))
        held, written = shared[offset], np.zeros(at.bytes.size, np.int32)
        first = at.start + ((row + r) * (cols + padding) + col + c) * size
        bytes_ = (first[..., None] + np.arange(size))[inside].ravel()
        written[bytes_] = 1
        at.before[bytes_] = held[inside].ravel()
        assert (at.bytes == at.before).all(), (skew, rows, cols, padding, row, col)
        assert (at.writes == written).all(), (skew, rows, cols, padding, row, col)


@needs_compiler
@pytest.mark.parametrize("name", ALIKE)
def test_two_tiles_whose_pieces_are_in_flight_together_are_copied(library, name):
    height, width, size, _, owner, _ = TILES[name]
    dtype, (r, c) = np.dtype(f"u{size}"), np.indices((height, width))
    offset, byte = offsets(name)
    for skew, rows, cols, padding, row, col in tile_places(size, height, width):
        at = Watched(library, skew, rows, cols, cols + padding, dtype)
        shared = np.zeros((2, height * owner * size), np.uint8)
        edges = [ctypes.c_int(x) for x in (row, col, rows, cols)]
        stride = ctypes.c_int64(cols + padding)
        at.run(f"both_{name}", pointer(at.matrix), stride, *edges, byte, pointer(shared))
        for landed, further in zip(shared, (0, 1), strict=True):
            _, wanted = elements(at.matrix, row + further + r, col - further + c)
            landed = landed[offset].copy().view(dtype)[..., 0]
            assert (landed == wanted).all(), (skew, rows, cols, padding, row, col, further)
        assert not at.writes.any()
