"""A call of a kernel like an earlier one is launched with what was prepared for that, wherever its memory lies."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import AccessError, ArgumentError
from pykittens.runtime import kernel as kernel_file
from pykittens.runtime import launch as launch_file
from pykittens.runtime import nvrtc
from pykittens.runtime.arguments import check
from pykittens.runtime.kernel import KernelFunction
from pykittens.runtime.launch import Launch
from pykittens.runtime.launcher import Launcher
from tests.aot.cases import MATMUL
from tests.runtime import calling
from tests.runtime.c_programs import Log, needs_compiler
from tests.runtime.calling import (
    as_wide_as_outside,
    counts_of_threads,
    doubled,
    filled,
    fresh,
    launches,
    matrix,
    multiplied,
    scaled,
    shifted,
    show_parameters,
    so_many_columns,
    some_rows,
    some_tiles,
)

torch = pytest.importorskip("torch")
pytestmark = [
    needs_compiler,
    pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available())),
]


@pytest.fixture
def launched(gpu_tensors: None, log: Log) -> Callable[..., list[str]]:
    """`launched(kernel, *args)` are the launches of a call that reach the driver, with their parameters."""
    return lambda call, *args: launches(log, lambda: call(*args))


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    """What is prepared for calls from here on."""
    made: list[Launch] = []
    launch_of = KernelFunction.launch_of

    def noted(self: KernelFunction, *rest: Any) -> Launch:
        made.append(launch_of(self, *rest))
        return made[-1]

    monkeypatch.setattr(KernelFunction, "launch_of", noted)
    return made


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The parameters that are packed from here on."""
    values: list[Any] = []
    fill = Launcher.fill
    monkeypatch.setattr(
        Launcher, "fill", lambda self, v, *at: (values.append(v), fill(self, v, *at))[1]
    )
    return values


def launch_of(kernel: KernelFunction, *args: Any) -> Launch:
    return kernel.launch_of(check(kernel.parameters, args, {}))


# -- calls of a kernel -----------------------------------------------------------------------------


