"""Calls of a host function: planned once a form, and launched as its kernels would be with the same arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pykittens.errors import ArgumentError
from pykittens.kernels.arrays import Arrays
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.runtime import nvrtc
from tests.kernels import host_functions
from tests.kernels.host_functions import Host, raised, rows_plan, same, summed
from tests.runtime import calling
from tests.runtime.c_programs import needs_compiler
from tests.runtime.calling import (
    as_wide_as_outside,
    matrix,
    scaled,
    show_parameters,
    so_many_columns,
    some_rows,
)

torch = pytest.importorskip("torch")
pytestmark = [
    needs_compiler,
    pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available())),
]


def test_calls_of_a_form_are_planned_once_and_launched_as_their_kernel(
    times: Host, launched: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    show_parameters(scaled, (matrix(), matrix(), 1.0), monkeypatch)
    for _ in range(2):
        for factor in (1.0, 2.0, 3.0):
            x, out = matrix(), matrix()
            assert launched(times, x, factor, out) == launched(scaled, x, out, factor)
            assert launched(times, x, factor, out) == launched(scaled, x, out, factor)
    assert (times.plans, times.kept) == (1, 1)


def test_a_result_is_made_for_each_call_unless_it_is_passed(
    times: Host, launched: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, made = matrix(), []
    show_parameters(scaled, (x, x, 1.0), monkeypatch)
    for factor in (1.0, 2.0, 3.0):
        lines = launched(lambda factor=factor: made.append(times(x, factor)))
        assert lines == launched(scaled, x, made[-1], factor)
    assert len({out.data_ptr() for out in made}) == 3
    assert all((out.shape, out.dtype) == (x.shape, torch.float32) for out in made)
    for out in made:
        assert times(x, 2.0, out) is times(x, 2.0, out=out) is times(out=out, x=x, factor=2) is out
    assert times.plans == times.kept == 4


def test_arguments_may_come_by_position_and_by_keyword_in_any_order(
    sums: Host, launched: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, z, out = (matrix() for _ in range(4))
    show_parameters(summed, (x, x, x, 1.0, x), monkeypatch, then=same)
    expected = launched(summed, x, out, y, 2.5, z, then=same)
    for _ in range(2):
        for args, words in (
            ((x, y, out), {"shift": 2.5, "operands": (z,)}),
            ((x, y, out), {"operands": [z], "shift": 2.5}),
            ((x, y), {"shift": 2.5, "out": out, "operands": (z,)}),
            ((x,), {"out": out, "operands": (z,), "y": y, "shift": 2.5}),
            ((), {"operands": (z,), "y": y, "then": same, "x": x, "shift": 2.5, "out": out}),
        ):
            assert launched(sums, *args, **words) == expected
            assert sums(*args, **words) is out
    assert sums.plans == sums.kept == 5


def test_numbers_are_passed_on_however_they_come(
    times: Host, launched: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, out = matrix(), matrix()
    show_parameters(scaled, (x, x, 1.0), monkeypatch)
    lines = {f: launched(scaled, x, out, f)[0] for f in (2.0, 3.0, -0.5)}
    for _ in range(2):
        assert launched(times, x, out=out) == [lines[2.0]]  # its default
        for factor in (3.0, -0.5, 3, 2, 2.0):
            assert launched(times, x, factor, out) == [lines[factor]]
            assert launched(times, x, factor=factor, out=out) == [lines[factor]]
    assert times.plans == times.kept == 1 + 2 * 2  # an int has a form of its own


def test_a_number_that_has_no_effect_is_not_passed_on(
    sums: Host, launched: Callable[..., Any], programs: list[str]
) -> None:
    x, out = matrix(), matrix()
    launched(summed, x, out, then=same)
    for shift in (0.0, None, 0, False):
        sums(x, out=out, shift=shift)
    assert sums.plans == sums.kept == 1
    sums(x, out=out)
    assert len(set(programs)) == 1
    sums(x, out=out, shift=0.5)
    sums(x, out=out, shift=-0.5)
    assert len(set(programs)) == 2
    assert sums.plans == sums.kept == 3


def test_operands_in_a_tuple_are_tensors_and_numbers(
    sums: Host, launched: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, out, y, z = (matrix() for _ in range(4))
    show_parameters(summed, (x, x, 1.0, x), monkeypatch, then=same)
    given: Any
    for given in ((2.0, y), (3.0, z), (-3.0, y), [2.0, y]):
        expected = launched(summed, x, out, *given, then=same)
        assert launched(sums, x, out=out, operands=given) == expected
    assert sums.plans == 1
    show_parameters(summed, (x, x, x, 1.0), monkeypatch, then=same)
    expected = launched(summed, x, out, y, 2.0, then=same)
    for _ in range(3):
        assert launched(sums, x, out=out, operands=(y, 2.0)) == expected
    assert sums.plans == sums.kept == 2
    assert len(given) == 2  # the list is the caller's


def test_zeros_of_either_sign_are_launched_with_their_own_bits(
    times: Host, launched: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, out = matrix(), matrix()
    show_parameters(scaled, (x, x, 1.0), monkeypatch)
    zero, negative = (launched(scaled, x, out, f)[0] for f in (0.0, -0.0))
    assert zero != negative
    for factor in (0.0, -0.0, -0.0, 0.0, 0.0, -0.0):
        expected = zero if str(factor) == "0.0" else negative
        assert launched(times, x, factor, out) == [expected]
        assert launched(times, x, out=out, factor=factor) == [expected]


def test_numbers_decide_the_grid_and_requirements_of_each_call(
    launched: Callable[..., Any],
) -> None:
    rows, x, out = Host(rows_plan(some_rows)), matrix(100, 64), matrix(100, 64)
    for count in (5, 7, 7, 5, 100):
        (line,) = launched(rows, x, out, count)
        assert f"grid {count} 1 1" in line
    for _ in range(2):
        with pytest.raises(ArgumentError, match="x has not so many rows"):
            rows(x, out, 101)
    assert launched(rows, x, out, 0) == []
    assert (rows.plans, rows.kept) == (1, 1)


def test_numbers_that_are_part_of_a_program_are_those_of_the_call(
    launched: Callable[..., Any],
) -> None:
    rows, x, out = Host(rows_plan(so_many_columns)), matrix(64, 128), matrix(64, 128)
    for count, blocks in ((64, 2), (32, 4), (32, 4), (128, 1), (64, 2), (64, 2)):
        (line,) = launched(rows, x, out, count)
        assert f"grid {blocks} 1 1" in line
    (line,) = launched(rows, x, out)
    assert "grid 2 1 1" in line
    assert rows.kept == 2


def test_a_constant_is_another_form(
    sums: Host, launched: Callable[..., Any], programs: list[str]
) -> None:
    x, out = matrix(), matrix()
    for then in (same, raised, same, raised):
        sums(x, out=out, then=then)
    assert programs[:2] == programs[2:]
    assert len(set(programs)) == sums.plans == 2


def test_constants_that_functions_read_from_outside_are_those_of_the_call(
    sums: Host, launched: Callable[..., Any], programs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, out = matrix(), matrix()
    for constant in (1.5, 2.5, 2.5, 1.5):
        monkeypatch.setattr(host_functions, "OUTSIDE", constant)
        sums(x, out=out, then=raised)
    assert programs[0] == programs[3] != programs[1] == programs[2]
    assert (sums.plans, sums.kept) == (3, 1)


def test_constants_outside_a_kernel_are_those_of_the_call(
    launched: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(x: Any, out: Any) -> Plan:
        return Plan(Arrays("copy", x=x, out=out), [PlanStep(as_wide_as_outside, ("x", "out"))])

    host, x, out = Host(plan), matrix(64, 128), matrix(64, 128)
    for width, blocks in ((64, 2), (128, 1), (64, 2), (64, 2)):
        monkeypatch.setattr(calling, "WIDTH", width)
        (line,) = launched(host, x, out)
        assert f"grid {blocks} 1 1" in line
    assert host.plans == 3


def test_what_is_refused_is_planned_and_refused_again(
    times: Host, launched: Callable[..., Any]
) -> None:
    x = matrix()
    for args in ((x, 2.0, x), (x, 2.0, matrix(64)), (x[0],)):
        for _ in range(2):
            with pytest.raises(ArgumentError):
                times(*args)
    assert (times.plans, times.kept) == (6, 0)


@pytest.mark.parametrize("on_gpu", [False, True])
def test_an_array_that_is_none_is_refused_unless_it_may_be_left_out(
    times: Host, request: pytest.FixtureRequest, on_gpu: bool
) -> None:
    x = matrix()
    if on_gpu:
        request.getfixturevalue("launched")
    for args, words in (((None,), {}), ((None, 2.0, x), {}), ((), {"x": None, "out": x})):
        with pytest.raises(ArgumentError, match="times_plan: `x` must be an array, not NoneType"):
            times(*args, **words)
    assert times(x, 2.0, None).shape == x.shape


def test_a_number_that_no_f32_holds_is_refused_at_every_call(
    times: Host, launched: Callable[..., Any]
) -> None:
    x = matrix()
    for _ in range(2):
        with pytest.raises(ArgumentError, match="`factor` is more than an f32 holds"):
            times(x, factor=10**400)
    times(x, factor=3)
    with pytest.raises(ArgumentError, match="is outside the range of f32"):
        times(x, factor=10**400)


@pytest.mark.parametrize("number", ["float32", "float64", "int64"])
def test_numbers_of_numpy_are_numbers(
    times: Host, launched: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    x, out = matrix(), matrix()
    show_parameters(scaled, (x, x, 1.0), monkeypatch)
    expected = launched(scaled, x, out, 3.0)
    for _ in range(3):
        assert launched(times, x, out=out, factor=getattr(np, number)(3)) == expected
    assert times.plans == times.kept == 1


def test_numbers_of_numpy_that_have_no_effect_are_not_passed_on(
    sums: Host, launched: Callable[..., Any], programs: list[str]
) -> None:
    x, out = matrix(), matrix()
    for shift in (np.float32(0), np.float64(0), None, np.int64(0)):
        sums(x, out=out, shift=shift)
    assert sums.plans == sums.kept == 1
    for shift in (np.float32(0.5), 0.5, np.float64(-0.5)):
        sums(x, out=out, shift=shift)
    assert sums.plans == sums.kept == 2
    assert len(set(programs)) == 2
