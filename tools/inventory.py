"""Writes the lists of folders and files in docs/architecture.md, from the docstrings of the package.

Each folder and file is listed with the first sentence of its docstring, or of its first comment line in CUDA C++ or C,
in the order of the layers.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.test_layers import ORDER

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pykittens"
DOCUMENT = ROOT / "docs" / "architecture.md"

# A list is between two comments; the first names it.
LIST = re.compile(r"(<!-- (\w+), written by tools/inventory.py -->\n).*?(<!-- end of \2 -->)", re.S)
SENTENCE = re.compile(r".*?\.(?= |$)")
# Files that open with no sentence. Their comments are part of the emitted programs.
UNTITLED = {
    "launcher.c": "Loads and launches a kernel through the CUDA driver, whose functions it looks up at run time.",
    "launcher.h": "The header of a compiled kernel: its functions, and the arguments that they take.",
    "math.cuh": "Device functions on single elements: integer arithmetic and functions of floats.",
}


def sentence(file: Path) -> str:
    """The first sentence of a module's docstring or opening comment; empty unless it is complete on the first line."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".py":
        opening = UNTITLED.get(file.name) or text.partition("\n")[0].removeprefix("// ")
    else:
        opening = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    found = SENTENCE.match(opening)
    return found[0] if found else ""


def sources(folder: Path) -> list[Path]:
    """The files of a folder that are listed: Python, CUDA C++ and C."""
    return sorted(p for p in folder.iterdir() if p.suffix in (".py", ".cuh", ".c", ".h"))


def layers() -> Iterator[Path]:
    """The folders and files of the package in order, each folder before the folders in it."""
    for name in ORDER:
        folder = PACKAGE / name
        if name == PACKAGE.name:
            yield PACKAGE / "__init__.py"
        elif not folder.is_dir():
            yield folder.with_suffix(".py")
        else:
            yield folder
            yield from sorted(p.parent for p in folder.rglob("*/__init__.py"))


def folders() -> str:
    """The tree of folders, one line per folder."""
    lines = ["```", f"{PACKAGE.name}/"]
    for path in layers():
        *parents, name = path.relative_to(PACKAGE).parts
        indented = "  " * (len(parents) + 1) + (f"{name}/" if path.is_dir() else name)
        opening = path / "__init__.py" if path.is_dir() else path
        lines.append(f"{indented:16} {sentence(opening)}")
    return "\n".join([*lines, "```", ""])


def files() -> str:
    """A table for each folder, a row for each of its files."""
    tables = []
    for folder in (path for path in layers() if path.is_dir()):
        rows = [
            f"| `{file.name}` | {sentence(file)} |"
            for file in sources(folder)
            if file.name != "__init__.py"
        ]
        title = f"### `{folder.relative_to(PACKAGE).as_posix()}/`"
        tables.append("\n".join([title, "", "| file | |", "|---|---|", *rows, ""]))
    return "\n".join(tables)


def written(document: str) -> str:
    """The document with the lists of the package."""
    lists = {"folders": folders, "files": files}
    return LIST.sub(lambda found: f"{found[1]}{lists[found[2]]()}{found[3]}", document)


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
