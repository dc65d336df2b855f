"""Functions of the user are called with the arguments of a call, and those that cannot be are refused at once."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import ArgumentError
from pykittens.runtime import nvrtc
from pykittens.runtime.arguments import check
from pykittens.runtime.candidates import TunedParameters
from pykittens.runtime.user_functions import UserFunction
from tests.runtime import tuned_calls
from tests.runtime.c_programs import needs_compiler
from tests.runtime.tuned_calls import COLS, TunedGpu, launches, matrices, tuned

pytest.importorskip("torch")
pytestmark = [
    needs_compiler,
    pytest.mark.skipif(nvrtc.available() is not None, reason="needs NVRTC"),
]


def of(function: Any, kernel: Any = tuned_calls.multiplied, candidates: Any = COLS) -> Any:
    parameters = TunedParameters.tuned(kernel.function, candidates)
    made = UserFunction.of("key", function, parameters)
    assert made is not None
    return lambda *args, **words: made(check(parameters, args, words))


@pytest.fixture
def x() -> Any:
    return np.ones((70, 100), np.float32)


def test_arguments_are_those_of_the_caller_and_constants_come_by_name(x: Any) -> None:
    y = np.zeros_like(x)
    found = of(lambda x, y, factor: (x, y, factor))(y=y, x=x, factor=3.0)
    assert found[0] is x
    assert found[1] is y
    assert found[2] == 3.0
    assert of(lambda *args: len(args))(x, y, factor=3.0) == 2
    assert of(lambda x, y, *, factor=1.0: factor)(x, y, factor=3.0) == 3.0
    assert of(functools.partial(lambda more, x, y: more, 7))(x, y, factor=3.0) == 7


def test_what_has_no_signature_is_not_checked(x: Any) -> None:
    pairs = [*of(zip)(x, x.copy(), factor=3.0)]  # in C
    assert len(pairs) == 70


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (lambda x: x.shape, "too many positional arguments"),
        (lambda x, y, z: x.shape, "missing a required argument: 'z'"),
        (lambda x, y, cols: cols, "missing a required argument: 'cols'"),  # it is tuned
        (lambda x, y, *, rows: rows, "missing a required argument: 'rows'"),
    ],
)
def test_a_function_that_does_not_take_the_arguments_is_refused(function: Any, fault: str) -> None:
    for word in ("key", "reference"):
        with pytest.raises(ArgumentError) as error:
            tuned(tuned_calls.multiplied, COLS, **{word: function})
        text = f"autotune: `{word}` does not take the arguments of multiplied: {fault}"
        assert error.value.message == text
        assert error.value.help == "it takes x, y, and by keyword factor"
    with pytest.raises(ArgumentError) as error:
        tuned(prune=lambda x, y: [])
    assert error.value.help == "it takes candidates, x, y"


def test_of_a_kernel_with_any_number_of_arguments_the_number_is_not_checked(x: Any) -> None:
    @pk.kernel
    def summed(y, *inputs, cols):  # type: ignore[no-untyped-def]
        (row,) = pk.grid(y.rows)
        pk.store(y[row], sum(pk.load(i[row], cols=cols) for i in inputs))

    assert of(lambda y, a, b: b is x, summed)(x.copy(), x.copy(), x)


@pytest.mark.parametrize("word", ["key", "reference", "prune"])
def test_what_is_no_function_is_refused(word: str) -> None:
    with pytest.raises(ArgumentError) as error:
        pk.autotune([{"rows": 64}], **{word: ["M"]})  # type: ignore[arg-type]
    assert (
        error.value.message == f"autotune: `{word}` must be a function of the arguments, not ['M']"
    )
    assert f"{word}=lambda" in (error.value.help or "")


# -- candidates that are left out ------------------------------------------------------------------


def test_candidates_are_pruned_for_the_arguments_of_a_call(tuned_gpu: TunedGpu) -> None:
    def prune(candidates: Any, x: Any, y: Any, factor: float) -> Any:
        return [c for c in candidates if c["cols"] <= x.shape[1] and c["cols"] < factor]

    x, y = matrices()
    scaled = tuned(tuned_calls.scaled, [{"cols": n} for n in (32, 64, 128)], prune=prune)
    assert set(launches(tuned_gpu, lambda: scaled(x, y, 500.0))) == {(32,), (64,)}
    assert launches(tuned_gpu, lambda: scaled(x, y, 600.0)) == {(32,): 1}
    for factor in (50.0, 40.0):  # one is left, so there is nothing to measure
        assert launches(tuned_gpu, lambda f=factor: scaled(x, y, f)) == {(32,): 1}
    assert launches(tuned_gpu, lambda: scaled(x, y, 1.0, cols=128)) == {(128,): 1}
    wide = matrices(70, 200)
    assert set(launches(tuned_gpu, lambda: scaled(*wide, 500.0))) == {(32,), (64,), (128,)}


@pytest.mark.parametrize(
    ("left", "text"),
    [
        ([], "leaves no candidate"),
        (None, "leaves no candidate"),
        ([{"rows": 7, "cols": 64}], "returns {'rows': 7, 'cols': 64}, which is none of"),
    ],
)
def test_what_is_left_must_be_candidates(tuned_gpu: TunedGpu, left: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=f"^doubled: `prune` {text}"):
        tuned(prune=lambda candidates, x, y: left)(*matrices())


def test_a_choice_of_numbers_is_not_used_for_others(tuned_gpu: TunedGpu) -> None:
    scaled = tuned(
        tuned_calls.scaled,
        COLS,
        prune=lambda candidates, x, y, factor: candidates[:1] if factor > 10 else candidates[1:],
    )
    x, y = matrices()
    for factor, cols in ((20.0, 64), (2.0, 32), (20.0, 64), (2.0, 32), (30.0, 64)):
        assert launches(tuned_gpu, lambda f=factor: scaled(x, y, f)) == {(cols,): 1}
