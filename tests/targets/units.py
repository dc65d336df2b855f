"""Many kernels in one compilation: one namespace per kernel, after one copy of the device functions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pykittens.runtime import nvrtc
from pykittens.runtime.compiled import binary_of
from pykittens.targets.source import Source

PER_UNIT = 12


def unit(sources: Sequence[Source]) -> str:
    """The text of one compilation of kernels for one target."""
    (functions,) = {s.functions for s in sources}
    programs = [s.program.replace('extern "C" ', "") for s in sources]
    spaces = [f"namespace kernel{i} {{\n{text}\n}}" for i, text in enumerate(programs)]
    return "\n".join([functions, *spaces])


def faults(sources: Sequence[Source], arch: str) -> list[str]:
    """What the compiler says against the kernels: spills, local memory and serialised products.

    Of a kernel alone that is what is left when it has been given all registers.
    """
    log = nvrtc.compile(unit(sources), arch, "unit").log
    blamed = {number for line in nvrtc.performance_faults(log) for number in numbers(line)}
    return [
        f"{sources[i].name}: {line}"
        for i in sorted(blamed)
        for line in nvrtc.performance_faults(binary_of(sources[i], arch).log)
    ]


def numbers(line: str) -> list[int]:
    """The kernel that a line of the log names in its mangled way: `_ZN7kernel86kernel...` is number 8."""
    found = re.search(r"_ZN(\d+)kernel", line)
    assert found, f"a fault of no kernel: {line}"
    length = int(found[1]) - len("kernel")
    return [int(line[found.end() : found.end() + length])]
