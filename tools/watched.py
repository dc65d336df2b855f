"""Runs tasks one after another in a process, and in a new process after a task kills or hangs it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

CONTEXT = multiprocessing.get_context("spawn")
START = 40  # seconds in addition for the first task of a process


def watched(
    fault_of: Callable[[Any], str], tasks: Sequence[Any], seconds: float
) -> Iterator[tuple[Any, str]]:
    """Each task with its fault, which is empty if the task is right; `seconds` is the limit for one task."""
    while tasks:
        receiver, sender = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(target=_run, args=(fault_of, tasks, sender))
        process.start()
        sender.close()  # so that the pipe ends with the process
        for number, task in enumerate(tasks):
            try:
                in_time = receiver.poll(seconds + START * (number == 0))
                fault, is_lost = (receiver.recv(), False) if in_time else ("hangs", True)
            except EOFError:
                fault, is_lost = "killed the process", True
            yield task, fault
            if is_lost or "CUDA" in fault or "launching" in fault:
                break  # a fault of the GPU leaves no context
        process.kill()
        process.join()
        tasks = tasks[number + 1 :]


def _run(fault_of: Callable[[Any], str], tasks: Sequence[Any], sender: Any) -> None:
    for task in tasks:
        sender.send(fault_of(task))
