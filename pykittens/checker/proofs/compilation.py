"""Compiles a checked kernel: what the compiler refuses, at the user's lines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from pykittens.checker.faults import caught_in
from pykittens.emulate.finding import Finding, FindingStep, Kind, Level, Scope
from pykittens.errors import Loc
from pykittens.ir.nodes import Call, Kernel, calls
from pykittens.runtime import nvrtc
from pykittens.runtime.compiled import Compiled, compile_kernel

# An error of the compiler with the line that it quotes, and an error of the assembler, whose lines are those of PTX.
_ERROR = re.compile(
    r"^(.+)\((\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (.+)\n(.*)", re.MULTILINE
)
_ASSEMBLER = re.compile(r"^ptxas .*?error\s*: (.+)", re.MULTILINE)
_DIRECTIVE = re.compile(r'#line (\d+) "(.*)"')

_OF_TEXT = "correct the text of pk.inline_cuda; `{0}`, `{1}`, … are its operands, and other braces are doubled"
_OF_PACKAGE = (
    "the text is the package's own, so this is a fault of the package: report it with the kernel"
)


class Compilation(NamedTuple):
    """The machine code of a kernel; or None, and the errors of the compiler, or what is missing for a compilation."""

    compiled: Compiled | None = None
    findings: Sequence[Finding] = ()
    missing: str = ""


def try_compile(kernel: Kernel, arch: str) -> Compilation:
    """Compile a kernel that can be emitted."""
    if (missing := _missing(arch)) is not None:
        return Compilation(missing=missing)
    found: list[Finding] = []
    try:
        with caught_in(found, scope=Scope.ALWAYS):
            return Compilation(compile_kernel(kernel, arch))
    except nvrtc.CompileFailure as failure:
        return Compilation(findings=tuple(_refusals(kernel, failure, arch)))
    step = FindingStep(kernel.name, "is compiled", name_line(kernel))
    return Compilation(findings=[replace(f, steps=(step,)) for f in found])


def _missing(arch: str) -> str | None:
    """What a compilation for an architecture lacks; None if it lacks nothing."""
    if (missing := nvrtc.available()) is not None or arch.rstrip("af") in nvrtc.architectures():
        return missing
    return f"NVRTC {'.'.join(map(str, nvrtc.version()))} does not know {arch}"


def name_line(kernel: Kernel) -> Loc | None:
    """The line of the name of a kernel, which may have decorators above it."""
    loc = kernel.loc
    while loc is not None and loc.text and not loc.text.lstrip().startswith(("def ", "async def ")):
        loc = Loc(loc.file, loc.line + 1, loc.function)
    return loc if loc is not None and loc.text else kernel.loc


def _refusals(kernel: Kernel, failure: nvrtc.CompileFailure, arch: str) -> Iterator[Finding]:
    """A finding for each line with errors."""
    inline = [c for c in calls(kernel.body) if c.op.shown == "inline_cuda"]
    errors: dict[tuple[FindingStep, ...], list[str]] = {}
    for file, line, message, quoted in _ERROR.findall(failure.log):
        text = re.compile(rf"\s*{re.escape(quoted.strip())}\s*$")
        lines = user_lines(failure.source, file, int(line), text)
        call = call_at(kernel, lines[0]) if lines else None
        errors.setdefault(_steps(kernel, [call] if call is not None else inline), []).append(
            message
        )
    if by_assembler := _ASSEMBLER.findall(failure.log):
        errors.setdefault(_steps(kernel, inline), []).extend(by_assembler)
    if not errors:
        said = failure.log.strip().splitlines() or ["the compiler does not say why"]
        errors[_steps(kernel, inline)] = [said[-1]]
    for steps, messages in errors.items():
        of_text = any(step.loc == c.loc for step in steps for c in inline)
        yield Finding(
            Kind.FAULT,
            f"{kernel.name} does not compile for {arch}: {messages[0]}",
            steps,
            help=_OF_TEXT if of_text else _OF_PACKAGE,
            level=Level.ERROR,
            scope=Scope.ALWAYS,
        )


def _steps(kernel: Kernel, at: list[Call]) -> tuple[FindingStep, ...]:
    """The lines to blame: those of calls or, without any, that of the kernel's name."""
    if not at:
        return (FindingStep(kernel.name, "is compiled", name_line(kernel)),)
    return tuple(FindingStep("", "", loc) for loc in dict.fromkeys(c.loc for c in at))


def user_lines(source: str, file: str, line: int, text: re.Pattern[str]) -> list[tuple[str, int]]:
    """The files and lines of the directives above the lines of this text and number in a program.

    The compiler counts on from a directive, so the number alone may belong to several lines of the program.
    """
    directive: tuple[str, int] | None = None
    number, found = 0, []
    for each in source.splitlines():
        if match := _DIRECTIVE.match(each):
            directive, number = (match[2], int(match[1])), int(match[1]) - 1
        else:
            number += 1
            if (
                directive is not None
                and (directive[0], number) == (file, line)
                and text.match(each)
            ):
                found.append(directive)
    return list(dict.fromkeys(found))


def call_at(kernel: Kernel, line: tuple[str, int]) -> Call | None:
    """A call of a line of the user's, `pk.inline_cuda` before others."""
    found = [
        c
        for c in calls(kernel.body)
        if c.loc is not None and (os.path.basename(c.loc.file), c.loc.line) == line
    ]
    return min(found, key=lambda c: c.op.shown != "inline_cuda", default=None)
