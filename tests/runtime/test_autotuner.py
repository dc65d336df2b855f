"""Few launches find the fastest, and what is wrong never wins."""

from __future__ import annotations

import os
import threading
import warnings
from collections import Counter
from collections.abc import Callable

import pytest

from pykittens.errors import BackendError, KernelError, ResourceError
from pykittens.runtime import driver, timing
from tests.runtime import tuning
from tests.runtime.c_programs import needs_compiler
from tests.runtime.tuning import Rows, Work

pytestmark = needs_compiler
Makes = Callable[..., Work]


def thirty(work: Makes) -> Work:
    """Thirty candidates; the more rows, the faster."""
    return work({rows: 1.0 / rows for rows in range(1, 31)})


def test_the_fastest_is_chosen_wherever_it_stands(work: Makes) -> None:
    for fastest in (0, 1, 17, 29):
        it = work({rows: 0.5 if rows == fastest else 0.6 for rows in range(30)})
        assert it.tune({"fastest": fastest}) == fastest


def test_thirty_candidates_are_halved(work: Makes) -> None:
    it = thirty(work)
    assert it.tune() == 30
    counts = Counter(it.launches)
    # With a warm-up a stage: 1 + 3 launches of all, 1 + 7 of ten, 15 of three.
    assert all(counts[rows] == 4 for rows in range(1, 21))
    assert all(counts[rows] == 12 for rows in range(21, 28))
    assert all(counts[rows] == 27 for rows in range(28, 31))
    assert sorted(it.checks) == [28, 29, 30]


def test_finalists_are_launched_in_turn_to_and_fro(work: Makes) -> None:
    it = thirty(work)
    it.tune()
    assert it.launches[-45:-39] == [30, 29, 28, 28, 29, 30]


def test_a_slow_kernel_is_launched_less_often(work: Makes) -> None:
    it = work({1: 30.0, 2: 25.0, 3: 500.0, 4: 600.0})
    assert it.tune() == 2
    counts = Counter(it.launches)
    assert counts[4] == 2  # a warm-up and one
    assert counts[3] == 2 + 2 + 3
    assert counts[2] == 2 + 2 + 3


def test_a_median_forgives_single_slow_launches(work: Makes) -> None:
    it = work({1: 1.0, 2: 0.9})
    run, launches = it.run, Counter[int]()

    def disturbed(candidate: Rows) -> None:
        launches[candidate.rows] += 1
        run(candidate)
        if candidate.rows == 2 and launches[2] % 3 == 0:
            it._pass(100.0)

    it.run = disturbed  # type: ignore[method-assign]
    assert it.tune() == 2


def test_among_those_as_fast_the_first_named_wins(work: Makes) -> None:
    assert work({1: 1.0, 2: 1.005, 3: 0.995}).tune({"near": 1}) == 1
    assert work({1: 1.0, 2: 0.95, 3: 0.945}).tune({"near": 2}) == 2


def test_a_candidate_that_does_not_fit_is_left_out_and_told(work: Makes) -> None:
    it = work({1: ResourceError("too much shared memory"), 2: 1.0, 3: 2.0})
    assert it.tune() == 2
    assert it.launches.count(1) == 1
    (told,) = [step.note for step in it.steps if step.note.startswith("without")]
    assert told == "without Rows(rows=1): too much shared memory"


def test_a_fast_candidate_that_is_wrong_is_not_chosen_and_warned_of(work: Makes) -> None:
    it = thirty(work)
    it.wrong = {Rows(30): "3 elements are NaN", Rows(29): "the last row is wrong"}
    with pytest.warns(RuntimeWarning) as caught:
        assert it.tune() == 28
    assert [str(w.message) for w in caught] == [
        "product: Rows(rows=30) computes something wrong and is not used: 3 elements are NaN",
        "product: Rows(rows=29) computes something wrong and is not used: the last row is wrong",
    ]
    # Those next in speed take the places.
    assert it.checks == [30, 29, 28, 27, 26]


