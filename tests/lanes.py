"""Runs emitted CUDA C++ on the CPU, all lanes of each block, to show that layouts, shuffles and barriers are right.

Device functions that are written in PTX get a body of C++ here; the others are run as they are.
"""

from __future__ import annotations

import ctypes
import math
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pykittens.ir.evaluate import host_value
from pykittens.ir.nodes import Grid
from pykittens.runtime.arguments import check, known_values
from pykittens.targets.source import Source
from tests.cases.core import Array, Case

COMPILER = shutil.which("g++")

ARCHITECTURE = 800
# Bodies for functions written in PTX, by result type and name; PARAMETERS stands for the names of the parameters.
BODIES = {
    "float max_nan": "return a != a ? a : b != b ? b : a > b ? a : b;",
    "float min_nan": "return a != a ? a : b != b ? b : a < b ? a : b;",
    "u32 pack_bf16": "return bf16_bits(low) | bf16_bits(high) << 16;",
    "u32 pack_f16": "return f16_bits(low) | f16_bits(high) << 16;",
    "float half_to_float": "return same_bits<_Float16>(bits);",
    "int to_int32": "return x != x ? 0 : x >= 0x1p31f ? 0x7fffffff : x <= -0x1p31f ? (int)0x80000000 : (int)x;",
    "u32 bits_from": "const int n = elements_before(column, lane); return n > 31 ? 0 : ~0u << max(n, 0);",
    "u32 bits_before": "const int n = elements_before(column, lane); return n < 1 ? 0 : ~0u >> max(32 - n, 0);",
    "T* row_at": "return first + rows * stride;",
    "int unknown": "return x;",
    "float exp2_fast": "return std::exp2(x);",
    "unsigned short compare_and_swap": "return atomicCAS((unsigned short*)at, old, next);",
    "void combine_pair": "combine(Add(), at, pick(from, i, at)); combine(Add(), at + 1, pick(from, i + 1, at));",
    "void group_sync": "meet(groups_meet[id], threads);",
    "u32 load_shared": "return *(const u32*)(shared + at);",
    "unsigned short load_shared_16": "return *(const unsigned short*)(shared + at);",
    "void fetch": "std::memcpy(&x, shared + at, sizeof(x));",
    "uint4 load_piece": "return *(const uint4*)(shared + at);",
    "void keep_piece": "*(uint4*)(shared + at) = {a, b, c, d};",
    "void load_pair": "std::memcpy(to + i, shared + at, 2 * sizeof(*to));",
    "void store_shared": "keep_values(PARAMETERS);",
    "void load_matrix": "load_matrices(PARAMETERS);",
    "void store_matrix": "store_matrices(PARAMETERS);",
    "void barrier_init": "barrier_at(bar) = {(unsigned short)arrivals, (unsigned short)arrivals, 0};",
    "void barrier_arrive": "arrive(bar);",
    "void barrier_arrive_copied": "arrive(bar);",
    "void copy_piece": "std::memset(shared + to, 0, PIECE); std::memcpy(shared + to, from, bytes);",
    "void barrier_wait": "wait_for(bar, phase);",
    "void registers_up": "",
    "void registers_down": "",
    "void barrier_init_done": "",
    "void fence_async": "",
    "void earlier_launches_wait": "",
    "void next_launch_start": "",
}


_CHANGES = {
    "load": "*held",
    "add": "atomicAdd(held, x0)",
    "max": "atomicMax(held, x0)",
    "min": "atomicMin(held, x0)",
    "and": "std::exchange(*held, *held & x0)",
    "or": "std::exchange(*held, *held | x0)",
    "xor": "std::exchange(*held, *held ^ x0)",
    "exchange": "std::exchange(*held, x0)",
    "cas": "atomicCAS(held, x0, x1)",
}
# Atomics with a result of shared memory, which are written to the programs that call them.
BODIES |= {
    f"int atomic_{name}_shared": f"int* const held = (int*)(shared + at); return {change};"
    for name, change in _CHANGES.items()
}

# Atomics of tensors and of shared memory: a lane runs alone until it meets others, so it comes before or after them.
ATOMICS = """
template <class T> T atomicAdd(T* at, T x) { const T old = *at; *at = old + x; return old; }
template <class T> T atomicMax(T* at, T x) { const T old = *at; if (x > old) *at = x; return old; }
template <class T> T atomicMin(T* at, T x) { const T old = *at; if (x < old) *at = x; return old; }
template <class T> T atomicCAS(T* at, T old, T next) { const T seen = *at; if (seen == old) *at = next; return seen; }
"""


def items(header: str, architecture: int | None = None) -> Iterator[str]:
    """The functions, types and definitions of a header, one by one; of two variants, that of an older card."""
    item, depth, taken = [], 0, [True]
    for line in header.replace("\\\n", " ").splitlines():
        match = re.match(r"#(if __CUDA_ARCH__ >= (\d+)|else|endif)", line)
        if match:
            if match[2]:
                taken.append(int(match[2]) <= (architecture or ARCHITECTURE))
            elif match[1] == "else":
                taken[-1] = not taken[-1]
            else:
                taken.pop()
        if match or not all(taken):
            continue
        if not item and (not line.strip() or line.startswith("//")):
            continue
        item.append(line)
        code = line.partition("//")[0]
        depth += code.count("{") - code.count("}")
        if depth == 0 and (code.rstrip().endswith(("}", ";")) or line.startswith("#")):
            yield "\n".join(item)
            item = []
    assert not item, item


