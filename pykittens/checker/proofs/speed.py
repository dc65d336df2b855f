"""Speed that a program loses against its text: products of single warps, and the compiler's remarks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from pykittens import settings
from pykittens.checker.faults import merged
from pykittens.checker.proofs.compilation import call_at, name_line, user_lines
from pykittens.emulate.finding import Finding, FindingStep, Kind, Level, Scope
from pykittens.errors import Loc
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
# The line of PTX that a remark names, and what PTX says of the source of the instructions that follow.
_NUMBER = re.compile(r" in (?:around )?line (\d+)")
_FILE = re.compile(r'^\s*\.file\s+(\d+) "(.*)"', re.MULTILINE)
_PLACE = re.compile(r"^\s*\.loc\s+(\d+) (\d+) (\d+)(?:.*\binlined_at (\d+) (\d+) (\d+))?")


def slow_products(kernel: Kernel, arch: str) -> list[Finding]:
    """A note for each product of a warpgroup that a GPU with warpgroup products computes on single warps."""
    declines = target_for(arch, settings.target()).engines.get(Engine.PRODUCT)
    if declines is None:
        return []
    return merged(
        _note(
            f"the product does not use the warpgroup instruction: {reason}",
            (FindingStep(role.shown, "multiplies on single warps", call.loc),),
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
    """One note for all remarks about products, at their lines and the products, and one for each other remark."""
    lines = performance_faults(compiled.log)
    found = [(m[1], line) for line in lines if (m := _REMARK.search(line)) is not None]
    of_products = sorted(
        (f for f in found if "wgmma" in f[0]), key=lambda f: "serialized" not in f[0]
    )
    if of_products:
        named = [loc for _, line in of_products if (loc := _user_line(kernel, compiled, line))]
        steps = [FindingStep("the compiler", "names this line", loc) for loc in named]
        steps += [
            FindingStep(role.shown, "multiplies", c.loc)
            for role in kernel.roles
            for c in _products(role)
        ]
        yield _note(
            f"the compiler remarks: {_NUMBER.sub('', of_products[0][0])}",
            tuple(dict.fromkeys(steps)),
            help="use fewer registers, and let nothing between the products of a chain change their accumulator or the "
            "registers that they read",
        )
    for remark, _ in found:
        if "wgmma" not in remark:
            yield _note(
                f"the compiler remarks: {remark}",
                (FindingStep(kernel.name, "is compiled", name_line(kernel)),),
            )


def _user_line(kernel: Kernel, compiled: Compiled, remark: str) -> Loc | None:
    """The line of the kernel for the line of PTX that a remark names; None if it names none, or if it is ambiguous."""
    number = _NUMBER.search(remark)
    above = compiled.ptx.splitlines()[: int(number[1])] if number is not None else []
    place = next((m for text in reversed(above) if (m := _PLACE.search(text))), None)
    if place is None:
        return None
    # A device function is inlined at a line of the program.
    file, line, column = (place[4], place[5], place[6]) if place[4] else place.groups()[:3]
    name = os.path.basename(dict(_FILE.findall(compiled.ptx))[file])
    begins = re.compile(rf".{{{int(column) - 1}}}\b\w")  # a word begins at this column
    found = user_lines(compiled.source.text, name, int(line), begins)
    call = call_at(kernel, found[0]) if len(found) == 1 else None
    return call.loc if call is not None else None


def _products(role: Role) -> list[Call]:
    return [c for c in calls(role.body) if c.op.effects.engine is Engine.PRODUCT]


def _note(
    message: str, steps: tuple[FindingStep, ...], *, missing: str = "", help: str = ""
) -> Finding:
    return Finding(Kind.SPEED, message, steps, missing, help, level=Level.NOTE, scope=Scope.ALWAYS)