def test_one_that_was_only_measured_a_few_times_may_take_the_place_of_the_wrong(
    work: Makes,
) -> None:
    it = thirty(work)
    it.wrong = {Rows(rows): "wrong" for rows in range(2, 31)}
    with pytest.warns(RuntimeWarning):
        assert it.tune() == 1
    assert len(it.checks) == 30


def test_a_check_that_raises_an_error_of_the_kernel_has_failed(work: Makes) -> None:
    it = work({1: 1.0, 2: 0.5})
    it.wrong = {Rows(2): KernelError("no such stride")}
    assert it.tune() == 1
    assert "without Rows(rows=2): no such stride" in [step.note for step in it.steps]


def test_where_all_are_wrong_nothing_is_chosen(work: Makes) -> None:
    it = work({1: 1.0, 2: 0.5, 3: ResourceError("too many registers")})
    it.wrong = {Rows(1): "17 elements are NaN", Rows(2): "all elements are NaN"}
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(KernelError, match="product: none of 3 configurations can be used") as error,
    ):
        it.tune()
    assert error.value.operands == {
        "Rows(rows=1)": "17 elements are NaN",
        "Rows(rows=2)": "all elements are NaN",
        "Rows(rows=3)": "too many registers",
    }
    assert it.remembered() is None


def test_where_all_raise_the_error_is_that_of_the_first(work: Makes) -> None:
    errors = [ResourceError(f"too many registers: {n}") for n in (300, 400)]
    with pytest.raises(ResourceError, match="too many registers: 300") as error:
        work({1: errors[0], 2: errors[1]}).tune()
    assert error.value is errors[0]
    assert "too many registers: 400" in str(error.value.__cause__)


def test_a_wrong_candidate_is_warned_of_at_the_line_of_the_user(work: Makes) -> None:
    it = work({1: 1.0, 2: 0.5})
    it.wrong = {Rows(2): "wrong"}
    with pytest.warns(RuntimeWarning) as caught:
        it.tune()
    assert {w.filename for w in caught} == {tuning.__file__}  # whose line calls tune


def test_what_was_wrong_is_not_launched_again_for_another_problem(work: Makes) -> None:
    it = work({1: 1.0, 2: 0.5, 3: 2.0})
    it.wrong = {Rows(2): "wrong at the edge"}
    with pytest.warns(RuntimeWarning):
        it.tune({"m": 1})
    it.launches.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert it.tune({"m": 2}) == 1
    assert 2 not in it.launches
    it.wrong.clear()
    assert it.tune({"m": 1}, program={"factor": 2}) == 2  # another program
    assert it.tune({"m": 1}) == 1


def test_a_fault_that_is_not_the_kernels_is_raised(work: Makes) -> None:
    it = work({1: 1.0, 2: ZeroDivisionError("in the host function")})
    with pytest.raises(ZeroDivisionError):
        it.tune()


