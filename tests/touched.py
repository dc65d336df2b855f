"""The addresses that emitted code touches: the lanes of a block run on a CPU, and the code reports every access.

g++ calls a function before each access it compiles under -fsanitize=thread; those functions are ours. Device functions
written in PTX get a body that tells what their instruction touches, and else nothing: what comes out of such a run are
addresses, not numbers.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tests import lanes

# An instruction: its memory, whether it writes, bytes per lane, and the offset of each lane, -1 for none.
Instruction = tuple[str, bool, int, tuple[int, ...]]

DECLARED = """
void touch(const void* at, int bytes, bool writes);
inline void touch(unsigned at, int bytes, bool writes) { touch(shared + at, bytes, writes); }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned) { return a | b; }
template <class T> void atomicAdd(T* at, T x) { touch(at, sizeof(T), true); }
template <class T> void atomicMax(T* at, T x) { touch(at, sizeof(T), true); }
template <class T> void atomicMin(T* at, T x) { touch(at, sizeof(T), true); }
template <class T> T atomicCAS(T* at, T old, T next) { touch(at, sizeof(T), true); return old; }
"""
HOOKS = """
typedef unsigned long long u64;
extern "C" void* realloc(void*, unsigned long);
extern struct Thread { unsigned x; } threadIdx;
struct Touch { u64 thread, code, at, bytes, writes; };
static Touch* touches;
static u64 kept, room;
#define HERE (u64)__builtin_return_address(0)
static void keep(const void* at, u64 bytes, bool writes, u64 code) {
    if (kept == room) touches = (Touch*)realloc(touches, (room = 2 * room + 4096) * sizeof(Touch));
    touches[kept++] = {threadIdx.x, code, (u64)at, bytes, writes};
}
void touch(const void* at, int bytes, bool writes) { keep(at, bytes, writes, HERE); }
extern "C" {
u64 count() { return kept; }
const Touch* all() { return touches; }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
#define HOOKED(N) \\
    void __tsan_read##N(void* at) { keep(at, N, false, HERE); } \\
    void __tsan_write##N(void* at) { keep(at, N, true, HERE); }
HOOKED(1) HOOKED(2) HOOKED(4) HOOKED(8) HOOKED(16)
void __tsan_read_range(void* at, u64 bytes) { keep(at, bytes, false, HERE); }
void __tsan_write_range(void* at, u64 bytes) { keep(at, bytes, true, HERE); }
}
"""


_ON_CPU = lanes._on_cpu


def _body(item: str) -> str:
    """A device function in C++: the addresses that its PTX instruction touches, if any."""
    if item.startswith("#"):
        return item
    item = re.sub(r'asm volatile\(""[^;]*\);', "", item)  # what only steers the compiler
    if "asm" not in item:
        return item
    head = item.partition("{")[0]
    if "* " in head.partition("(")[0]:  # an address, of which nothing is read yet
        return _ON_CPU(item)
    told = "".join(f"touch(at, {bytes_}, {writes});" for bytes_, writes in _moves(item))
    kind = re.findall(r"DEVICE (\w+)", head)[-1]
    return f"{head}{{ {told} {'' if kind == 'void' else 'return {};'} }}"


def _moves(item: str) -> Iterator[tuple[int, str]]:
    """Bytes of a lane and whether they are written, for the instructions of PTX that move data."""
    for op in re.findall(r"\b((?:ldmatrix|stmatrix|ld\.shared|st\.shared|red\.global)\S*)", item):
        writes = str(not op.startswith("ld")).lower()
        if "matrix" in op:
            assert ".x4" in op
            yield 16, writes
        elif op.startswith("red"):
            yield {"v2.f32": 8, "f16x2": 4, "bf16x2": 4}[re.search(r"v2\.f32|\w+x2", op)[0]], writes
        else:
            found = re.search(r"(?:v(\d)\.)?[bfu](\d+)$", op)
            yield int(found[1] or 1) * int(found[2]) // 8, writes


@contextlib.contextmanager
def _hopper() -> Iterator[None]:
    with mock.patch.object(lanes, "_on_cpu", _body), mock.patch.object(lanes, "ARCHITECTURE", 900):
        yield


def touched(folder: Path, kernel: Any, *args: Any, **constants: Any) -> Counter[Instruction]:
    """What the warps of a block touch in the arrays, by the names of their parameters, and in `shared`."""
    source = kernel.emitted(*args, arch="sm_90a", **constants)
    head = rf'extern "C" __global__ void __launch_bounds__\(.*?\)\s+{source.name}\('
    program, found = re.subn(head, "static void kernel(", source.program)
    assert found == 1
    program = re.sub(r"^(#line|\s*extern __shared__).*$", "", program, flags=re.MULTILINE)
    program = re.sub(r'asm\("mma\.sync.*?\);\n', "", program, flags=re.DOTALL)
    run = f"run(start, 1, {source.threads}, args, 0)"
    program += "static void start(void** args) { call(kernel, args); }\n"
    program += f'extern "C" int block(void** args) {{ return {run}; }}\n'
    header = (Path(lanes.__file__).parent / "lanes.h").read_text(encoding="utf-8")
    with _hopper():
        functions = lanes.needed(source.functions, program)
    library = compiled(folder, "\n".join([header, DECLARED, functions, program]))
    values = dict(zip(kernel.parameters.names(len(args)), args, strict=True))
    slots = [lanes._argument(slot, values) for slot in source.slots]
    pointers = (ctypes.c_void_p * len(slots))(*(ctypes.addressof(s) for s in slots))
    assert not library.block(pointers), "threads wait for others that do not come"
    memory = {
        n: np.lib.array_utils.byte_bounds(a) for n, a in values.items() if isinstance(a, np.ndarray)
    }
    shared = (ctypes.c_ubyte * 232448).in_dll(library, "shared")
    start = ctypes.addressof(shared)
    memory["shared"] = (start, start + len(shared))
    return Counter(_instructions(library, memory))


def compiled(folder: Path, program: str, hooks: str = HOOKS) -> ctypes.CDLL:
    """A program whose accesses call hooks."""
    (folder / "block.cpp").write_text(program, encoding="utf-8")
    (folder / "hooks.cpp").write_text(hooks, encoding="utf-8")
    always = [
        str(lanes.COMPILER),
        "-std=c++17",
        "-O0",
        "-w",
        "-fwrapv",
        "-fPIC",
        "-fno-threadsafe-statics",
    ]
    for command in (
        [*always, "-fsanitize=thread", "-c", "block.cpp"],
        [*always, "-c", "hooks.cpp"],
        [*always, "-shared", "-o", "block.so", "block.o", "hooks.o"],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(folder / "block.so"))


def _instructions(
    library: ctypes.CDLL, memory: dict[str, tuple[int, int]]
) -> Iterable[Instruction]:
    """The k-th access of a lane at a line belongs to the k-th accesses of the other lanes of its warp."""
    library.count.restype, library.all.restype = ctypes.c_uint64, ctypes.c_void_p
    count = library.count()
    words = (ctypes.c_uint64 * (5 * count)).from_address(library.all())
    passes: Counter[tuple[Any, ...]] = Counter()
    found: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [-1] * 32)
    for thread, code, at, size, writes in np.array(words).reshape(-1, 5).tolist():
        for name, (first, end) in memory.items():
            if first <= at < end:
                own = (thread, name, code, writes, size)
                found[(thread // 32, *own[1:], passes[own])][thread % 32] = at - first
                passes[own] += 1
    for (_, name, _, writes, size, _), offsets in found.items():
        yield name, bool(writes), size, tuple(offsets)
