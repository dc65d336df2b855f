"""Pieces of C: names, texts, comments, lines, and the parts of `aot.c`."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from importlib.resources import files

INDENT, WIDTH = "    ", 110


def free_name(stem: str, taken: set[str]) -> str:
    """A name of C that nobody has taken; it is taken from then on."""
    stem = re.sub(r"[^A-Za-z0-9_]", "_", stem)
    name, number = stem, 1
    while name in taken:
        name, number = f"{stem}{number}", number + 1
    taken.add(name)
    return name


def c_string(text: str) -> str:
    """A text as a literal of C, percent signs doubled for a format."""
    parts = []
    for byte in text.replace("%", "%%").encode():
        char = chr(byte)
        if char in '"\\?':  # two question marks may begin a trigraph
            parts.append("\\" + char)
        else:
            parts.append(char if 32 <= byte < 127 else f"\\{byte:03o}")
    return f'"{"".join(parts)}"'


def comment(lines: Iterable[str]) -> list[str]:
    """Texts as comments of C, a line each; a line that ended in a backslash would go on."""
    return [f"// {line}".rstrip().rstrip("\\").rstrip() for line in lines]


def wrapped(line: str) -> list[str]:
    """A statement on lines that are not too long where it has commas and conjunctions outside texts to break at."""
    outside = re.sub(r'"(\\.|[^"\\])*"', lambda text: "_" * len(text[0]), line)
    breaks = [m.end() for m in re.finditer(r", |&& |\|\| ", outside) if m.end() <= WIDTH]
    if len(line) <= WIDTH or not breaks or line.startswith("//"):
        return [line]
    first, rest = line[: breaks[-1]].rstrip(), line[breaks[-1] :]
    indent = len(line) - len(line.lstrip()) + (0 if line.startswith(INDENT * 2) else 8)
    return [first, *wrapped(" " * indent + rest)]


def code_only(text: str) -> str:
    """C without its comments and what stands in its texts."""
    return re.sub(r'"(\\.|[^"\\])*"|//.*', "", text)


@functools.cache
def template(name: str) -> str:
    """A file of C beside this one, with @HOLES@."""
    return files("pykittens.runtime").joinpath(name).read_text(encoding="utf-8")


@functools.cache
def sections() -> dict[str, str]:
    """The functions of `aot.c` by the name that needs them, in the order of the file."""
    parts = re.split(r"^//: (\w+)\n", template("aot.c"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def needed(text: str) -> list[str]:
    """The sections that a text calls, with those that they call."""
    functions = sections()
    found = {"refuse", "driver", "load"}
    waiting = [text]
    while waiting:
        called = set(re.findall(r"(\w+)\(", code_only(waiting.pop())))
        more = [s for s in functions if s in called and s not in found]
        found.update(more)
        waiting += [functions[s] for s in more]
    return [section for name, section in functions.items() if name in found]
