"""Products of single warps: the emitted lines, run lane by lane in NumPy, multiply the matrices.

What is not in the emitted text is the hardware's: a load of matrices and a product, which types/fragments.py states.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from importlib.resources import files

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, e4m3, e5m2, f16, f32, int8, int32, uint8
from pykittens.types import fragments
from pykittens.types.dtypes import DType
from pykittens.types.layouts import (
    LANES,
    SharedLayout,
    swizzle_for,
    swizzled,
    tile_element,
    tile_registers,
)

HEADER = files("pykittens.targets.cuda").joinpath("sm_80.cuh").read_text()


@dataclass(frozen=True)
class Product:
    """One product: k is the depth, `part` cuts operands out of a stage `part` times as wide and high."""

    word: str = "mma_ABt"
    a: DType = bf16
    b: DType | None = None
    acc: DType = f32
    m: int = 64
    n: int = 64
    k: int = 64
    warps: int = 4
    registers: bool = False
    part: int = 1
    arch: str = "sm_89"

    @property
    def a_shape(self) -> tuple[int, int]:
        return (self.k, self.m) if self.word.startswith("mma_At") else (self.m, self.k)

    @property
    def b_shape(self) -> tuple[int, int]:
        return (self.n, self.k) if self.word.endswith("Bt") else (self.k, self.n)

    @property
    def types(self) -> tuple[DType, DType]:
        return self.a, self.b or self.a


def kernel_of(p: Product):
    multiply, (a_type, b_type), n = getattr(pk, p.word), p.types, p.part

    @pk.kernel(warps=p.warps)
    def kernel(A, B, C):
        a_tile, b_tile = (
            pk.st(dtype, rows * n, cols * n)
            for dtype, (rows, cols) in ((a_type, p.a_shape), (b_type, p.b_shape))
        )
        ring = pk.pipeline(1, a=a_tile, b=b_tile)
        pk.grid(1)
        with ring.fill() as s:
            pk.load_async(s.a, A[0])
            pk.load_async(s.b, B[0])
        left = pk.load(A[0], rows=p.m, cols=p.k) if p.registers else None
        acc = pk.zeros(p.acc, p.m, p.n)
        with ring.drain() as stage:
            a, b = stage.a.tiles(*p.a_shape)[n - 1, n - 1], stage.b.tiles(*p.b_shape)[n - 1, n - 1]
            acc = multiply(left if p.registers else a, b, acc)
        pk.store(C[0], acc)

    return kernel


def arrays(p: Product):
    """The stages as they are loaded, of small integers that every type has, and room for the product."""
    rng = np.random.default_rng(p.m + p.n + p.k)
    a, b = (
        rng.integers(0 if dtype is uint8 else -3, 4, (shape[0] * p.part, shape[1] * p.part)).astype(
            dtype.numpy
        )
        for dtype, shape in zip(p.types, (p.a_shape, p.b_shape), strict=True)
    )
    return a, b, np.zeros((p.m, p.n), p.acc.numpy)


# -- the emitted text as Python --------------------------------------------------------------------


def product_lines(text: str) -> list[str]:
    """The lines of the block of C++ that multiplies."""
    lines = text[text.index('extern "C"') :].splitlines()
    first = next(i for i, line in enumerate(lines) if "u32 a_part[" in line)
    indent = len(lines[first]) - len(lines[first].lstrip())
    last = next(
        i for i in range(first, len(lines)) if len(lines[i]) - len(lines[i].lstrip()) < indent
    )
    return [line[indent:] for line in lines[first:last]]


def python(line: str) -> str:
    """A line of C++ as a line of Python: loops, declarations, and integer division."""
    depth = len(line) - len(line.lstrip())
    line = line.strip()
    if line in ("}", "__syncwarp();"):
        return ""
    loop = re.match(r"(?:NO_)?UNROLL for \(int (\w+) = 0; \1 < (\d+); \+\+\1\) (.*)", line)
    if loop:
        body = "" if loop[3] == "{" else python(loop[3])
        return " " * depth + f"for {loop[1]} in range({loop[2]}): {body}"
    line = line.removesuffix(";")
    if found := re.match(r"u32 a_part\[(\d+)\]\[4\], b_part\[4\]$", line):
        return f"a_part, b_part = words({found[1]}, 4), words(4)"
    line = re.sub(r"(\w_turn)\[\d\] = \{(.*)\}", r"\1 = [\2]", line)
    line = line.removeprefix("const u32 ").replace(", b_turn = ", "; b_turn = ")
    line = line.replace(", a_turn = ", "; a_turn = ").replace("/", "//")
    line = re.sub(r"(\w+)<(\d+)>\(", r"\1(\2, ", line)
    line = re.sub(r"\((i % 4) \? ([^:]*) : 0\)", r"(\2 if \1 else 0)", line)
    line = re.sub(r"(i % 2) \? (\w+) : (\w+)", r"\2 if \1 else \3", line)
    return " " * depth + line


def expression(name: str) -> str:
    """What a function of the header returns."""
    found = re.search(rf"{name}\(.*?\) \{{\s*(?:return|u32 turn =) (.*?);", HEADER)
    assert found is not None
    return found[1].replace("/", "//")


class Warp:
    """32 lanes, their registers and the functions that the emitted lines call."""

    def __init__(self, p: Product, number: int, memory: np.ndarray, names: dict[str, object]):
        self.p, self.memory = p, memory
        a, b = p.types
        lane = np.arange(LANES)
        turn = expression("turn_of")
        row = expression("row_at")
        self.names = {
            "lane": lane,
            "warp": number,
            "words": lambda *shape: np.zeros((*shape, LANES), np.uint32),
            "turn_of": lambda SWIZZLE, row: eval(turn, None, {"SWIZZLE": SWIZZLE, "row": row}),
            "row_at": lambda SWIZZLE, start, turn, byte, panel_bytes: eval(row, None, locals()),
            "shared_at": self.shared_at,
            "load_matrices": lambda to, at: self.load_matrices(to, at, False),
            "load_matrices_transposed": lambda to, at: self.load_matrices(to, at, True),
            "load_shared": lambda at: self.gather(at, 4).view(np.uint32)[:, 0],
            "load_shared_8": lambda at: self.gather(at, 1)[:, 0].astype(np.uint32),
            "tf32": lambda x: x,
            "__float_as_uint": lambda x: x,
            "__byte_perm": byte_perm,
            f"mma_sync_{a if a == b else f'{a}_{b}'}_{p.acc}": self.multiply,
        } | names

    def shared_at(self, swizzle, row, byte, panel_bytes):
        return swizzled(byte // swizzle * panel_bytes + row * swizzle + byte % swizzle, swizzle)

    def gather(self, at, count):
        assert (np.asarray(at) % count == 0).all(), "a load is aligned to its size"
        return self.memory[np.asarray(at)[:, None] + np.arange(count)].copy()

    def load_matrices(self, to, at, transposed):
        """PTX ISA, ldmatrix: lane 8 i + r names row r of matrix i; lane l gets elements 2 l % 8, ... of row l / 4."""
        matrices = self.gather(at, 16).view(np.uint16).reshape(4, 8, 8)
        if transposed:
            matrices = matrices.swapaxes(1, 2)
        to[:] = np.ascontiguousarray(matrices).reshape(4, 64).view(np.uint32)

    def multiply(self, d, at, a, b0, b1):
        """PTX ISA, mma.sync: d[at] and up are the accumulator's registers."""
        size = self.p.a.bytes
        left, right = np.zeros((16, 32 // size)), np.zeros((32 // size, 8))
        a_type, b_type = (t.numpy for t in self.p.types)
        lane, part = np.mgrid[:LANES, : 4 // size]
        for register in range(4):
            elements = np.ascontiguousarray(a[register]).view(a_type).reshape(LANES, -1)
            left[fragments.a_element(lane, register, part, size)] = elements
        for register, words in enumerate((b0, b1)):
            elements = np.ascontiguousarray(words).view(b_type).reshape(LANES, -1)
            right[fragments.b_element(lane, register, part, size)] = elements
        packing = self.p.acc.packing
        lane, register = np.mgrid[:LANES, :4]
        row, col = tile_element(lane, register, 0, 16, 1)
        d[at + register // packing, register % packing, lane] += (left @ right)[row, col]


def byte_perm(low, high, selector):
    both = np.stack([low, high], axis=-1).astype("<u4").view(np.uint8).reshape(LANES, 8)
    chosen = [both[:, selector >> 4 * i & 7].astype(np.uint32) << 8 * i for i in range(4)]
    return chosen[0] | chosen[1] | chosen[2] | chosen[3]


# -- the machine ------------------------------------------------------------------------------------


def in_shared(memory, at, array, dtype):
    layout = SharedLayout(swizzle_for(array.shape[1], dtype.bytes), array.shape[0], dtype.bytes)
    row, col = np.indices(array.shape)
    offset = at + layout.offset(row, col)
    raw = np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, dtype.bytes)
    memory[offset[..., None] + np.arange(dtype.bytes)] = raw


def run(p: Product) -> tuple[np.ndarray, np.ndarray]:
    """The product by the emitted lines, and by NumPy."""
    a, b, c = arrays(p)
    text = kernel_of(p).source(a, b, c, arch=p.arch)
    lines = product_lines(text)
    result = next(
        re.search(r"mma_sync_\w+\((\w+),", line)[1] for line in lines if "mma_sync" in line
    )
    # The stage that is drained; the one that is filled comes before.
    *_, starts = re.finditer(r"const u32 (\w+) = ring [^,]*, (\w+) = .* \+ (\d+);", text)
    offset = int(starts[3])
    memory = np.full(2 * offset + b.nbytes + 4096, 0x55, np.uint8)
    in_shared(memory, 0, a, p.types[0])
    in_shared(memory, offset, b, p.types[1])
    code = "\n".join(python(line) for line in lines)
    found = np.full((p.m, p.n), np.nan)
    for warp in range(p.warps):
        registers = np.arange(tile_registers(p.m, p.n, p.warps))
        d = np.zeros((len(registers) // p.acc.packing, p.acc.packing, LANES))
        names: dict[str, object] = {result: d, starts[1]: 0, starts[2]: offset}
        if p.registers:
            name = re.search(
                r"a_part\[m_step\]\[i\] = [\w()]*?(?:\(|\b)(left\w*)\[", "\n".join(lines)
            )
            names[name[1]] = in_registers(a, warp, p)
        exec(code, Warp(p, warp, memory, names).names)
        lane, register = np.meshgrid(np.arange(LANES), registers, indexing="ij")
        row, col = tile_element(lane, register, warp, p.n, p.warps)
        found[row, col] = d.reshape(-1, LANES).T
    left, right = a.astype(float), b.astype(float)
    (m, k), (n, l) = p.a_shape, p.b_shape
    left, right = left[-m:, -k:], right[-n:, -l:]
    left = left.T if p.word.startswith("mma_At") else left
    return found, left @ (right.T if p.word.endswith("Bt") else right)


def in_registers(a, warp, p):
    """The words that the lanes of a warp hold of a register tile."""
    registers = np.arange(tile_registers(p.m, p.k, p.warps))
    lane, register = np.meshgrid(np.arange(LANES), registers, indexing="ij")
    row, col = tile_element(lane, register, warp, p.k, p.warps)
    return np.ascontiguousarray(a[row, col]).view(np.uint32).reshape(LANES, -1).T


KINDS = {
    "bf16": Product(),
    "f16": Product(a=f16),
    "f16-f16": Product(a=f16, acc=f16),
    "tf32": Product(a=f32),
    "int8": Product(a=int8, acc=int32),
    "uint8-int8": Product(a=uint8, b=int8, acc=int32),
    "e4m3": Product(a=e4m3),
    "e5m2-e4m3": Product(a=e5m2, b=e4m3),
}
WORDS = ("mma_ABt", "mma_AB", "mma_AtB", "mma_AtBt")
SHAPES = {
    "plain": {},
    "tall": {"m": 128, "n": 48, "k": 32},
    "one-warp": {"warps": 1, "m": 32, "n": 16, "k": 96},
    "three-warps": {"warps": 3, "m": 48, "n": 80, "k": 64},
    "narrow": {"m": 64, "n": 16, "k": 32},
    "parts": {"part": 2, "m": 64, "n": 16, "k": 32},
    "third-parts": {"part": 3, "m": 64, "n": 16, "k": 32},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_emitted_lines_multiply_shared_operands(kind, word, shape):
    found, expected = run(replace(KINDS[kind], word=word, **SHAPES[shape]))
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("shape", [s for s in SHAPES if "part" not in s])
@pytest.mark.parametrize("word", WORDS[:2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_emitted_lines_multiply_an_operand_in_registers(kind, word, shape):
    found, expected = run(replace(KINDS[kind], word=word, registers=True, **SHAPES[shape]))
    assert np.array_equal(found, expected)
