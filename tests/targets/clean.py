"""What the compiler says of a kernel, from its log and its machine code.

`Compiled.resources` tells the registers of each role, too, and has the code disassembled for it, which takes longer
than many a compilation.
"""

from __future__ import annotations

from pykittens.runtime import cubin, nvrtc
from pykittens.runtime.compiled import Compiled


def spills(compiled: Compiled) -> list[str]:
    """The compiler's remarks on spills, local memory and serialised products."""
    return nvrtc.performance_faults(compiled.log)


def frame(compiled: Compiled) -> int:
    """Bytes of local memory a thread."""
    return cubin.resources(compiled.cubin).frame


def shared_bytes(compiled: Compiled) -> int:
    """Bytes of shared memory a block."""
    return cubin.resources(compiled.cubin).shared + compiled.source.shared_bytes
