"""Barriers in the CUDA C++ of `pk.inline_cuda`: a warning shows their lines, and no check covers their use."""

from __future__ import annotations

import re

from pykittens.checker.faults import merged
from pykittens.emulate.finding import Finding, FindingStep, Kind, Level, Scope
from pykittens.ir.nodes import Call, Kernel, walk

# CUDA's functions, those of CUTLASS and of the emitted program, and PTX.
_BARRIER = re.compile(
    r"\b(?:__syncthreads(?:_count|_and|_or)?|__barrier_sync(?:_count)?|group_sync"
    r"|NamedBarrier::\w+|named_barrier_(?:sync|arrive)|cuda::(?:barrier|pipeline)"
    r"|(?:bar|barrier)(?:\.cta|\.cluster)?\.(?:sync|arrive|red|wait)|mbarrier\.\w+)\b"
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def unjudged_barriers(kernel: Kernel) -> list[Finding]:
    """A warning for each line whose CUDA C++ names a barrier."""
    found = []
    for node in walk(kernel.body):
        if isinstance(node, Call) and node.op.shown == "inline_cuda":
            words = _BARRIER.findall(_COMMENT.sub(" ", node.args["text"]))
            if words:
                found.append(
                    Finding(
                        Kind.NAMED_BARRIER,
                        f"pk.inline_cuda uses a barrier, `{words[0]}`, and no check covers its use",
                        (FindingStep("the CUDA C++", f"names {_listed(words)}", node.loc),),
                        level=Level.WARNING,
                        scope=Scope.ALWAYS,
                    )
                )
    return merged(found)


def _listed(words: list[str]) -> str:
    return ", ".join(f"`{word}`" for word in dict.fromkeys(words))
