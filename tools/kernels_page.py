"""Writes the list of the library's functions in docs/kernels.md: the signature and the docstring of each."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from pykittens.kernels.library import Entry, load_all

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "kernels.md"
LIST = re.compile(r"(<!-- kernels, .*? -->\n).*(<!-- end of kernels -->)", re.S)
WIDTH = 96


def section(entry: Entry) -> str:
    """A function of the library as a section of the page."""
    function = entry.function
    signature = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    call = f"{entry.name}{signature.replace(parameters=bare, return_annotation=signature.empty)}"
    if len(call) > WIDTH:
        lines = "".join(f"    {parameter},\n" for parameter in bare)
        call = f"{entry.name}(\n{lines})"
    module = function.__module__.removesuffix(".kernel")
    title = f"## {entry.name}\n\n`from {module} import {entry.name}`"
    return f"{title}\n\n```\n{call}\n```\n\n{inspect.getdoc(function)}\n"


def written(document: str) -> str:
    """The document with the list of the library."""
    sections = "\n".join(section(e) for _, e in sorted(load_all().items()))
    return LIST.sub(lambda found: f"{found[1]}\n{sections}\n{found[2]}", document)


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
