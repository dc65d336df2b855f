"""Launches are timed alone, behind a flush, and one that never ends is given up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pykittens.errors import BackendError
from pykittens.runtime import driver, timing
from pykittens.runtime.timing import LaunchFault, Timer
from tests.runtime.c_programs import Log, needs_compiler
from tests.runtime.tuning import Rows, Work

pytestmark = needs_compiler
Makes = Callable[..., Work]


def test_the_time_of_a_launch_is_its_own_and_not_that_of_the_flush(work: Makes) -> None:
    it = work({64: 0.25})
    with Timer(driver.device(0), 0) as timer:
        assert timer.times(lambda: it.run(Rows(64)), 4) == [0.25] * 4
    assert it.launches == [64] * 4


def test_four_times_the_cache_is_written_before_every_launch_on_its_stream(
    work: Makes, log: Log
) -> None:
    it = work({64: 0.25})
    size = 4 * driver.device(0).l2_bytes
    with Timer(driver.device(0), 0x51) as timer:
        assert log.take("alloc") == [f"alloc {size}"]
        timer.times(lambda: it.run(Rows(64)), 3)
        assert log.take("memset") == [f"memset b000 0 {size // 4} stream 0x51"] * 3
    assert log.take("free") == ["free b000"]


def test_every_event_is_given_back(work: Makes, log: Log) -> None:
    with Timer(driver.device(0), 0) as timer:
        timer.times(lambda: None, 3)
        timer.times(lambda: None, 2)  # those of before are used again
        timer.settle()
    lines = log.take("event")
    assert lines.count("event") == lines.count("event destroyed") == 6


def test_an_interrupt_does_not_wait_for_a_launch_that_never_ends(
    work: Makes, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To free memory waits for it, in a call that Ctrl-C does not end."""
    for event, freed in ((driver.NOT_READY, []), (0, ["free b000"])):
        monkeypatch.setattr(timing, "LONGEST_SECONDS", 0.02)
        monkeypatch.setenv("FAKE_CUDA_EVENT", str(event))

        def interrupted() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt), Timer(driver.device(0), 0) as timer:
            timer.times(interrupted, 1)
        assert log.take("free") == freed


def test_a_flush_of_the_callers_own_takes_no_memory(work: Makes, log: Log) -> None:
    flushes: list[int] = []
    with Timer(driver.device(0), 0, flush=lambda: flushes.append(1)) as timer:
        timer.times(lambda: None, 5)
    assert len(flushes) == 5
    assert [line for line in log.take() if line.startswith(("alloc", "free", "memset"))] == []


def test_little_memory_makes_a_smaller_flush_and_none_is_an_error(
    work: Makes, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = driver.device(0).l2_bytes
    monkeypatch.setenv("FAKE_CUDA_MEMORY", str(2 * cache))
    with Timer(driver.device(0), 0) as timer:
        timer.times(lambda: None, 1)
    assert log.take("memset") == [f"memset b000 0 {cache // 2} stream (nil)"]
    monkeypatch.setenv("FAKE_CUDA_MEMORY", str(cache - 1))
    with pytest.raises(BackendError, match=f"lacks {cache} bytes"):
        Timer(driver.device(0), 0).__enter__()


def test_a_launch_that_stops_the_gpu_is_a_fault(
    work: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Timer(driver.device(0), 0) as timer:
        monkeypatch.setenv("FAKE_CUDA_EVENT", "1")
        with pytest.raises(LaunchFault, match="the GPU stopped: CUDA_ERROR_INVALID_VALUE"):
            timer.times(lambda: None, 1)


def test_a_launch_that_never_ends_is_a_fault_and_nothing_waits_for_it(
    work: Makes, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "LONGEST_SECONDS", 0.05)
    monkeypatch.setenv("FAKE_CUDA_EVENT", str(driver.NOT_READY))
    with Timer(driver.device(0), 0) as timer, pytest.raises(LaunchFault, match="0.05 seconds"):
        timer.times(lambda: None, 1)
    assert log.take("free") == []


def test_what_was_launched_before_may_take_any_time(
    work: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "LONGEST_SECONDS", 0.01)
    monkeypatch.setenv("FAKE_CUDA_EVENT", str(driver.NOT_READY))
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 1000:
            monkeypatch.setenv("FAKE_CUDA_EVENT", "0")

    now = iter(range(10_000))
    monkeypatch.setattr(timing.time, "sleep", sleep)
    monkeypatch.setattr(timing.time, "monotonic", lambda: next(now))
    with Timer(driver.device(0), 0) as timer:
        timer.settle(patient=True)
    assert len(slept) == 1000
