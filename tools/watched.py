"""Runs tasks in another process, and in a new one after a task kills or hangs it."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

CONTEXT = multiprocessing.get_context("spawn")
START = 40  # seconds in addition for the first task of a process
HANGS, KILLED = "hangs", "killed the process"


class Worker:
    """A process that says what is wrong with tasks."""

    def __init__(self, fault_of: Callable[[Any], str]) -> None:
        self.fault_of = fault_of
        self.process: Any = None
        self.pipe: Any = None

    def fault(self, task: Any, seconds: float) -> str:
        """The fault of a task, which is empty if the task is right; `seconds` is its limit."""
        if self.process is None:
            self._start()
            seconds += START
        try:
            self.pipe.send(task)
            fault = self.pipe.recv() if self.pipe.poll(seconds) else HANGS
        except (EOFError, ConnectionError):
            fault = KILLED
        # A fault of the GPU leaves no context.
        if fault in (HANGS, KILLED) or "CUDA" in fault or "launching" in fault:
            self.stop()
        return str(fault)

    def _start(self) -> None:
        self.pipe, other = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_run, args=(self.fault_of, other), daemon=True)
        self.process.start()
        other.close()  # so that the pipe ends with the process

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.pipe.close()
            self.process = None


def watched(
    fault_of: Callable[[Any], str], tasks: Sequence[Any], seconds: float
) -> Iterator[tuple[Any, str]]:
    """Each task with its fault; `seconds` is the limit for one task."""
    worker = Worker(fault_of)
    try:
        for task in tasks:
            yield task, worker.fault(task, seconds)
    finally:
        worker.stop()


def _run(fault_of: Callable[[Any], str], pipe: Any) -> None:
    # The pipe ends with the process at its other end.
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            pipe.send(fault_of(pipe.recv()))
