"""Writes the lists of folders and files in docs/architecture.md, from the docstrings of the package.

Each folder and file is listed with the first sentence of its docstring, in the order of the layers.
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


def sentence(file: Path) -> str:
    """The first sentence of a module's docstring; empty unless it is complete on the first line."""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    found = SENTENCE.match(docstring.partition("\n")[0])
    return found[0] if found else ""


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
            for file in sorted(folder.glob("*.py"))
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
