"""Outputs that differ between schedules: errors, unless sums of floats or values of atomics may explain them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32, int32
from pykittens.emulate.finding import Finding, Kind, Level
from tests.races import findings

BLOCKS = 9


def numbers() -> Any:
    return np.random.default_rng(0).standard_normal((BLOCKS, 64)).astype(np.float32)


def zeros(*shape: int, dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype)


def difference(kernel: Any, *args: Any, **constants: Any) -> Finding:
    """What is found about `y`."""
    found = findings(kernel, *args, **constants)
    (finding,) = (f for f in found if f.message.startswith("`y` differs between"))
    assert finding.kind is Kind.SCHEDULE_DEPENDENT
    return finding


def explained(finding: Finding) -> list[str]:
    """The lines that may explain a difference."""
    return [s.loc.text.strip() for s in finding.history if s.loc is not None]


@pk.kernel
def slots(x, y, count, *, way: str):
    """Each block stores its row to a slot that it draws."""
    ring, tile = pk.pipeline(1, pk.sv(int32, 16)), pk.shared(pk.sv(int32, 16))
    (row,) = pk.grid(x.rows)
    with pk.producer():
        slot = pk.atomic_add(count[0], 1)
        with ring.fill() as s:
            pk.store(s, pk.full(int32, slot, 16))
    with pk.warpgroups(1):
        with ring.drain() as s:
            slot = pk.load(s.parts(1)[0])
        if way == "through shared memory":
            pk.store(tile, pk.full(int32, slot, 16))
            pk.sync()
            slot = pk.max(pk.load(tile))
        t = pk.load(x[row], cols=64)
        if way in ("address", "through shared memory"):
            pk.store(y[slot], t)
        if way == "branch" and slot == 0:
            pk.store(y[0], t)
        if way == "times":
            for _ in pk.range(slot):
                t = t + 1
            pk.store(y[row], t)
        if way == "value":
            pk.store(y[row], t * slot.to(f32))


@pytest.mark.parametrize("way", ["address", "through shared memory", "branch", "times", "value"])
def test_a_difference_through_what_an_atomic_returns_is_a_note_that_names_the_atomic(way):
    found = difference(slots, numbers(), zeros(BLOCKS, 64), zeros(1, dtype=np.int32), way=way)
    assert found.level is Level.NOTE
    assert explained(found) == ["slot = pk.atomic_add(count[0], 1)"]


@pk.kernel
def last(x, y, heads):
    (row,) = pk.grid(x.rows)
    pk.atomic_exchange(y[0], row)


def test_an_element_that_an_atomic_leaves_is_a_note():
    found = difference(last, numbers(), zeros(1, dtype=np.int32), zeros(1))
    assert found.level is Level.NOTE


@pk.kernel
def sum_and_copy(x, total, y, turn):
    """Blocks add rows in any order; the last block, by a flag that counts them, copies the sum."""
    (row,) = pk.grid(x.rows)
    pk.store(total, pk.load(x[row], cols=64), op="add")
    pk.signal(turn[0], 1, op="add")
    if row == 0:
        pk.wait(turn[0], x.rows)
        pk.store(y, pk.load(total, cols=64))


def test_a_difference_through_a_sum_of_floats_is_a_warning_that_names_the_sum():
    found = difference(sum_and_copy, numbers(), zeros(64), zeros(64), zeros(1, dtype=np.int32))
    assert found.level is Level.WARNING
    assert explained(found) == ['pk.store(total, pk.load(x[row], cols=64), op="add")']


@pk.kernel
def locked(x, y, lock, count, *, draws: bool):
    """Blocks store in the order in which they take a lock."""
    (row,) = pk.grid(x.rows)
    while pk.atomic_cas(lock[0], 0, 1) != 0:
        pass
    pk.store(y, pk.load(y, cols=64) + pk.load(x[row], cols=64))
    if draws:
        pk.store(count[pk.atomic_add(lock[1], 1)], row)
    pk.signal(lock[0], 0)


@pytest.mark.parametrize("draws", [False, True])
def test_a_difference_that_no_atomic_explains_is_an_error(draws):
    args = numbers(), zeros(64), zeros(2, dtype=np.int32), zeros(BLOCKS, dtype=np.int32)
    found = difference(locked, *args, draws=draws)
    assert found.level is Level.ERROR
    assert found.history == ()