def test_a_call_of_a_known_form_is_the_launch_of_a_first_call(
    launched: Callable[..., list[str]],
    prepared: list[Launch],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = fresh(scaled)
    sets = [(matrix(), matrix(), factor) for factor in (2.0, -0.5, 3.0)]
    show_parameters(kernel, sets[0], monkeypatch)
    first = [launched(fresh(kernel), *args) for args in sets]
    assert len({line for (line,) in first}) == 3
    del prepared[:]
    for args, lines in zip(sets * 4, first * 4, strict=True):
        assert launched(kernel, *args) == lines
    assert len(prepared) == len(kernel._calls) == 1


def test_tensor_maps_are_pointed_to_the_tensors_of_a_call(
    launched: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = fresh(MATMUL)
    sets = [[matrix(128, 128, torch.bfloat16) for _ in range(3)] for _ in range(2)]
    monkeypatch.setenv("FAKE_CUDA_SIZES", "128,128,128,4,4,4")
    first = [launched(fresh(kernel), *args) for args in sets]
    for i in (0, 1, 0, 0, 1, 1):
        assert launched(kernel, *sets[i]) == first[i]


def test_to_prepare_is_not_to_launch(launched: Callable[..., list[str]]) -> None:
    assert launched(launch_of, fresh(scaled), matrix(), matrix(), 2.0) == []


def test_a_call_of_a_known_form_checks_nothing_again(
    launched: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = fresh(scaled)
    kernel(matrix(), matrix(), 2.0)
    for name in ("check", "check_requirements", "launch_of"):
        monkeypatch.setattr(kernel_file, name, lambda *a: pytest.fail("checked again"))
    for factor in (3.0, 4.0):
        assert len(launched(kernel, matrix(), matrix(), factor)) == 1


def test_parameters_are_kept_from_the_second_launch_with_the_same_values_on(
    launched: Callable[..., list[str]], packed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = fresh(scaled)
    x, y, z = matrix(), matrix(), matrix()
    show_parameters(kernel, (x, y, 2.0), monkeypatch)
    first = launched(kernel, x, y, 2.0)
    assert launched(kernel, x, y, 2.0) == first
    assert len(packed) == 2
    for _ in range(3):
        launched(kernel, z, y, 3.0)  # other values do not disturb what is kept
        assert launched(kernel, x, y, 2.0) == first
        assert launched(kernel, x.view(x.shape), y, 2.0) == first  # another object
    assert len(packed) == 4
    for args in ((y, x, 2.0), (x, z, 2.0), (x, y, 2.5)):
        assert launched(kernel, *args) == launched(fresh(scaled), *args) != first


def test_a_call_is_launched_on_the_stream_that_is_current(
    launched: Callable[..., list[str]], packed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, x, y = fresh(scaled), matrix(), matrix()
    for stream in (0xABC, 0xDEF) * 4:
        monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda i, s=stream: s)
        (line,) = launched(kernel, x, y, 2.0)
        assert f"stream {stream:#x}" in line
    assert len(packed) == 4  # two for each stream


def test_an_output_over_an_input_is_refused_at_every_call(
    launched: Callable[..., list[str]],
) -> None:
    kernel, whole = fresh(scaled), matrix(200, 72)

    def refused() -> None:
        with pytest.raises(ArgumentError, match="the output `y` shares memory with `x`"):
            kernel(whole[:100], whole[50:150], 2.0)

    for _ in range(3):
        assert launched(refused) == []
        assert len(launched(kernel, whole[:100], whole[100:], 2.0)) == 1


def test_views_that_interleave_are_no_overlap(launched: Callable[..., list[str]]) -> None:
    kernel, whole = fresh(scaled), matrix(100, 144)
    left, right = whole[:, :72], whole[:, 72:]
    for args in ((left, right, 2.0), (right, left, 2.0)) * 3:
        assert len(launched(kernel, *args)) == 1


def test_a_kernel_in_place_takes_two_buffers_in_turn_and_no_part_of_one(
    launched: Callable[..., list[str]], prepared: list[Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, checks = fresh(doubled), []
    check_aliasing = launch_file.check_aliasing
    monkeypatch.setattr(
        launch_file, "check_aliasing", lambda *a: (checks.append(a), check_aliasing(*a))[1]
    )
    whole, other = matrix(200, 72), matrix()
    for x in (whole[:100], other, whole[100:]) * 3:
        assert len(launched(kernel, x, x)) == 1
    assert len(prepared) == 1
    assert checks == []

    def refused() -> None:
        with pytest.raises(ArgumentError, match="shares memory"):
            kernel(whole[:100], whole[2:102])

    for _ in range(3):
        assert launched(refused) == []
    assert len(launched(kernel, other, other)) == 1


def test_another_alignment_is_another_program(
    launched: Callable[..., list[str]], prepared: list[Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = fresh(scaled)
    args = matrix(), matrix(), 2.0
    odd = shifted(args[0]), args[1], 2.0
    show_parameters(kernel, args, monkeypatch)
    lines = [launched(kernel, *each) for each in (args, odd, args, odd)]
    assert lines[0] == lines[2] != lines[1] == lines[3]
    aligned, unaligned = prepared
    assert aligned.loaded.source.program != unaligned.loaded.source.program


def test_a_view_that_is_negated_is_refused_after_a_plain_call_of_its_form(
    launched: Callable[..., list[str]],
) -> None:
    kernel, x, y = fresh(scaled), matrix(), matrix()
    for _ in range(3):
        assert len(launched(kernel, x, y, 2.0)) == 1

    def refused() -> None:
        with pytest.raises(ArgumentError, match="a negated view"):
            kernel(torch._neg_view(x), y, 2.0)

    assert launched(refused) == []


def test_what_is_refused_is_not_kept(gpu_tensors: None) -> None:
    x = matrix(64, 64)
    too_few, over = fresh(some_rows), fresh(scaled)
    for _ in range(2):
        with pytest.raises(ArgumentError, match="x has not so many rows"):
            too_few(x, matrix(64, 64), 65)
        with pytest.raises(ArgumentError, match="shares memory"):
            over(x, x, 2.0)
    assert len(too_few._calls) == len(over._calls) == 0


def test_a_number_that_divides_by_zero_is_reported_at_its_line(
    launched: Callable[..., list[str]],
) -> None:
    kernel, x, y = fresh(some_tiles), matrix(64, 64), matrix(64, 64)
    first = pytest.raises(AccessError, kernel, x, y, 6, 0)
    for count, per_block in ((6, 2), (12, 3), (6, 2)):
        (line,) = launched(kernel, x, y, count, per_block)
        assert f"grid {count // per_block} 1 1" in line
    again = pytest.raises(AccessError, kernel, x, y, 6, 0)
    assert str(again.value) == str(first.value)
    assert "count % per_block" in str(again.value)
    with pytest.raises(ArgumentError, match="not whole blocks"):
        kernel(x, y, 7, 2)


def test_a_launch_keeps_no_memory_alive(launched: Callable[..., list[str]]) -> None:
    kernel, x, y = fresh(scaled), matrix(), matrix()
    gone = weakref.ref(x)
    for _ in range(3):
        kernel(x, y, 2.0)
        kernel(shifted(x), y, 2.0)
    del x
    gc.collect()
    assert gone() is None


# -- numbers ---------------------------------------------------------------------------------------


def test_numbers_decide_the_grid_and_requirements_of_each_call(
    launched: Callable[..., list[str]], prepared: list[Launch]
) -> None:
    kernel, x, y = fresh(some_rows), matrix(100, 64), matrix(100, 64)
    for count in (5, 7, 7, 5, 5, 100, 1):
        (line,) = launched(kernel, x, y, count)
        assert f"grid {count} 1 1" in line

    def refused() -> None:
        with pytest.raises(ArgumentError, match="x has not so many rows"):
            kernel(x, y, 101)

    for _ in range(3):
        assert launched(refused) == []
    assert launched(kernel, x, y, 0) == []  # no blocks
    assert len(prepared) == len(kernel._calls) == 1
    assert [len(variants) for variants in kernel._recorded.values()] == [1]


def test_numbers_that_are_part_of_the_program_have_launches_of_their_own(
    launched: Callable[..., list[str]], prepared: list[Launch]
) -> None:
    kernel = fresh(so_many_columns)
    sets = [(matrix(64, 128), matrix(64, 128)) for _ in range(3)]
    for x, y in sets * 2:
        for count, blocks in ((64, 2), (32, 4), (128, 1), (32, 4)):
            (line,) = launched(kernel, x, y, count)
            assert f"grid {blocks} 1 1" in line
    assert len(prepared) == 3  # one a number, for all tensors


def test_numbers_of_numpy_and_in_structures_are_those_of_the_program(
    launched: Callable[..., list[str]], prepared: list[Launch]
) -> None:
    kernel, x, y = fresh(so_many_columns), matrix(64, 128), matrix(64, 128)
    for count, blocks in ((64, 2), (np.int64(32), 4), (np.int8(64), 2), (128, 1), (32, 4)):
        assert f"grid {blocks} 1 1" in launched(kernel, x, y, count)[0]
    assert len({launch.loaded.source.program for launch in prepared}) == 3

    @pk.kernel
    def of_a_pair(pair, y):
        row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, pk.static(pair[1])))
        pk.store(y[row, col], pk.load(pair[0][row, col], rows=64, cols=pk.static(pair[1])))

    for count, blocks in ((64, 2), (32, 4), (64, 2), (np.int64(32), 4)):
        for _ in range(2):
            assert f"grid {blocks} 1 1" in launched(of_a_pair, (x, count), y)[0]


def test_an_argument_that_is_none_is_another_program(
    launched: Callable[..., list[str]], prepared: list[Launch]
) -> None:
    @pk.kernel
    def added(x, bias, y):
        row, col = pk.grid(pk.cdiv(y.rows, 64), pk.cdiv(y.cols, 64))
        t = pk.load(x[row, col], rows=64, cols=64)
        if bias is not None:
            t = t + pk.load(bias[row, col], rows=64, cols=64)
        pk.store(y[row, col], t)

    x, y = matrix(), matrix()
    for bias in (None, x, None, x, matrix(), None):
        assert len(launched(added, x, bias, y)) == 1
    assert len(prepared) == len(added._calls) == 2
    with pytest.raises(ArgumentError, match="the output `y` shares memory with `x`"):
        added(y, None, y)


def test_a_number_that_does_not_fit_its_parameter_is_refused(
    launched: Callable[..., list[str]],
) -> None:
    kernel, y = fresh(filled), matrix()
    assert len(launched(kernel, y, float("inf"))) == 1
    for too_large in (2**31, -(2**31) - 1, 1e40, -1e40):
        assert len(launched(kernel, y, type(too_large)(2))) == 1
        with pytest.raises(
            ArgumentError, match=r"does not fit parameter \d of filled|outside the range"
        ):
            kernel(y, too_large)
        assert len(launched(kernel, y, type(too_large)(2))) == 1
    with pytest.raises(ArgumentError, match="outside the range of f32"):
        fresh(filled)(y, 1e40)


def test_zeros_of_either_sign_are_launched_with_their_own_bits(
    launched: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, x, y = fresh(scaled), matrix(), matrix()
    show_parameters(kernel, (x, y, 0.0), monkeypatch)
    zero, negative = (launched(fresh(scaled), x, y, f)[0] for f in (0.0, -0.0))
    assert zero != negative
    for factor in (0.0, -0.0, -0.0, 0.0, 0.0, -0.0):
        expected = zero if str(factor) == "0.0" else negative
        assert launched(kernel, x, y, factor) == [expected]


def test_numbers_of_another_kind_are_another_program(
    launched: Callable[..., list[str]], prepared: list[Launch]
) -> None:
    kernel, y = fresh(filled), matrix()
    for value in (1, 1.0, True, 2, 2.0, False, 1, 1.0, True):
        assert len(launched(kernel, y, value)) == 1
    assert len(prepared) == 3
    assert len({launch.loaded.source.program for launch in prepared}) == 3


def test_constants_outside_the_kernel_are_those_of_the_call(
    launched: Callable[..., list[str]], prepared: list[Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, x, y = fresh(as_wide_as_outside), matrix(64, 128), matrix(64, 128)
    for width, blocks in ((64, 2), (128, 1), (64, 2), (64, 2), (128, 1)):
        monkeypatch.setattr(calling, "WIDTH", width)
        (line,) = launched(kernel, x, y)
        assert f"grid {blocks} 1 1" in line
    assert len(prepared) == 2


def test_an_equal_value_from_outside_needs_one_comparison_of_contents(
    launched: Callable[..., list[str]], prepared: list[Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, x, y = fresh(multiplied), matrix(), matrix()
    for value in (2.5, 3.5, float("2.5"), float("3.5")):  # other objects
        monkeypatch.setattr(calling, "FACTOR", value)
        assert len(launched(kernel, x, y)) == 1
    assert len(prepared) == 2
    monkeypatch.setattr(kernel_file, "check", lambda *a: pytest.fail("checked again"))
    assert len(launched(kernel, x, y)) == 1


def test_the_first_call_looks_for_its_recording_once(
    launched: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, recording = [], KernelFunction.recording
    monkeypatch.setattr(KernelFunction, "recording", lambda *a: (asked.append(a), recording(*a))[1])
    assert len(launched(fresh(scaled), matrix(), matrix(), 2.0)) == 1
    assert len(asked) == 1


def test_threads_launch_with_streams_and_numbers_of_their_own(
    launched: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thread launches with a number of its own on a stream of that number, now and then with a new address."""
    kernel, whole, y = fresh(some_rows), matrix(500, 64), matrix(100, 64)
    kernel(whole[:100], y, 1)
    fill = Launcher.fill

    def fill_slowly(self: Launcher, values: Any, grid: int, stream: int) -> None:
        fill(self, values, grid, stream)
        time.sleep(1e-4)  # others run before the launch

    def call(count: int, i: int) -> None:
        kernel(whole[i // 3 : i // 3 + 100], y, count)

    monkeypatch.setattr(Launcher, "fill", fill_slowly)
    found = counts_of_threads(launched, monkeypatch, call, 60)
    assert found == {(count, count): 60 for count in "123"}


def test_parameters_are_not_kept_without_end(
    launched: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Launch, "MOST_KEPT", 3)
    kernel, x, y = fresh(scaled), matrix(), matrix()
    show_parameters(kernel, (x, y, 1.0), monkeypatch)
    first = {f: launched(fresh(scaled), x, y, f) for f in (1.0, 2.0, 3.0, 4.0, 5.0)}
    for factor in (*first, *first, 5.0, 5.0, *first):
        assert launched(kernel, x, y, factor) == first[factor]
    (launch,) = kernel._calls._prepared.values()
    assert len(launch._kept) <= 3
