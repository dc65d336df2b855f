"""Copies of tiles in pieces of 16, 8 and 4 bytes: the device functions on the CPU, byte by byte."""

import ctypes
import shutil
import subprocess
from importlib.resources import files

import numpy as np
import pytest

from pykittens.types.layouts import SharedLayout, swizzle_for

HEADER = files("pykittens.targets.cuda").joinpath("sm_80.cuh").read_text()
DEVICE = files("pykittens.targets.cuda").joinpath("device.cuh").read_text()
HOST = """
#include <cassert>
#include <cstdint>
#include <cstring>
#define DEVICE static inline
#define __CUDA_ARCH__ 900
#define UNROLL
#define NO_UNROLL
typedef unsigned int u32; typedef unsigned long long u64; typedef long long i64;
struct alignas(16) uint4 { u32 x, y, z, w; };
static unsigned char* memory;
static int min(int a, int b) { return a < b ? a : b; }
static int max(int a, int b) { return a > b ? a : b; }
static int unknown(int x) { return x; }
template <int PIECE> void copy_piece(u32 to, const void* from, u32 bytes) {
    assert(to % PIECE == 0 && bytes <= PIECE && (bytes == 0 || (uintptr_t)from % PIECE == 0));
    memcpy(memory + to, from, bytes);
    memset(memory + to + bytes, 0, PIECE - bytes);
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
NARROW = """
extern "C" bool narrow_{most}_{name}(
        unsigned char* shared, u32 byte, const {type}* from, i64 stride, int row, int col, int rows, int cols) {{
    memory = shared;
    bool started = true;
    for (int thread = 0; thread < {threads}; ++thread)
        started &= start_narrow<{shape}, {threads}, {most}>(
            0, byte, {panel}, from, stride, row, col, rows, cols, thread);
    return started;
}}
"""
TYPES = {1: "unsigned char", 2: "unsigned short", 4: "u32", 8: "u64"}
MOST = (1, 4)  # pieces for which a thread has registers
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
    place = place[: place.index("// A place of a tensor")]
    moves = HEADER[
        HEADER.index("// What thread `thread`") : HEADER.index("// -- products of a warp")
    ]
    entries = [
        text.format(
            name=name,
            most=most,
            type=TYPES[size],
            threads=threads,
            shape=f"{rows}, {cols}, {swizzle_for(owner, size)}",
            panel=rows * swizzle_for(owner, size),
        )
        for name, (rows, cols, size, threads, owner) in TILES.items()
        for text, most in ((ENTRY, 0), *((NARROW, most) for most in MOST))
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


PLACES = [(0, 0), (1, 1), (-1, 0), (0, -1), (2, 3), (9, 0), (0, 9)]


class Landing:
    """A tile of a random tensor whose rows start at multiples of `unit` bytes, and the shared memory it goes to."""

    def __init__(self, name, place, unit=16):
        rows, cols, size, _, owner = TILES[name]
        dtype = np.dtype(f"u{size}")
        self.layout = SharedLayout(swizzle_for(owner, size), rows, size)
        height, width = 3 * rows - 5, 3 * cols - 3
        self.stride = -(-width * size // 16) * 16 // size + unit % 16 // size
        raw = aligned(height * self.stride + unit % 16 // size, dtype)
        self.tensor = raw[unit % 16 // size :].reshape(height, self.stride)
        values = np.random.default_rng(size).integers(
            1, 2 ** min(8 * size, 63), self.tensor.shape, dtype=np.uint64
        )
        self.tensor[:] = values
        first = (owner - cols) if owner > cols else 0  # the last columns of the owner
        self.byte = first * size % self.layout.swizzle
        self.shared = aligned(rows * owner * size, np.dtype(np.uint8))
        self.shared[:] = 0x55
        row, col = place[0] * rows, place[1] * cols
        self.panel = first * size // self.layout.swizzle * self.layout.panel_bytes
        self.edges = row, col, height, width
        r, c = np.indices((rows, cols))
        self.inside = (row + r >= 0) & (row + r < height) & (col + c >= 0) & (col + c < width)
        self.places = (row + r)[self.inside], (col + c)[self.inside]
        self.expected = np.zeros((rows, cols), dtype)
        self.expected[self.inside] = self.tensor[self.places]
        self.offset = self.layout.offset(r, first + c)[..., None] + np.arange(size)

    def call(self, function, tensor):
        return function(
            ctypes.c_void_p(self.shared[self.panel :].ctypes.data), ctypes.c_uint32(self.byte),
            ctypes.c_void_p(tensor.ctypes.data), ctypes.c_int64(self.stride),
            *map(ctypes.c_int, self.edges),
        )  # fmt: skip

    def check(self):
        """The elements of the tile are in their places, with zeros outside of the tensor, and nothing else changed."""
        landed = self.shared[self.offset].copy().view(self.expected.dtype)[..., 0]
        assert np.array_equal(landed, self.expected)
        untouched = np.ones(self.shared.size, bool)
        untouched[self.offset.ravel()] = False
        assert (self.shared[untouched] == 0x55).all()


@pytest.mark.parametrize("name", TILES)
@pytest.mark.parametrize("place", PLACES)
def test_pieces_land_where_the_layout_says_and_come_back(library, name, place):
    case = Landing(name, place)
    case.call(getattr(library, f"in_{name}"), case.tensor)
    case.check()
    back = aligned(case.tensor.size, case.tensor.dtype).reshape(case.tensor.shape)
    case.call(getattr(library, f"out_{name}"), back)
    wanted = np.zeros_like(back)
    wanted[case.places] = case.expected[case.inside]
    assert np.array_equal(back, wanted)
    case.check()


@pytest.mark.parametrize("unit", [8, 4])
@pytest.mark.parametrize("most", MOST)
@pytest.mark.parametrize("name", TILES)
@pytest.mark.parametrize("place", PLACES)
def test_narrow_pieces_land_where_the_layout_says(library, name, place, most, unit):
    case = Landing(name, place, max(unit, TILES[name][2]))
    narrow = getattr(library, f"narrow_{most}_{name}")
    narrow.restype = ctypes.c_bool
    assert case.call(narrow, case.tensor)
    case.check()


@pytest.mark.parametrize("name", [n for n, tile in TILES.items() if tile[2] <= 2])
def test_rows_at_other_addresses_are_not_copied_by_narrow_pieces(library, name):
    case = Landing(name, (0, 0), 2)
    narrow = getattr(library, f"narrow_4_{name}")
    narrow.restype = ctypes.c_bool
    assert not case.call(narrow, case.tensor)
    assert (case.shared == 0x55).all()
