"""Prefetches in instructions are no accesses: they wait for nothing, whoever writes what they name."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens.ir.nodes import Call, walk
from pykittens.mega import Program
from tests.running import recorded

LENGTH = 64


def doubling(ahead: bool) -> Program:
    """Instructions that double a cell, by a producer and warps; with prefetches of the cell, and of one after it."""
    program = Program(blocks=2)

    @program.instruction
    def double(x, *, a):
        """x[a + 1] = 2 x[a]."""
        ring = pk.pipeline(2, pk.sv(pk.f32, LENGTH))
        with pk.producer():
            if ahead:
                pk.prefetch(x[a], cols=LENGTH)
                pk.prefetch(x[a + 3], cols=LENGTH)
            with ring.fill() as s:
                pk.load_async(s, x[a])
        with pk.warps(1), ring.drain() as s:
            y = 2 * pk.load(s)
            pk.store(x[a + 1], y)

    for a in range(4):
        program.add(double, a=a)
    return program


def given() -> np.ndarray:
    x = np.full((5, LENGTH), np.nan, np.float32)
    x[0] = 1
    return x


def test_the_schedule_is_that_without_prefetches():
    with_them, without = (doubling(ahead).scheduled(x=given()) for ahead in (True, False))
    assert with_them.waits == without.waits
    assert with_them.signals == without.signals


def test_a_producer_prefetches_before_it_waits():
    program = doubling(True)
    arguments = program.arguments(program.scheduled(x=given()), x=given())
    producer = recorded(program.kernel(), *arguments).roles[0]
    names = [n.op.name for n in walk(producer.body) if isinstance(n, Call)]
    assert names.count("prefetch") == 2
    first = names.index("prefetch")
    assert "wait" in names[first + 2 : names.index("load_async")]
    assert "wait" not in names[names.index("load") : first]


def test_results_are_the_same_without_races():
    program, x = doubling(True), given()
    arguments = program.arguments(program.scheduled(x=x), x=x)
    assert pk.check(program.kernel(), *arguments, schedules=4).ok
    program.kernel()(*arguments)
    assert (x == 2.0 ** np.arange(5)[:, None]).all()
    x = given()
    program.run_coarse(x=x)
    assert (x == 2.0 ** np.arange(5)[:, None]).all()