def test_a_candidate_that_stops_the_gpu_is_left_out_the_next_time(
    work: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = work({1: 1.0, 2: 0.5})
    run = it.run

    def stopping(candidate: Rows) -> None:
        run(candidate)
        if candidate.rows == 2:
            monkeypatch.setenv("FAKE_CUDA_EVENT", "1")

    it.run = stopping  # type: ignore[method-assign]
    with pytest.raises(BackendError, match=r"ends with Rows\(rows=2\): the GPU stopped") as error:
        it.tune()
    assert error.value.help == "start the program again: it will skip this configuration"
    monkeypatch.setenv("FAKE_CUDA_EVENT", "0")
    it.launches.clear()
    assert it.tune() == 1
    assert 2 not in it.launches


def test_a_candidate_that_never_ends_is_left_out_the_next_time(
    work: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "LONGEST_SECONDS", 0.02)
    it = work({1: 1.0, 2: 0.5})
    run = it.run

    def hanging(candidate: Rows) -> None:
        run(candidate)
        if candidate.rows == 2:
            monkeypatch.setenv("FAKE_CUDA_EVENT", str(driver.NOT_READY))

    it.run = hanging  # type: ignore[method-assign]
    with pytest.raises(BackendError, match=r"Rows\(rows=2\): it does not end within"):
        it.tune()
    monkeypatch.setenv("FAKE_CUDA_EVENT", "0")
    assert it.tune() == 1


def test_a_gpu_that_had_stopped_before_is_no_fault_of_a_candidate(
    work: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = work({1: 1.0, 2: 0.5})
    monkeypatch.setenv("FAKE_CUDA_EVENT", "1")
    with pytest.raises(BackendError, match="^the GPU stopped"):
        it.tune()
    assert it.launches == []
    monkeypatch.setenv("FAKE_CUDA_EVENT", "0")
    assert it.tune() == 2


def test_long_work_that_was_launched_before_is_waited_for(
    work: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "LONGEST_SECONDS", 1e-9)
    monkeypatch.setenv("FAKE_CUDA_EVENT", str(driver.NOT_READY))
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 50:
            monkeypatch.setenv("FAKE_CUDA_EVENT", "0")

    monkeypatch.setattr(timing.time, "sleep", sleep)
    assert work({1: 1.0, 2: 0.5}).tune() == 2
    assert len(slept) == 50


def test_candidates_are_compiled_side_by_side_before_any_is_launched(
    work: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    it = work({rows: 1.0 for rows in range(1, 3)})
    together = threading.Barrier(2)
    compiled: list[int] = []

    def compile(candidate: Rows) -> None:
        assert not it.launches
        together.wait(timeout=30)  # passes only where two compile at once
        compiled.append(candidate.rows)

    it.tune(compile=compile)
    assert sorted(compiled) == [1, 2]
    assert it.launches


def test_a_candidate_that_cannot_be_compiled_is_never_launched(work: Makes) -> None:
    it = work({1: 1.0, 2: 0.5, 3: 0.7})

    def compile(candidate: Rows) -> None:
        if candidate.rows == 2:
            raise ResourceError("one instruction takes 300 registers a thread")

    assert it.tune(compile=compile) == 3
    assert 2 not in it.launches


def test_a_compiler_that_breaks_down_is_no_fault_of_a_candidate(work: Makes) -> None:
    def compile(candidate: Rows) -> None:
        raise AssertionError("the CUDA C++ does not compile")

    with pytest.raises(AssertionError, match="does not compile"):
        work({1: 1.0, 2: 0.5}).tune(compile=compile)


def test_what_is_skipped_and_the_choice_are_logged(
    work: Makes, caplog: pytest.LogCaptureFixture
) -> None:
    it = work({1: ResourceError("too much shared memory"), 2: 1.0, 3: 0.5, 4: 2.0})
    it.wrong = {Rows(3): "1 element is NaN"}
    with caplog.at_level("INFO", "pykittens"), pytest.warns(RuntimeWarning):
        it.tune()
    assert [r.getMessage() for r in caplog.records] == [
        "tuning product: measured 1 of 4, without Rows(rows=1): too much shared memory",
        "tuning product: checked 0 of 3, best 1 ms, without Rows(rows=3): 1 element is NaN",
        "tuning product: best 1 ms, Rows(rows=2)",
    ]


def test_steps_tell_how_far_it_is(work: Makes) -> None:
    it = work({1: 1.0, 2: 0.5, 3: 2.0, 4: 4.0})
    it.tune(compile=lambda candidate: None)
    assert [str(step) for step in it.steps if step.done == step.total] == [
        "tuning product: compiled 4 of 4",
        "tuning product: measured 4 of 4, best 0.5 ms",
        "tuning product: measured again 3 of 3, best 0.5 ms",
        "tuning product: checked 3 of 3, best 0.5 ms",
        "tuning product: compared 15 of 15, best 0.5 ms",
        "tuning product: best 0.5 ms, Rows(rows=2)",
    ]
