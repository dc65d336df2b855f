"""A long check shows how far it is; a short one shows nothing."""

from __future__ import annotations

import io
from itertools import count
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens.checker.progress import CheckProgress
from pykittens.checker.runs import run_schedules
from pykittens.runtime.arguments import check
from tests.runtime.test_progress import Terminal


@pk.kernel
def by_grid(y):
    row, col = pk.grid(4, 2)
    pk.store(y[row, col], pk.zeros(pk.f32, 64, 16))


@pk.kernel
def by_tasks(y):
    tasks = pk.persistent(y.tiles(64, 16))
    with pk.warpgroups(1):
        for row, col in tasks:
            pk.store(y[row, col], pk.zeros(pk.f32, 64, 16))


def shown(kernel, stream: io.StringIO, seconds: float) -> str:
    """What a check of two schedules shows if that many seconds pass between two looks at the clock."""
    arguments = check(kernel.parameters, (np.zeros((256, 32), np.float32),), {})
    clock = count(0, seconds)
    progress = CheckProgress(stream, lambda: float(next(clock)))
    run_schedules(kernel, arguments, (0, 1), progress=progress)
    return stream.getvalue()


def test_a_short_check_shows_nothing() -> None:
    for kernel in (by_grid, by_tasks):
        assert shown(kernel, Terminal(), 0.01) == ""
        assert shown(kernel, io.StringIO(), 0.01) == ""


def test_a_terminal_shows_a_line_with_the_share_and_the_time_that_is_left() -> None:
    for kernel in (by_grid, by_tasks):
        lines = shown(kernel, Terminal(), 1.0).split("\r")
        assert lines[1:] == [
            *(
                f"checking {kernel.parameters.name}: schedule {1 + i // 8} of 2, "
                f"{100 * (i % 8 + 1) / 8:.0f}% of it, {i + 1} s, about {15 - i} s left\x1b[K"
                for i in range(1, 15)
            ),
            f"checking {kernel.parameters.name}: schedule 2 of 2, 100% of it, 16 s, about 0 s left\x1b[K\n",
        ]


def test_a_file_gets_a_line_now_and_then() -> None:
    lines = shown(by_grid, io.StringIO(), 10.0).splitlines()
    assert lines == [
        f"checking by_grid: schedule {n} of 2, {share}% of it, {time}, about {left} left"
        for n, share, time, left in (
            (1, 38, "30 s", "2 min"),
            (1, 75, "60 s", "2 min"),
            (2, 12, "90 s", "70 s"),
            (2, 50, "2 min", "40 s"),
            (2, 88, "2 min", "10 s"),
        )
    ]


def test_a_huge_launch_is_announced_before_it_runs(monkeypatch) -> None:
    monkeypatch.setattr("pykittens.checker.progress.MANY", 8)
    for kernel, units in ((by_grid, "blocks"), (by_tasks, "tasks")):
        text = shown(kernel, io.StringIO(), 0.0)
        assert text == f"checking {kernel.parameters.name}: 8 {units} in each of 2 schedules\n"


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO(), None])
def test_a_check_in_python_shows_its_progress_on_a_terminal_only(monkeypatch, stream) -> None:
    monkeypatch.setattr("pykittens.checker.progress.SILENT", 0.0)
    monkeypatch.setattr("pykittens.checker.progress.ON_TERMINAL", 0.0)
    monkeypatch.setattr("sys.stderr", stream)
    y = np.zeros((256, 32), np.float32)
    assert pk.check(by_grid, y, schedules=2, costs=False, compile=False).ok
    if isinstance(stream, Terminal):
        assert "checking by_grid: schedule 1 of 2" in stream.getvalue()
        assert stream.getvalue().endswith("\n")
    elif stream is not None:
        assert stream.getvalue() == ""


def test_a_short_check_in_python_shows_nothing(monkeypatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr("pykittens.checker.progress.SILENT", 1e9)
    pk.check(by_grid, np.zeros((256, 32), np.float32), schedules=2, costs=False, compile=False)
    assert stream.getvalue() == ""


def test_the_line_ends_if_a_check_is_interrupted(monkeypatch) -> None:
    stream = Terminal()

    def interrupted(*args: Any) -> None:
        progress.show("schedule 1 of 2")
        raise KeyboardInterrupt

    progress = CheckProgress(stream)
    monkeypatch.setattr("pykittens.checker.runs.machine.run", interrupted)
    arguments = check(by_grid.parameters, (np.zeros((256, 32), np.float32),), {})
    with pytest.raises(KeyboardInterrupt):
        run_schedules(by_grid, arguments, (0, 1), progress=progress)
    assert stream.getvalue().endswith("\n")
