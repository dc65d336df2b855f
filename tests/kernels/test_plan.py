"""Launches of a plan: their memory, their streams, and what a call returns."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import pykittens as pk
from pykittens.errors import ArgumentError
from pykittens.kernels.arrays import Arrays
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.kernels.workspace import Scratch
from pykittens.runtime import nvrtc
from tests.kernels.host_functions import Host, rows_plan, word_of
from tests.runtime.c_programs import needs_compiler
from tests.runtime.calling import (
    counts_of_threads,
    doubled,
    matrix,
    scaled,
    shifted,
    show_parameters,
    some_rows,
)

torch = pytest.importorskip("torch")
pytestmark = [
    needs_compiler,
    pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available())),
]


@pk.kernel
def noted(x, y, note):
    """y = x, and note = 2 x."""
    row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
    t = pk.load(x[row, col], rows=64, cols=64)
    pk.store(y[row, col], t)
    pk.store(note[row, col], t + t)


# -- memory ----------------------------------------------------------------------------------------


def test_an_output_over_an_input_is_refused_at_every_call(
    times: Host, launched: Callable[..., Any]
) -> None:
    whole = matrix(200, 72)
    assert len(launched(times, whole[:100], 2.0, whole[100:])) == 1

    def refused() -> None:
        with pytest.raises(ArgumentError, match="shares memory"):
            times(whole[:100], 2.0, whole[50:150])

    for _ in range(3):
        assert launched(refused) == []
        assert len(launched(times, whole[:100], 2.0, whole[100:])) == 1


def test_a_kernel_in_place_takes_one_tensor_for_both(launched: Callable[..., Any]) -> None:
    def plan(x: Any, out: Any) -> Plan:
        return Plan(Arrays("double", x=x, out=out), [PlanStep(doubled, ("x", "out"))])

    host, whole, other = Host(plan), matrix(200, 72), matrix()
    for x in (whole[:100], other, whole[100:]) * 3:
        assert len(launched(host, x, x)) == 1
        assert host(x, x) is x
    with pytest.raises(ArgumentError, match="shares memory"):
        host(whole[:100], whole[2:102])
    assert host.plans == 1


def test_a_view_that_is_negated_is_refused_after_a_plain_call_of_its_form(
    times: Host, sums: Host, launched: Callable[..., Any]
) -> None:
    x, y, out = matrix(), matrix(), matrix()
    times(x, 2.0, out)
    sums(x, out=out, operands=(y,))
    for call in (
        lambda: times(torch._neg_view(x), 2.0, out),
        lambda: times(x, 2.0, torch._neg_view(out)),
        lambda: sums(x, out=out, operands=(torch._neg_view(y),)),
    ):
        with pytest.raises(ArgumentError, match="a negated view"):
            call()


def test_another_alignment_is_another_program(
    times: Host, launched: Callable[..., Any], programs: list[str]
) -> None:
    x, out = matrix(), matrix()
    odd = shifted(x)
    for each in (x, odd, x, odd):
        times(each, 2.0, out)
    assert programs[0] == programs[2] != programs[1] == programs[3]
    assert times.plans == 2


def test_arrays_that_are_copied_are_planned_for_at_each_call(
    times: Host, launched: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, out = torch.randn(72, 100).t(), torch.zeros(72, 100).t()
    show_parameters(scaled, (x, x, 1.0), monkeypatch)
    for call in (lambda: times(x, 2.0, out), lambda: times(x, out=out), lambda: times(x)) * 2:
        (line,) = launched(call)
        assert not {word_of(x), word_of(out)} & set(line.split())
    assert (times.plans, times.kept) == (6, 0)


def test_what_is_written_to_a_copy_is_written_back_and_nothing_else_is() -> None:
    def plan(x: Any, out: Any, note: Any) -> Plan:
        arrays = Arrays("noted", x=x, out=out, note=note)
        arrays.lines("x", "out", "note")
        assert set(arrays.copies) == {"x", "note"}
        return Plan(arrays, [PlanStep(noted, ("x", "out", "note"))])

    x, out, whole = torch.randn(72, 100).t(), torch.zeros(100, 72), torch.full((100, 144), 5.0)
    before, version = x.clone(), x._version
    for _ in range(2):
        assert Host(plan)(x, out, whole[:, ::2]) is out
        assert torch.equal(out, x)
        assert torch.equal(whole[:, ::2], 2 * x)
        assert bool((whole[:, 1::2] == 5).all())
    assert torch.equal(x, before)
    assert x._version == version


def test_a_prepared_call_keeps_no_memory_alive(times: Host, launched: Callable[..., Any]) -> None:
    x, out = matrix(), matrix()
    gone = [weakref.ref(x), weakref.ref(out)]
    for _ in range(3):
        times(x, 2.0, out)
        made = weakref.ref(times(x))
        assert made() is None
    del x, out
    gc.collect()
    assert [each() for each in gone] == [None, None]


def test_tensors_of_the_cpu_are_planned_at_each_call_and_emulated(times: Host) -> None:
    x, out = torch.randn(100, 72), torch.empty(100, 72)
    for factor in (2.0, 3.0):
        assert times(x, factor, out) is out
        assert torch.equal(out, x * factor)
        assert torch.equal(times(x, factor=factor), x * factor)
    assert (times.plans, times.kept) == (4, 0)


def test_what_is_forgotten_is_planned_anew(times: Host, launched: Callable[..., Any]) -> None:
    x = matrix()
    times(x)
    times.forget()
    times(x)
    times(x)
    assert times.plans == 2


def test_a_result_is_made_on_the_gpu_of_the_call_whichever_is_current(
    times: Host, launched: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, made = matrix(), []
    times(x)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 1)
    new_empty = torch.Tensor.new_empty
    monkeypatch.setattr(
        torch.Tensor, "new_empty", lambda x, *a, **w: made.append(x) or new_empty(x, *a, **w)
    )
    times(x)
    assert made == []  # the prepared call asks the function that was there before
    times.forget()
    for _ in range(2):
        found = times(x)
        assert (found.shape, found.stride(), found.dtype) == (x.shape, x.stride(), x.dtype)
    assert all(each is x for each in made)
    assert len(made) == 3  # the first call also makes the memory of its plan


# -- streams and threads ---------------------------------------------------------------------------


def test_a_call_is_launched_on_the_stream_that_is_current(
    times: Host, launched: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, out = matrix(), matrix()
    for stream in (0xABC, 0xDEF) * 4:
        monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda i, s=stream: s)
        (line,) = launched(times, x, 2.0, out)
        assert f"stream {stream:#x}" in line
    assert times.plans == 1


def test_threads_launch_with_streams_and_numbers_of_their_own(
    launched: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thread launches with a number of its own on a stream of that number."""
    rows, x, out = Host(rows_plan(some_rows)), matrix(100, 64), matrix(100, 64)
    rows(x, out, 4)

    def call(count: int, i: int) -> None:
        assert rows(x, out, count) is out

    found = counts_of_threads(launched, monkeypatch, call, 50)
    assert found == {(count, count): 50 for count in "123"}


