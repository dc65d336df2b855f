"""Watchers: several are one, and a run tells all events in an order that makes sense."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32
from pykittens.emulate import machine
from pykittens.emulate.watch import NOBODY, Access, Watcher, Watchers
from tests.running import recorded

EVENTS = [name for name, event in vars(Watcher).items() if callable(event) and name[0] != "_"]


class Diary(Watcher):
    """Writes down every event."""

    reports_unfinished = True

    def __init__(self) -> None:
        self.events: list[tuple[str, tuple[Any, ...]]] = []


def _written_down(name: str) -> Any:
    return lambda self, *args: self.events.append((name, args))


for _name in EVENTS:
    setattr(Diary, _name, _written_down(_name))


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_reaches_all_watchers_and_changes_nothing(name):
    args = tuple(range(len(inspect.signature(getattr(Watcher, name)).parameters) - 1))
    first, second = Diary(), Diary()
    getattr(Watchers((first, second)), name)(*args)
    assert first.events == second.events == [(name, args)]
    assert getattr(NOBODY, name)(*args) is None


def test_watchers_report_unfinished_work_if_one_of_them_does():
    assert Watchers((Watcher(), Diary())).reports_unfinished
    assert not Watchers((Watcher(), Watcher())).reports_unfinished
    assert not Watchers(()).reports_unfinished


def test_a_combination_is_no_read():
    assert [access.reads for access in Access] == [True, False, False]


@pk.kernel
def through_a_ring(x, y):
    ring = pk.pipeline(1, pk.st(f32, 64, 64))
    pk.grid(1)
    with pk.producer():
        for i in pk.range(2):
            with ring.fill() as t:
                pk.load_async(t, x[i])
    with pk.storer():
        for i in pk.range(2):
            with ring.drain() as t:
                pk.store_async(y[i], t)


@pytest.mark.parametrize("seed", range(6))
def test_a_run_tells_each_event_before_what_follows_from_it(seed):
    x, y = np.ones((128, 64), np.float32), np.zeros((128, 64), np.float32)
    diary = Diary()
    machine.run(recorded(through_a_ring, x, y), {"x": x, "y": y}, {}, seed, diary)
    names = [name for name, _ in diary.events]
    assert names[0] == "together"
    assert names[-1] == "over"
    assert [names.count(n) for n in ("starts_copy", "lands", "starts_store", "ended")] == [
        2,
        2,
        2,
        2,
    ]
    copies = [args[-1] for name, args in diary.events if name == "starts_copy"]
    landed = [args[0] for name, args in diary.events if name == "lands"]
    assert set(landed) == set(copies)
    at = names.index
    assert at("starts_copy") < at("lands") < at("completes") < at("starts_store")
    assert names.count("empties") == 2
    assert (y == 1).all()
