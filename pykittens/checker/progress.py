"""The progress of a check: a line that shows the schedule, the share of it that is done, and the time that is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from math import prod
from typing import TextIO

from pykittens.emulate.block import BlockRun
from pykittens.emulate.group import Group
from pykittens.emulate.watch import Watcher
from pykittens.ir.nodes import Call, ForTasks, Kernel, Tasks, walk
from pykittens.runtime.progress import TerminalLine

SILENT = 2.0  # seconds before the first line
ON_TERMINAL, ELSEWHERE = 0.2, 30.0  # seconds between two lines
MANY = 10_000  # blocks or tasks of a launch that is announced at once
UNLOOKED = 500  # operations between two looks at the clock


class CheckProgress(Watcher):
    """Shows how far the runs of a check are.

    On a terminal one line is rewritten; elsewhere there is a line every ELSEWHERE seconds.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream, self.clock = stream, clock
        self.line = TerminalLine(stream) if stream.isatty() else None
        self.operations = 0

    def starts(self, kernel: Kernel, number: int, schedules: int) -> None:
        """The run of the `number`-th schedule, from 0, starts."""
        if number == 0:
            self.began = self.clock()
            self.next = self.began + (SILENT if self.line else ELSEWHERE)
        self.kernel, self.number, self.schedules = kernel, number, schedules
        self.done = self.total = 0

    def __enter__(self) -> CheckProgress:
        """The runs begin."""
        return self

    def __exit__(self, *error: object) -> None:
        """The last run is over, or an error has ended it."""
        if self.line is not None:
            self.line.end()

    def together(self, blocks: Sequence[BlockRun], groups: Sequence[Group]) -> None:
        if self.total:
            return
        launch = blocks[0].launch
        if isinstance(self.kernel.launch, Tasks):
            looping = [
                r for r in self.kernel.roles if any(isinstance(n, ForTasks) for n in walk(r.body))
            ]
            units, count = "tasks", prod(launch.extents)
            self.total = count * sum(r.groups for r in looping)
        else:
            units, count = "blocks", launch.clusters * self.kernel.cluster
            self.total = count * sum(r.groups for r in self.kernel.roles)
        if self.number == 0 and count >= MANY:
            self.show(f"{count} {units} in each of {self.schedules} schedules")

    def begins(self, group: Group, task: int) -> None:
        if isinstance(self.kernel.launch, Tasks):
            self.done += 1
            self.look()

    def ended(self, group: Group) -> None:
        if not isinstance(self.kernel.launch, Tasks):
            self.done += 1
            self.look()

    def runs(self, group: Group, call: Call) -> None:
        self.operations += 1
        if self.operations % UNLOOKED == 0:
            self.look()

    def look(self) -> None:
        """Show a line if it is time for one."""
        now = self.clock()
        if now < self.next:
            return
        self.next = now + (ON_TERMINAL if self.line else ELSEWHERE)
        share = min(self.done / self.total, 1.0) if self.total else 0.0
        over = (self.number + share) / self.schedules
        passed = now - self.began
        left = f", about {_duration(passed * (1 - over) / over)} left" if over else ""
        self.show(
            f"schedule {self.number + 1} of {self.schedules}, {100 * share:.0f}% of it, "
            f"{_duration(passed)}{left}"
        )

    def show(self, text: str) -> None:
        """Write a line."""
        text = f"checking {self.kernel.name}: {text}"
        if self.line is not None:
            self.line.show(text)
        else:
            self.stream.write(f"{text}\n")
            self.stream.flush()


def terminal_progress() -> CheckProgress | None:
    """The progress of a check on stderr; None if stderr is no terminal."""
    stream: TextIO | None = sys.stderr  # a windowed program has none
    return CheckProgress(stream) if stream is not None and stream.isatty() else None


def _duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"
