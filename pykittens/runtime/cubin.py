"""Reads the resources of a compiled kernel from its cubin: registers, memory, the registers of each role.

A cubin is an ELF file. Its sections `.nv.info` (of the file) and `.nv.info.<kernel>` are lists of
attributes: a byte of format, a byte of name, then two bytes of value or length.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pykittens.errors import BackendError
from pykittens.runtime import toolkit

_MAX_THREADS, _FRAME_SIZE, _MIN_STACK_SIZE, _REGCOUNT = 0x05, 0x11, 0x12, 0x2F
_FORMAT_SIZED = 4  # the value follows the entry, and the two bytes are its length
_ENTRY_POINT = 0x10  # bit of a symbol's `other` byte: a kernel, not a device function

# From sm_90 on, the system reserves the start of shared memory, and a kernel's section counts it.
_RESERVED_SECTION, _RESERVED_BYTES = ".nv.shared.reserved.0", 1024

_LABEL = re.compile(r"^(\.L_\w+):")
# The predicate, the opcode and the operands of an instruction.
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(@!?\w+\s+)?([A-Z][\w.]*)\s*([^;]*);")
_TARGET = re.compile(r"\.L_\w+")
_BUDGET = re.compile(r"\b(0x[0-9a-f]+|\d+)\s*$")
_REGISTER = re.compile(r"(?<![\w.])R(\d+)(\.64)?")
_OWN_FUNCTION = re.compile(r"^\$__internal_\d+_.*:$", re.MULTILINE)
_PRODUCT = re.compile(r"[A-Z]GMMA\.64x(\d+)x\d+\.(F32|F16|S32)")


@dataclass(frozen=True)
class CubinResources:
    """What one kernel uses.

    `registers` per thread at entry, `frame` and `stack` bytes of local memory per thread (0 unless it
    spills, calls or indexes an array at run time), `shared` bytes of static shared memory per block
    without the system's share, `max_threads` per block by its launch bounds (None without).
    """

    kernel: str
    registers: int
    frame: int
    stack: int
    shared: int
    max_threads: int | None


def resources(cubin: bytes) -> CubinResources:
    """What the only kernel of a cubin uses."""
    sections = {section.name: section for section in _sections(cubin)}
    kernels = [name for name, other in _symbols(cubin, sections) if other & _ENTRY_POINT]
    assert len(kernels) == 1, f"the cubin must hold one kernel, not {kernels}"
    (kernel,) = kernels
    index = [name for name, _ in _symbols(cubin, sections)].index(kernel)

    # The file's attributes name a symbol before their value; a noinline function has them too.
    of_file = {_REGCOUNT: 0, _FRAME_SIZE: 0, _MIN_STACK_SIZE: 0}
    for attribute, value in _attributes(sections[".nv.info"].data(cubin)):
        if attribute in of_file and len(value) == 8:
            symbol, amount = struct.unpack("<II", value)
            if symbol == index:
                of_file[attribute] = amount

    threads = None
    for attribute, value in _attributes(sections[f".nv.info.{kernel}"].data(cubin)):
        if attribute == _MAX_THREADS:
            x, y, z = struct.unpack("<III", value)
            threads = x * y * z

    shared = sections[f".nv.shared.{kernel}"].size if f".nv.shared.{kernel}" in sections else 0
    if shared and _RESERVED_SECTION in sections:
        shared -= _RESERVED_BYTES
    return CubinResources(
        kernel=kernel,
        registers=of_file[_REGCOUNT],
        frame=of_file[_FRAME_SIZE],
        stack=of_file[_MIN_STACK_SIZE],
        shared=shared,
        max_threads=threads,
    )


def disassembler() -> str | None:
    """The path of nvdisasm, from its wheel, a toolkit or PATH; None if there is none."""
    own = os.pathsep.join(str(folder / "bin") for folder in toolkit.folders())
    return shutil.which("nvdisasm", path=own) or shutil.which("nvdisasm")


def release_of(program: str) -> str:
    """The release of a disassembler, as it states it, such as 13.0."""
    stated = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    found = re.search(r"release (\d+\.\d+)", stated)
    return found[1] if found else "unknown release"


def disassemble(cubin: bytes) -> str:
    """The machine instructions of a cubin (SASS), one per line, with their labels."""
    program = disassembler()
    if program is None:
        raise BackendError("nvdisasm was not found", help="pip install nvidia-cuda-nvdisasm")
    return _disassembled(program, cubin)


@functools.lru_cache(maxsize=32)  # nvdisasm takes 0.4 s, and each report on a kernel needs it
def _disassembled(program: str, cubin: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:  # it reads no standard input
        file = Path(folder, "kernel.cubin")
        file.write_bytes(cubin)
        done = subprocess.run([program, "-c", str(file)], capture_output=True, text=True)
    if done.returncode != 0:
        raise BackendError(f"nvdisasm failed: {done.stderr.strip()}")
    return done.stdout


def registers_by_region(sass: str) -> list[tuple[int, int]]:
    """(budget, registers used) of the code that follows each USETMAXREG instruction until the next one.

    The budget is what the instruction asks for; the registers used are the highest number named, plus one. The first
    pair is the code before any such instruction, with budget 0: it runs on what the launch gave. Code follows branches,
    as the compiler places parts of a role behind the code of all others; what several roles share counts in each.
    Functions that the compiler adds after the kernel, such as the rare cases of a division, are not counted: they use
    the registers of their caller.
    """
    code, labels = list[re.Match[str]](), dict[str, int]()
    for line in _OWN_FUNCTION.split(sass)[0].splitlines():
        if (label := _LABEL.match(line)) is not None:
            labels[label[1]] = len(code)
        elif (instruction := _INSTRUCTION.search(line)) is not None:
            code.append(instruction)
    starts = [0, *(i + 1 for i, at in enumerate(code) if at[2].startswith("USETMAXREG"))]
    return [_region(code, labels, start) for start in starts]


def _region(code: list[re.Match[str]], labels: dict[str, int], start: int) -> tuple[int, int]:
    """The budget and the registers used of the code from a start."""
    budget, used, work, seen = 0, 0, [start], set[int]()
    if start:
        asked = _BUDGET.search(code[start - 1][3].strip())
        assert asked is not None, f"no budget in {code[start - 1][0]}"
        budget = int(asked[1], 0)
    while work:
        at = work.pop()
        if at in seen or at >= len(code):
            continue
        seen.add(at)
        predicate, opcode, operands = code[at].groups()
        if opcode.startswith("USETMAXREG"):
            continue
        used = max(used, _registers_used(opcode, operands.strip()))
        targets = _TARGET.findall(operands)
        work += [labels[label] for label in targets if label in labels]
        is_last = opcode in ("EXIT", "RET") or (opcode == "BRA" and "," not in operands)
        if predicate is not None or not is_last:
            work.append(at + 1)
    return budget, used


def _registers_used(opcode: str, operands: str) -> int:
    """One past the highest register that an instruction names, including all registers of wide operands."""
    width = 4 if ".128" in opcode else 2 if ".64" in opcode else 1
    highest = 0
    for position, operand in enumerate(operands.split(",")):
        for match in _REGISTER.finditer(operand):
            # Brackets hold an address, whose spelling says whether it is a pair.
            count = 2 if match[2] else 1 if "[" in operand else width
            product = _PRODUCT.match(opcode)
            if product is not None and position == 0:  # the accumulators, updated in place
                count = int(product[1]) // (4 if product[2] == "F16" else 2)
            highest = max(highest, int(match[1]) + count)
    return highest


@dataclass(frozen=True)
class _Section:
    name: str
    offset: int
    size: int
    link: int

    def data(self, cubin: bytes) -> bytes:
        return cubin[self.offset : self.offset + self.size]


def _sections(cubin: bytes) -> list[_Section]:
    assert cubin[:5] == b"\x7fELF\x02", "a cubin is a 64-bit ELF file"
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [
        struct.unpack_from("<IIQQQQI", cubin, table + index * entry_size) for index in range(count)
    ]
    names = headers[names_index][4]
    return [
        _Section(_string(cubin, names + name), offset, size, link)
        for name, _, _, _, offset, size, link in headers
    ]


def _symbols(cubin: bytes, sections: dict[str, _Section]) -> list[tuple[str, int]]:
    """Name and `other` byte of every symbol, in the order in which the attributes count them."""
    strings = sections[".strtab"].offset
    entries = struct.iter_unpack("<IBBHQQ", sections[".symtab"].data(cubin))
    return [(_string(cubin, strings + name), other) for name, _, other, _, _, _ in entries]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, position)
        end = position + 4 + (size if form == _FORMAT_SIZED else 0)
        yield attribute, data[position + 4 : end] if form == _FORMAT_SIZED else data[end - 2 : end]
        position = end


def _string(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()
