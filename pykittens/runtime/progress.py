"""The progress of a tuning run: steps, and the line on a terminal that shows them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TextIO

Stage = Literal[
    "compiled", "measured", "measured again", "checked", "compared", "done", "not measured"
]


@dataclass(frozen=True)
class Step:
    """One step: so many of so many are done in a stage. best: the fastest so far, in milliseconds.

    note: what a candidate is left out for; of the last step, what was chosen.
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
    """`progress`, or where it is None a line on standard error that changes; nothing where that is no terminal."""
    if progress is not None:
        yield progress
        return
    stream = sys.stderr if stream is None else stream
    if stream is None or not stream.isatty():
        yield lambda step: None
        return
    written = False

    def show(step: Step) -> None:
        nonlocal written
        width = shutil.get_terminal_size().columns - 1
        # Back to the start of the line, and erase what is longer there.
        stream.write(f"\r{str(step).splitlines()[0][:width]}\x1b[K")
        stream.flush()
        written = True

    try:
        yield show
    finally:
        if written:
            stream.write("\n")
            stream.flush()
