"""Tuning is asked once for a problem, and never where there is nothing to measure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pykittens import settings
from pykittens.errors import ArgumentError, BackendError
from pykittens.runtime import driver
from pykittens.runtime.tune import remembered, tune
from tests.runtime.c_programs import Log, needs_compiler
from tests.runtime.tuning import KEY, Work

pytestmark = needs_compiler
Makes = Callable[..., Work]


def test_a_problem_is_measured_once(work: Makes) -> None:
    it = work({1: 1.0, 2: 0.5})
    assert it.remembered() is None
    assert it.tune() == 2
    it.launches.clear()
    it.steps.clear()
    assert it.tune() == it.remembered() == 2
    assert (it.launches, it.steps, len(it.checks)) == ([], [], 2)


def test_what_is_remembered_is_found_without_the_gpu(work: Makes, log: Log) -> None:
    it = work({1: 1.0, 2: 0.5})
    it.tune()
    assert log.take() != []
    assert it.remembered() == 2
    assert log.take() == []


def test_arguments_of_the_cpu_take_the_first_candidate_and_say_so_once(
    work: Makes, log: Log
) -> None:
    it = work({1: 1.0, 2: 0.5})
    assert it.tune(device="cpu") == it.tune({"m": 2}, device="cpu") == 1
    assert remembered("product", KEY, it.candidates, "cpu", ()) is None
    assert [str(step) for step in it.steps] == [
        "tuning product: arguments on the CPU run in the emulator, which cannot be measured; "
        "the first configuration is used"
    ]
    assert (it.launches, it.checks, log.take()) == ([], [], [])


def test_launches_for_debugging_are_not_measured(
    work: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = work({1: 1.0, 2: 0.5})
    monkeypatch.setattr(settings, "debug", lambda: True)
    assert it.tune() == 1
    assert "PYKITTENS_DEBUG is set" in str(it.steps[0])
    monkeypatch.setattr(settings, "debug", lambda: False)
    assert it.tune() == 2
    monkeypatch.setattr(settings, "debug", lambda: True)
    assert it.tune() == 2  # remembered


def test_nothing_is_measured_while_a_graph_is_captured(
    work: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = work({1: 1.0, 2: 0.5})
    monkeypatch.setenv("FAKE_CUDA_CAPTURING", "1")
    with pytest.raises(BackendError, match="while a CUDA graph is captured") as error:
        it.tune()
    assert error.value.help == "call it once with these arguments before the capture, to warm up"
    assert it.launches == []
    monkeypatch.setenv("FAKE_CUDA_CAPTURING", "0")
    it.tune()
    monkeypatch.setenv("FAKE_CUDA_CAPTURING", "1")
    assert it.tune() == 2


def test_threads_that_tune_one_problem_at_once_measure_it_once(work: Makes) -> None:
    it = work({1: 1.0, 2: 0.5})
    together = threading.Barrier(4)
    results: list[int] = []

    def once() -> None:
        together.wait(timeout=30)
        results.append(it.tune())

    threads = [threading.Thread(target=once) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [2] * 4
    assert len(it.checks) == 2


def test_launches_and_checks_have_the_context_of_their_gpu(
    work: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    it, current = work({1: 1.0}), driver.Device.current
    inside: list[int] = []
    seen: list[int] = []

    @contextmanager
    def watched(gpu: driver.Device) -> Iterator[None]:
        with current(gpu):
            inside.append(gpu.ordinal)
            yield
            inside.pop()

    monkeypatch.setattr(driver.Device, "current", watched)
    tune(
        "product",
        KEY,
        it.candidates,
        lambda candidate: seen.extend(inside),
        lambda candidate: seen.extend(inside),
        device=("cuda", 0),
        kernels=(),
    )
    assert seen == [0] * 13  # two warm-ups, three launches, seven launches, a check


def test_the_flush_of_the_caller_is_used(work: Makes) -> None:
    flushes: list[int] = []
    it = work({1: 1.0, 2: 0.5})
    it.tune(flush=lambda: flushes.append(1))
    assert len(flushes) == len(it.launches)


def test_no_candidates_are_refused(work: Makes) -> None:
    with pytest.raises(ArgumentError, match="tuning product: there are no candidates"):
        tune("product", {}, [], lambda c: None, lambda c: None, device=("cuda", 0), kernels=())


def test_a_key_that_json_does_not_know_is_refused(work: Makes) -> None:
    it = work({1: 1.0})
    for value in (object(), float("nan"), {1, 2}):
        with pytest.raises(ArgumentError, match="strings, numbers, bools, lists and dicts"):
            it.tune({"m": value})


def test_a_name_that_is_no_name_is_refused(work: Makes) -> None:
    it = work({1: 1.0})
    with pytest.raises(ArgumentError, match="must be a Python name, not '../gemm'"):
        remembered("../gemm", KEY, it.candidates, ("cuda", 0), ())


def test_one_candidate_is_checked_too(work: Makes) -> None:
    it = work({7: 1.0})
    assert it.tune() == 7
    assert it.checks == [7]


@pytest.mark.parametrize("device", ["cuda", "gpu", "cuda:0", 0, None, ("cuda",), ("cuda", "0")])
def test_a_device_that_is_none_is_refused(work: Makes, device: Any) -> None:
    it = work({1: 1.0})
    text = f'tuning product: `device` must be "cpu" or ("cuda", ordinal), not {device!r}'
    asks = (
        lambda: it.tune(device=device),
        lambda: remembered("product", KEY, it.candidates, device, ()),
    )
    for ask in asks:
        with pytest.raises(ArgumentError) as error:
            ask()
        assert error.value.message == text
        assert (
            error.value.help
            == '`device` is the device of the arguments: ("cuda", 0) is the first GPU'
        )
    assert it.launches == []


def test_a_device_of_torch_is_refused(work: Makes) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for name in ("cpu", "cuda:0"):
        with pytest.raises(ArgumentError, match="not device"):
            work({1: 1.0}).tune(device=torch.device(name))
