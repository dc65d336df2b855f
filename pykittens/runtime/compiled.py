"""Compiles a lowered kernel to machine code, through the cache, and reads the resources it uses."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pykittens.aot.launcher import c_files
from pykittens.display import Shown
from pykittens.errors import ArgumentError, BackendError
from pykittens.ir.nodes import Kernel
from pykittens.logger import log
from pykittens.runtime import cache, cubin, nvrtc
from pykittens.targets.emit import emit
from pykittens.targets.source import Source

# The parts of an entry of the cache.
PARTS = {"cubin", "ptx", "log", "about"}
_INCLUDES = re.compile(r"#\s*(include|import)\b|\b__has_include\b")


@dataclass(frozen=True)
class RoleResources:
    """Registers per thread of a role: used by its code, and its budget if warpgroups trade registers."""

    role: str
    used: int
    budget: int | None


@dataclass(frozen=True)
class Resources(Shown):
    """What a compiled kernel uses. registers: per thread at entry; frame: bytes of local memory per thread;
    shared_bytes: shared memory per block; spills: the compiler's remarks on spills, local memory and serialised
    products; roles: the registers of each role, in order of their code (empty without a disassembler)."""

    registers: int
    frame: int
    shared_bytes: int
    threads: int
    spills: tuple[str, ...]
    roles: tuple[RoleResources, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.threads} threads, {self.registers} registers per thread at entry, "
            f"{self.shared_bytes} bytes of shared memory, {self.frame} bytes of local memory per thread"
        ]
        for r in self.roles:
            of = f" of {r.budget}" if r.budget else ""
            lines.append(f"  {r.role}: {r.used} registers{of}")
        return "\n".join([*lines, *self.spills])


@dataclass(frozen=True)
class Compiled:
    """A kernel compiled for one architecture."""

    kernel: Kernel = field(repr=False)
    source: Source
    arch: str
    cubin: bytes
    ptx: str
    log: str

    @cached_property
    def resources(self) -> Resources:
        """Registers, shared memory and spills, read from the machine code."""
        found = cubin.resources(self.cubin)
        spills = tuple(nvrtc.performance_faults(self.log))
        return Resources(
            found.registers,
            found.frame,
            found.shared + self.source.shared_bytes,
            self.source.threads,
            spills,
            self._roles(),
        )

    def _roles(self) -> tuple[RoleResources, ...]:
        if cubin.disassembler() is None:
            return ()
        regions = cubin.registers_by_region(self.sass)
        by_budget: dict[int | None, list[str]] = {}
        for role, budget in self.source.budgets:
            by_budget.setdefault(budget, []).append(role)
        if len(regions) == 1:
            return (
                RoleResources(" + ".join(r for r, _ in self.source.budgets), regions[0][1], None),
            )
        return tuple(
            RoleResources(" + ".join(by_budget.get(budget, ["?"])), used, budget)
            for budget, used in regions
            if budget
        )

    @cached_property
    def sass(self) -> str:
        """The disassembled machine code."""
        return cubin.disassemble(self.cubin)

    def write(self, folder: str | Path) -> list[Path]:
        """Write the cubin, the PTX, the CUDA C++ and a launcher in C with its header to a folder; returns the files."""
        where = Path(folder)
        try:
            where.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            raise ArgumentError(
                f"`out` must be a folder, and {folder} cannot be one: {fault.strerror}"
            ) from None
        stem = f"{self.source.name}.{self.arch}"
        parts = {
            f"{stem}.cubin": self.cubin,
            f"{stem}.ptx": self.ptx.encode(),
            f"{stem}.cu": self.source.text.encode(),
        }
        for name, text in c_files(self.kernel, self.source, self.arch, self.cubin).items():
            parts[name] = text.encode()
        for name, data in parts.items():
            (where / name).write_bytes(data)
        return [where / name for name in parts]


def binary_of(source: Source, arch: str) -> nvrtc.Binary:
    """The machine code of a program. If it spills, the program is also compiled with all registers, and the better
    result is used.
    """
    binary = _binary(source.text, arch, source.name)
    faults = len(nvrtc.performance_faults(binary.log))
    if not faults or source.roomier == source.text:
        return binary
    roomier = _binary(source.roomier, arch, source.name)
    return roomier if len(nvrtc.performance_faults(roomier.log)) < faults else binary


def _binary(text: str, arch: str, name: str) -> nvrtc.Binary:
    """The machine code of a text, from the cache if the same compiler has compiled the same text."""
    began = time.perf_counter()
    compiled = False

    def build() -> dict[str, bytes]:
        nonlocal compiled
        compiled = True
        binary = nvrtc.compile(text, arch, name)
        about = f"{name} for {arch}, NVRTC {'.'.join(map(str, nvrtc.version()))}"
        texts = {"ptx": binary.ptx, "log": binary.log, "about": about}
        return {"cubin": binary.cubin, **{part: text.encode() for part, text in texts.items()}}

    inputs = (cache.package_version(), nvrtc.identity(), arch, name, text, *nvrtc.OPTIONS)
    # The key does not know what a header contains.
    parts = build() if _INCLUDES.search(text) else cache.fetch(cache.key(*inputs), build, PARTS)
    did = "compiled" if compiled else "read from the cache"
    log.info("%s for %s: %s in %.0f ms", name, arch, did, 1e3 * (time.perf_counter() - began))
    ptx, remarks = (parts[part].decode(errors="replace") for part in ("ptx", "log"))
    return nvrtc.Binary(parts["cubin"], ptx, remarks)


def compile_kernel(
    kernel: Kernel, arch: str, debug: bool = False, clocks: bool = False
) -> Compiled:
    """The machine code of a lowered kernel, from the cache if the same text was compiled before."""
    source = emit(kernel, arch, debug, clocks)
    if (missing := nvrtc.available()) is not None:
        raise BackendError(f"{kernel.name} cannot be compiled: {missing}")
    binary = binary_of(source, arch)
    return Compiled(kernel, source, arch, binary.cubin, binary.ptx, binary.log)