def needed(header: str, program: str) -> str:
    """The definitions of a header that a program needs, directly or indirectly, with C++ in place of PTX."""
    named = [
        (re.findall(r"(\w+)\(|struct (?:__align__\(\d+\) )?(\w+)", i.partition("{")[0]), i)
        for i in items(header)
    ]
    own = [
        ({a or b for a, b in found[-1:]} if not i.startswith("#") else set(), i)
        for found, i in named
    ]
    words, kept = set(re.findall(r"\w+", program)), set()
    while True:
        more = {n for n, (names, _) in enumerate(own) if names & words or not names} - kept
        if not more:
            return "\n".join(_on_cpu(own[n][1]) for n in sorted(kept))
        kept |= more
        words |= {w for n in more for w in re.findall(r"\w+", own[n][1])}


def _on_cpu(item: str) -> str:
    item = re.sub(r'asm volatile\(""[^;]*\);', "", item)  # what only steers the compiler
    if "asm" not in item or item.startswith("#"):
        return item
    head, _, _ = item.partition("{")
    name = re.sub(r"^(?:template <.*?> )?DEVICE ", "", head).partition("(")[0]
    assert name in BODIES, f"{name} is written in PTX and has no body in C++"
    parameters = re.findall(r"(\w+)[,)]", head[head.index("(") :])
    return f"{head}{{ {BODIES[name].replace('PARAMETERS', ', '.join(parameters))} }}"


class Block:
    """Cases compiled together, to be run a block each."""

    def __init__(self, folder: Path, cases: Sequence[Case], arch: str = "sm_90a") -> None:
        self.sources: dict[str, Source] = {}
        self.arguments: dict[str, list[Any]] = {}
        texts, headers = [], ""
        for number, case in enumerate(cases):
            inputs, outputs = case.arrays()
            source = case.kernel.emitted(
                *inputs, *outputs, *case.scalars, arch=arch, **case.constants
            )
            self.sources[case.name], headers = source, source.functions
            head = rf'extern "C" __global__ void __launch_bounds__\(.*?\)\s+{source.name}\('
            program, found = re.subn(head, f"static void kernel_{number}(", source.program)
            assert found == 1, case.name
            own, start, body = program.partition("static void kernel_")
            own = "\n".join(map(_on_cpu, items(own)))
            texts.append(f"namespace case_{number} {{\n{own}\n{start}{body}\n")
            texts.append(f"static void start(void** args) {{ call(kernel_{number}, args); }}\n}}")
            run = f"run(case_{number}::start, blocks, {source.threads}, args, seed)"
            head = f'extern "C" int case_{number}_run(void** args, int blocks, unsigned seed)'
            texts.append(f"{head} {{ return {run}; }}")
        program = re.sub(
            r"^(#line|\s*extern __shared__).*$", "", "\n".join(texts), flags=re.MULTILINE
        )
        header = (Path(__file__).parent / "lanes.h").read_text(encoding="utf-8")
        file = folder / "cases.cpp"
        file.write_text(
            "\n".join([header, ATOMICS, needed(headers, program), program]), encoding="utf-8"
        )
        library = folder / "cases.so"
        command = [str(COMPILER), "-std=c++17", "-O0", "-w", "-fwrapv", "-shared", "-fPIC"]
        done = subprocess.run(
            [*command, "-o", library, file], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[:4000]
        self.library = ctypes.CDLL(str(library))
        self.numbers = {case.name: n for n, case in enumerate(cases)}

    def run(
        self, case: Case, seed: int, blocks: int | None = None
    ) -> tuple[list[Array], list[Array]]:
        """The inputs and outputs of a case after a run; `seed` picks who goes on first.

        blocks: those that share the tasks of a persistent kernel; two if None.
        """
        inputs, outputs = case.arrays()
        given = [*inputs, *outputs, *case.scalars]
        values = dict(zip(case.kernel.parameters.names(len(given)), given, strict=True))
        slots = [_argument(slot, values) for slot in self.sources[case.name].slots]
        pointers = (ctypes.c_void_p * len(slots))(*(ctypes.addressof(s) for s in slots))
        run = getattr(self.library, f"case_{self.numbers[case.name]}_run")
        stuck = run(pointers, blocks or _block_count(case, given), seed)
        assert not stuck, f"{case.name}: threads wait for others that do not come"
        return inputs, outputs


def _block_count(case: Case, given: Sequence[Any]) -> int:
    """The blocks of a grid; two share the tasks of a persistent kernel."""
    arguments = check(case.kernel.parameters, tuple(given), case.constants)
    kernel = case.kernel.record(arguments)
    if not isinstance(kernel.launch, Grid):
        return 2
    known = known_values(kernel, arguments)
    return math.prod(int(host_value(d, known)) for d in kernel.launch.dims)


def _argument(slot: Any, values: dict[str, Any]) -> Any:
    value = values[slot.argument]
    match slot.kind:
        case "pointer":
            return ctypes.c_void_p(value.ctypes.data)
        case "extent":
            return ctypes.c_int32(value.shape[slot.axis])
        case "stride":
            return ctypes.c_int64(value.strides[slot.axis] // value.itemsize)
        case _:
            kinds = {"float": ctypes.c_float, "int": ctypes.c_int32, "bool": ctypes.c_bool}
            return kinds[slot.dtype.kind](np.asarray(value).item())
