"""The lines of an emitted program."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pykittens.errors import Loc


class Lines:
    """Lines of C++, indented by the braces that are open, each below the user's line it belongs to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.line_now = 0  # the user's

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append("    " * self.depth + text)

    def write(self, lines: Iterable[str]) -> None:
        """Add several lines."""
        for text in lines:
            self.line(text)

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
        """Say which line of the user's the text below belongs to."""
        if loc is not None and loc.line != self.line_now:
            self.line_now = loc.line
            self.lines.append(f'#line {loc.line} "{os.path.basename(loc.file)}"')
            if source := loc.text.strip():
                self.line(f"// {source.rstrip(chr(92))}")