# -- several steps and results ---------------------------------------------------------------------


def both_plan(x: Any, out: Any = None) -> Plan:
    """x * 2 twice, over scratch; the second result is made, and returned in another shape."""
    arrays = Arrays("both", x=x, two=2.0, out=out)
    rows, cols = arrays.shapes(x="rows cols").values()
    arrays.result("rows cols", "f32")
    arrays.make("more", "cols rows", "f32")
    arrays.reshape("more", (rows, cols))
    first, second = ("x", "between", "two"), ("between", "out", "two")
    steps = [
        PlanStep(scaled, first),
        PlanStep(scaled, second),
        PlanStep(scaled, ("between", "more", "two")),
    ]
    return Plan(arrays, steps, {"between": Scratch((rows, cols))}, ("more", "out"))


def test_steps_are_launched_in_order_and_pass_scratch_on(
    launched: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    both, x, out = Host(both_plan), matrix(), matrix()
    show_parameters(scaled, (x, x, 1.0), monkeypatch)
    common = set(launched(scaled, x, out, 2.0)[0].split())
    for _ in range(3):
        results: list[Any] = []
        lines = launched(lambda results=results: results.extend(both(x, out)))
        more, again = results
        assert again is out
        assert more.shape == (72, 100)
        first, second, third = (set(line.split()) for line in lines)
        assert word_of(x) in first
        assert word_of(out) in second
        assert word_of(more) in third
        assert len((first & second & third) - common) == 1  # the scratch between them
    assert (both.plans, both.kept) == (1, 1)


def test_a_plan_of_several_steps_is_right_in_the_emulator() -> None:
    x = torch.randn(100, 72)
    more, out = Host(both_plan)(x)
    assert torch.equal(out, 4 * x)
    assert torch.equal(more.reshape(100, 72), 4 * x)


def test_all_results_are_returned_that_were_passed(launched: Callable[..., Any]) -> None:
    def plan(x: Any, out: Any) -> Plan:
        arrays = Arrays("pair", x=x, out=out)
        return Plan(arrays, [PlanStep(doubled, ("x", "out"))], result=("out", "x"))

    pair, x, out = Host(plan), matrix(), matrix()
    for _ in range(3):
        first, second = pair(x, out)
        assert first is out
        assert second is x
    assert pair.kept == 1


def test_a_plan_without_steps_launches_nothing(launched: Callable[..., Any]) -> None:
    def plan(x: Any, out: Any = None) -> Plan:
        arrays = Arrays("nothing", x=x, out=out)
        arrays.shapes(x="rows")
        arrays.result("rows", "f32")
        return Plan(arrays, [])

    nothing, out = Host(plan), torch.zeros(3)
    for _ in range(2):
        results: list[Any] = []
        assert launched(lambda results=results: results.append(nothing(torch.zeros(3), out))) == []
        assert results == [out]
        assert nothing(torch.zeros(5)).shape == (5,)
    assert nothing.kept == 0


# -- timings ---------------------------------------------------------------------------------------


def test_every_launch_of_a_plan_is_timed(launched: Callable[..., Any], programs: list[str]) -> None:
    def plan(x: Any, out: Any) -> Plan:
        arrays = Arrays("pair", x=x, out=out)
        return Plan(arrays, [PlanStep(doubled, ("x", "out")), PlanStep(doubled, ("out", "x"))])

    profiles: list[Any] = []
    launches = launched(lambda: profiles.extend(plan(matrix(), matrix()).profile()))
    assert len(launches) == len(programs) == 2
    assert all("clocks.read(" in text for text in programs)
    assert [p.timeline.title for p in profiles] == ["doubled", "doubled"]
