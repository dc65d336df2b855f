"""The progress of a tuning run: steps, and the line of a terminal that shows them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TextIO

Stage = Literal[
    "waiting",
    "compiled",
    "measured",
    "measured again",
    "checked",
    "compared",
    "done",
    "not measured",
]


@dataclass(frozen=True)
class Step:
    """One step: `done` of `total` candidates in a stage. best: the fastest time so far, in milliseconds.

    note: why a candidate was skipped; in the last step, the choice.
    """

    kernel: str
    stage: Stage
    done: int = 0
    total: int = 0
    best: float | None = None
    note: str = ""

    def __str__(self) -> str:
        parts = [] if self.total == 0 else [f"{self.stage} {self.done} of {self.total}"]
        parts += [] if self.best is None else [f"best {self.best:.4g} ms"]
        parts += [self.note] if self.note else []
        return f"tuning {self.kernel}: {', '.join(parts)}"


Progress = Callable[[Step], object]


@contextmanager
def shown(progress: Progress | None, stream: TextIO | None = None) -> Iterator[Progress]:
    """`progress`; if it is None, a line on standard error that is rewritten, or nothing if that is not a terminal."""
    if progress is not None:
        yield progress
        return
    stream = sys.stderr if stream is None else stream
    if stream is None or not stream.isatty():
        yield lambda step: None
        return
    line = TerminalLine(stream)
    try:
        yield lambda step: line.show(str(step).splitlines()[0])
    finally:
        line.end()


class TerminalLine:
    """A line of a terminal that is rewritten."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.is_written = stream, False

    def show(self, text: str) -> None:
        """Write the line anew."""
        width = shutil.get_terminal_size().columns - 1
        # Return to the start of the line, and erase the rest of a longer line.
        self.stream.write(f"\r{text[:width]}\x1b[K")
        self.stream.flush()
        self.is_written = True

    def end(self) -> None:
        """Keep the text; what follows begins a new line."""
        if self.is_written:
            self.stream.write("\n")
            self.stream.flush()
            self.is_written = False
