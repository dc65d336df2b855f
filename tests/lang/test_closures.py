"""A kernel is recorded again if the constants that it reads from outside change."""

import sys
from dataclasses import dataclass

import numpy as np

import pykittens as pk

STEP = 1


@pk.kernel(warps=1)
def counting(out):
    """out = STEP everywhere."""
    (row,) = pk.grid(out.rows)
    pk.store(out[row], pk.zeros(pk.int32, 8) + STEP)


def helper():
    return FACTOR * 10


@pk.kernel(warps=1)
def helped(out):
    """out = FACTOR * 10, by a helper, from a global bound below."""
    (row,) = pk.grid(out.rows)
    pk.store(out[row], pk.zeros(pk.int32, 8) + helper())


FACTOR = 2


@pk.kernel(warps=1)
def typed(out):
    """out = 1 where STEP is an int, 2 where it is a float."""
    (row,) = pk.grid(out.rows)
    pk.store(out[row], pk.zeros(pk.int32, 8) + (1 if isinstance(STEP, int) else 2))


def written(kernel):
    out = np.zeros((2, 8), np.int32)
    kernel(out)
    assert (out == out[0, 0]).all()
    return int(out[0, 0])


def test_a_changed_global_is_seen(monkeypatch):
    assert written(counting) == 1
    monkeypatch.setitem(globals(), "STEP", 5)
    assert written(counting) == 5
    monkeypatch.undo()
    assert written(counting) == 1


def test_a_changed_variable_of_the_enclosing_function_is_seen():
    step = 3

    @pk.kernel(warps=1)
    def inner(out):
        (row,) = pk.grid(out.rows)
        pk.store(out[row], pk.zeros(pk.int32, 8) + step)

    assert written(inner) == 3
    step = 4
    assert written(inner) == 4


def test_a_changed_global_of_a_helper_is_seen(monkeypatch):
    assert written(helped) == 20
    monkeypatch.setitem(globals(), "FACTOR", 7)
    assert written(helped) == 70


def test_a_number_of_another_type_is_another_constant(monkeypatch):
    assert written(typed) == 1
    monkeypatch.setitem(globals(), "STEP", 1.0)
    assert written(typed) == 2


def shifted(x):
    return x + SHIFT


SHIFT = 3


@dataclass(frozen=True)
class Steps:
    then: object


@pk.kernel(warps=1)
def passed(out, *, steps):
    """out = what the function that was passed makes of 0."""
    (row,) = pk.grid(out.rows)
    then = steps.then if isinstance(steps, Steps) else steps
    pk.store(out[row], then(pk.zeros(pk.int32, 8)))


def test_a_function_that_is_passed_is_followed_also_inside_of_a_dataclass(monkeypatch):
    for steps in (shifted, Steps(shifted), pk.function(shifted)):
        monkeypatch.setattr(sys.modules[__name__], "SHIFT", 3)
        out = np.zeros((2, 8), np.int32)
        passed(out, steps=steps)
        assert (out == 3).all()
        monkeypatch.setattr(sys.modules[__name__], "SHIFT", 5)
        passed(out, steps=steps)
        assert (out == 5).all()
