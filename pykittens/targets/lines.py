"""The lines of an emitted program."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pykittens.errors import Loc


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
