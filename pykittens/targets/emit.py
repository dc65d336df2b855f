"""The entry point of code generation: writes the program of a lowered kernel for an architecture."""

from __future__ import annotations

from pykittens import settings
from pykittens.ir.nodes import Kernel
from pykittens.targets.architectures import target_for
from pykittens.targets.cuda.program import emit as emit_cuda
from pykittens.targets.source import Source


def emit(kernel: Kernel, arch: str, debug: bool = False, clocks: bool = False) -> Source:
    """The program of a lowered kernel for an architecture such as `sm_90a`, for debugging or with clock reads."""
    return emit_cuda(kernel, target_for(arch, settings.target()), debug, clocks)
