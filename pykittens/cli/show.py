"""`pykittens show`: prints the stages of a kernel, from its IR to machine code, and pictures of layouts."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from pykittens.cli import arguments, screen
from pykittens.cli.arguments import Request
from pykittens.ir.text import text
from pykittens.pictures.picture import picture
from pykittens.runtime.arguments import check
from pykittens.runtime.compiled import Compiled
from pykittens.types.text import parse


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "show", help="show a kernel as IR, CUDA C++ or machine code, or the layout of a tile"
    )
    whats = parser.add_subparsers(title="what to show", metavar="what")
    parser.set_defaults(run=screen.usage_of(parser))
    for name, (help, make) in SHOWN.items():
        what = whats.add_parser(name, help=help, description=f"Print {help}.")
        arguments.add(what)
        arguments.add_arch(what)
        what.set_defaults(run=_of_kernel, make=make)
        screen.add_output(what)
    layout = whats.add_parser("layout", help="a picture of a type: which lane holds which element")
    layout.add_argument("type", metavar="TYPE", help="such as 'rt<bf16, 64x64>'")
    layout.add_argument("--warps", type=int, default=4, help="warps of the group; the default is 4")
    layout.set_defaults(run=_layout)
    screen.add_output(layout)


def _of_kernel(parsed: argparse.Namespace) -> int:
    return _show(parsed.make(arguments.request(parsed), parsed.arch), parsed.output)


def _layout(parsed: argparse.Namespace) -> int:
    return _show(picture(parse(parsed.type), parsed.warps), parsed.output)


def _show(text: str, output: str | None) -> int:
    """Print a text, or write it to a file, with one line end after it."""
    screen.write(text.rstrip("\n") + "\n", output)
    return 0


def _ir(request: Request, arch: str) -> str:
    """The recorded kernel; it is the same for all architectures."""
    kernel = request.kernel
    return text(kernel.record(check(kernel.parameters, request.args, request.constants)))


def _source(request: Request, arch: str) -> str:
    return request.kernel.source(*request.args, arch=arch, **request.constants)


def _compiled(request: Request, arch: str) -> Compiled:
    return request.kernel.compile(*request.args, arch=arch, **request.constants)


SHOWN: dict[str, tuple[str, Callable[[Request, str], str]]] = {
    "ir": ("the recorded kernel", _ir),
    "source": ("the CUDA C++", _source),
    "ptx": ("the PTX", lambda request, arch: _compiled(request, arch).ptx),
    "sass": ("the disassembled machine code", lambda request, arch: _compiled(request, arch).sass),
    "resources": (
        "registers, spills and shared memory",
        lambda request, arch: str(_compiled(request, arch).resources),
    ),
}
