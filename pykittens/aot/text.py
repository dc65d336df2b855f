"""C string literals, comments and line breaks, and the C files of this folder."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from importlib.resources import files

INDENT, WIDTH = "    ", 110


def c_string(text: str) -> str:
    """A text as a C string literal, with percent signs doubled for use as a format."""
    parts = []
    for byte in text.replace("%", "%%").encode():
        char = chr(byte)
        if char in '"\\?':  # two question marks may begin a trigraph
            parts.append("\\" + char)
        else:
            parts.append(char if 32 <= byte < 127 else f"\\{byte:03o}")
    return f'"{"".join(parts)}"'


def comment(lines: Iterable[str]) -> list[str]:
    """Lines as C comments. A backslash at the end is removed, because it would continue the comment."""
    return [f"// {line}".rstrip().rstrip("\\").rstrip() for line in lines]


def wrapped(line: str) -> list[str]:
    """A statement as lines of at most WIDTH characters, broken after commas and operators outside string literals."""
    outside = re.sub(r'"(\\.|[^"\\])*"', lambda text: "_" * len(text[0]), line)
    breaks = [m.end() for m in re.finditer(r", |&& |\|\| |[?:] ", outside) if m.end() <= WIDTH]
    if len(line) <= WIDTH or not breaks or line.startswith("//"):
        return [line]
    first, rest = line[: breaks[-1]].rstrip(), line[breaks[-1] :]
    indent = len(line) - len(line.lstrip()) + (0 if line.startswith(INDENT * 2) else 8)
    return [first, *wrapped(" " * indent + rest)]


@functools.cache
def template(name: str) -> str:
    """The text of a C file of this folder."""
    return files("pykittens.aot").joinpath(name).read_text(encoding="utf-8")
