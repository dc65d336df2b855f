"""Speed that a program loses against its text: products of single warps, and the compiler's remarks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pykittens import settings
from pykittens.checker.faults import merged
from pykittens.checker.proofs.compilation import name_line
from pykittens.emulate.finding import Finding, FindingStep, Kind, Level, Scope
from pykittens.ir.nodes import Call, Kernel, Role, calls
from pykittens.ir.op import Engine
from pykittens.ir.values import SharedTile
from pykittens.runtime.compiled import Compiled
from pykittens.runtime.nvrtc import performance_faults
from pykittens.targets.architectures import target_for

_SPILLED = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_FRAME = re.compile(r"Local memory used .*size of stack frame: (\d+) bytes")
_REMARK = re.compile(
    r"\(C75\d\d\) (?:Potential Performance Loss: )?(.*?)(?: in (?:the )?function .*)?$"
)


def slow_products(kernel: Kernel, arch: str) -> list[Finding]:
    """A note for each product of a warpgroup that a GPU with warpgroup products computes on single warps."""
    declines = target_for(arch, settings.target()).engines.get(Engine.PRODUCT)
    if declines is None:
        return []
    return merged(
        _note(
            f"the product does not use the warpgroup instruction: {reason}",
            (FindingStep(role.kind, "multiplies on single warps", call.loc),),
            help=_help_for(call),
        )
        for role in kernel.roles
        if role.is_warpgroup
        for call in _products(role)
        if (reason := declines(role, call)) is not None
    )


def _help_for(call: Call) -> str:
    if isinstance(call.args["a"], SharedTile):
        return "store the operands with k along their rows and use pk.mma_ABt, or convert them to bf16 or f16"
    return "store `a` to a shared tile and multiply that, or convert the operands to bf16 or f16"


def remarks(kernel: Kernel, compiled: Compiled) -> list[Finding]:
    """A note for each remark of the compiler about lost speed; spills and local memory are one note."""
    return merged([*_local_memory(kernel, compiled), *_others(kernel, compiled)])


def _local_memory(kernel: Kernel, compiled: Compiled) -> Iterator[Finding]:
    lines = performance_faults(compiled.log)
    spilled = next((m for line in lines if (m := _SPILLED.search(line))), None)
    frame = next((m for line in lines if (m := _FRAME.search(line))), None)
    step = FindingStep(kernel.name, "is compiled", name_line(kernel))
    if spilled is not None:
        full = [
            f"{r.role} uses {r.used} of {r.budget}"
            for r in compiled.resources.roles
            if r.budget is not None and r.used + 8 > r.budget
        ]
        yield _note(
            f"a thread has too few registers: {spilled[1]} bytes are spilled to local memory, and {spilled[2]} are "
            "loaded again",
            (step,),
            missing=f"registers: {', '.join(full)}" if full else "",
            help="use smaller tiles, more warps or groups, or more registers for the role, pk.consumers(registers=…)",
        )
    elif frame is not None:
        yield _note(
            f"a thread keeps {frame[1]} bytes in local memory",
            (step,),
            help="an array that is indexed at run time, in pk.inline_cuda, has no registers",
        )


def _others(kernel: Kernel, compiled: Compiled) -> Iterator[Finding]:
    """One note for all remarks about products, which have no line of the user's, and one for each other remark."""
    lines = performance_faults(compiled.log)
    found = [m[1] for line in lines if (m := _REMARK.search(line)) is not None]
    of_products = sorted((f for f in found if "wgmma" in f), key=lambda f: "serialized" not in f)
    if of_products:
        yield _note(
            f"the compiler remarks: {of_products[0]}",
            tuple(
                FindingStep(role.kind, "multiplies", loc)
                for role in kernel.roles
                for loc in dict.fromkeys(c.loc for c in _products(role))
            ),
            help="use fewer registers, and let nothing between the products of a chain change their accumulator or the "
            "registers that they read",
        )
    for remark in found:
        if remark not in of_products:
            yield _note(
                f"the compiler remarks: {remark}",
                (FindingStep(kernel.name, "is compiled", name_line(kernel)),),
            )


def _products(role: Role) -> list[Call]:
    return [c for c in calls(role.body) if c.op.effects.engine is Engine.PRODUCT]


def _note(
    message: str, steps: tuple[FindingStep, ...], *, missing: str = "", help: str = ""
) -> Finding:
    return Finding(Kind.SPEED, message, steps, missing, help, level=Level.NOTE, scope=Scope.ALWAYS)
