"""Rings that all kinds of a program share, each with a view of its own."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import LanguageError
from pykittens.mega import Program
from tests.running import recorded


def shared_ring():
    """A program whose kinds have views of one ring of two stages; the second reads what the first writes."""
    program = Program(blocks=2)
    pages = program.ring(2, flight=1)

    @program.instruction
    def add_one(x, y, *, part):
        page = pages.view(pk.sv(pk.f32, 64))
        with pk.producer(), page.fill() as s:
            pk.load_async(s, x[part])
        with pk.warps(1), page.drain() as s:
            pk.store(y[part], 1 + pk.load(s))

    @program.instruction
    def multiply(m, y, z, *, row):
        page = pages.view(m=pk.st(pk.f32, 16, 64), y=pk.sv(pk.f32, 64))
        with pk.producer(), page.fill() as s:
            pk.load_async(s.m, m[row, 0])
            pk.load_async(s.y, y[row])
        with pk.warps(1), page.drain() as s:
            pk.store(z[row], pk.row_sum(pk.load(s.m) * pk.load(s.y, spread=pk.per_column)))

    for i in range(4):
        program.add(add_one, part=i)
        program.add(multiply, row=i, block=(i + 1) % 2)
    rng = np.random.default_rng(0)
    x, m = (rng.integers(-4, 5, shape).astype(np.float32) for shape in (256, (64, 64)))
    y, z = np.zeros(256, np.float32), np.zeros(64, np.float32)
    return program, {"x": x, "m": m, "y": y, "z": z}


def test_kinds_have_views_of_one_ring():
    program, t = shared_ring()
    schedule = program.scheduled(**t)
    report = pk.check(program.kernel(), *program.arguments(schedule, **t), schedules=8)
    assert report.ok, str(report)
    program.run(**t)
    wanted = (t["m"].reshape(4, 16, 64) * (t["x"] + 1).reshape(4, 1, 64)).sum(axis=2)
    np.testing.assert_array_equal(t["z"], wanted.ravel())
    made = recorded(program.kernel(), *program.arguments(schedule, **t))
    (ring,) = made.pipelines
    assert (ring.stages, ring.flight, ring.stage_bytes) == (2, 1, 4096 + 1024)


def test_the_ring_of_a_program_is_for_its_instructions():
    ring = Program(blocks=1).ring(2)

    @pk.kernel
    def kernel(x):
        pk.grid(1)
        ring.view(pk.sv(pk.f32, 64))

    with pytest.raises(LanguageError, match="the ring of a program is for its instructions"):
        kernel(np.zeros(64, np.float32))
