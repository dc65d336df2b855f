"""Writes the list of the library's functions in docs/kernels.md: the signature and the docstring of each."""

from __future__ import annotations

import inspect
import re
import sys
from inspect import isfunction
from pathlib import Path

from pykittens.kernels.library import HostFunction, load_all

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "kernels.md"
LIST = re.compile(r"(<!-- kernels, .*? -->\n).*(<!-- end of kernels -->)", re.S)
WIDTH = 96


def section(function: HostFunction) -> str:
    """A function of the library as a section of the page."""
    name, signature = function.__name__, inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    call = f"{name}{signature.replace(parameters=bare, return_annotation=signature.empty)}"
    if len(call) > WIDTH:
        lines = "".join(f"    {parameter},\n" for parameter in bare)
        call = f"{name}(\n{lines})"
    module, package = function.__module__, function.__module__.rpartition(".")[0]
    if getattr(sys.modules[package], name, None) is function:
        module = package
    title = f"## {name}\n\n`from {module} import {name}`"
    return f"{title}\n\n```\n{call}\n```\n\n{inspect.getdoc(function)}\n"


def functions() -> dict[str, HostFunction]:
    """The host functions of the library by name; some, such as gradients, are no entries of its table."""
    load_all()
    modules = [m for name, m in sys.modules.items() if name.startswith("pykittens.kernels.")]
    return {
        f.__name__: f
        for m in modules
        for f in vars(m).values()
        if isfunction(f) and hasattr(f, "plan")
    }


def written(document: str) -> str:
    """The document with the list of the library."""
    sections = "\n".join(section(f) for _, f in sorted(functions().items()))
    return LIST.sub(lambda found: f"{found[1]}\n{sections}\n{found[2]}", document)


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
