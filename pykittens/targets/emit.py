"""The one door to code generation: a lowered kernel and an architecture in, a program out."""

from __future__ import annotations

from pykittens import settings
from pykittens.ir.nodes import Kernel
from pykittens.targets.architectures import target_for
from pykittens.targets.cuda.program import emit as emit_cuda
from pykittens.targets.source import Source


def emit(kernel: Kernel, arch: str, debug: bool = False) -> Source:
    """The program of a lowered kernel for an architecture such as `sm_90a`, or one for debugging."""
    return emit_cuda(kernel, target_for(arch, settings.target()), debug)
