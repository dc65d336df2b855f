"""The lines of an emitted program."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pykittens.errors import Loc

SHORT = 2  # iterations of a short loop
MANY = 400  # short loops of a program that are written out
_LOOP = re.compile(
    r"( *)UNROLL for \(int (\w+) = 0; \2 < (\d+); (?:\+\+\2|\2 \+= (\d+))\) (.*[;{])"
)


class Lines:
    """Lines of C++, indented by open braces, each below the user's line that it comes from."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.line_now = 0  # of the user's file

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append("    " * self.depth + text)

    def write(self, lines: Iterable[str]) -> None:
        """Add several lines."""
        for text in lines:
            self.line(text)

    def each(self, count: int, statement: str, step: int | None = None) -> None:
        """Add an unrolled loop of one statement, over `i` below a count."""
        self.line(f"{unrolled(count, step=step)} {statement}")

    @contextmanager
    def braces(self, head: str, tail: str | None = "}") -> Iterator[None]:
        """A block below a head that ends in `{`; without a tail the next head closes it."""
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1
        if tail is not None:
            self.line(tail)

    def at(self, loc: Loc | None) -> None:
        """Name the user's line that the following text comes from."""
        if loc is not None and loc.line != self.line_now:
            self.line_now = loc.line
            file = os.path.basename(loc.file).replace("\\", "\\\\").replace('"', '\\"')
            self.lines.append(f'#line {loc.line} "{file}"')
            if source := loc.text.strip():
                self.line(comment(source))


def comment(text: str) -> str:
    """A line as a C++ comment; a backslash or its trigraph at the end would continue the comment."""
    return "// " + re.sub(r"(\\|\?\?/|\s)+$", "", text)


def unrolled(count: int | str, i: str = "i", first: int = 0, step: int | None = None) -> str:
    """The head of an unrolled loop."""
    increment = f"++{i}" if step is None else f"{i} += {step}"
    return f"UNROLL for (int {i} = {first}; {i} < {count}; {increment})"


def written_out(lines: list[str]) -> list[str]:
    """A program in which short loops of one statement, and blocks that run once, are no loops if there are many.

    The compiler simplifies a program again after it has unrolled loops: 2,000 short ones took it half a minute, and
    a quarter of that without them.
    """
    loops = {i: found for i, line in enumerate(lines) if (found := _LOOP.fullmatch(line))}
    if len(loops) < MANY:  # as of nearly all programs
        return lines
    made = {i: text for i, loop in loops.items() if (text := _no_loop(loop, lines, i))}
    if len(made) < MANY:
        return lines
    return [text for i, line in enumerate(lines) for text in made.get(i, [line])]


def _no_loop(loop: re.Match[str], lines: list[str], at: int) -> list[str]:
    """The lines in place of that with the head of a loop; none if it stays."""
    indent, i, count, step, body = loop.groups()
    times = range(0, int(count), int(step or 1))
    if body == "{":
        inside = lines[at : lines.index(f"{indent}}}", at)]
        stays = len(times) > 1 or any("continue;" in line for line in inside)
        return [] if stays else [f"{indent}{{", f"{indent}    const int {i} = 0;"]
    if len(times) > SHORT or "{" in body or "for (" in body:
        return []
    return [indent + re.sub(rf"\b{i}\b", str(time), body) for time in times]
