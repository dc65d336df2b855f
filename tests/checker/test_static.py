"""What a call shows before it runs, all in one."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import f32
from pykittens.checker.static import examine_statically
from pykittens.emulate.finding import Kind
from pykittens.runtime.arguments import check
from pykittens.types.devices import H200
from tests.running import recorded

X, Y = np.zeros((256, 64), np.float32), np.ones((256, 64), np.float32)


@pk.kernel
def kernel(x, y, n, *, stages=2, drains=1, text=""):
    """Copies tiles through a ring, with what may be wrong given."""
    ring = pk.pipeline(stages, pk.st(f32, 64, 64))
    (row,) = pk.grid(n)
    with pk.producer(), ring.fill() as t:
        pk.load_async(t, x[row, 0])
    with pk.warpgroups(1):
        for _ in range(drains):
            with ring.drain() as t:
                pk.store(y[row, 0], pk.load(t))
        pk.inline_cuda(text, numpy=lambda: None)


def look(x, y, n, **constants):
    arguments = check(kernel.parameters, (x, y, n), constants)
    seen = recorded(kernel, x, y, n, **constants)
    return examine_statically(seen, arguments, H200, compiles=False)


def test_nothing_is_found_in_a_kernel_that_is_right():
    seen = look(X, Y, 4)
    assert not seen.findings
    assert seen.proved == ("pipeline `ring`: filled by producer, drained by warpgroups, once each",)
    assert [t.title for t in seen.tables] == [
        "Shared memory",
        "Blocks at once",
        "Inserted by the compiler",
    ]


@pytest.mark.parametrize(
    ("y", "n", "constants", "kind"),
    [
        (Y, 4, {"drains": 2}, Kind.BARRIER_COUNT),
        (Y, 4, {"text": "__syncthreads();"}, Kind.NAMED_BARRIER),
        (Y, 4, {"stages": 20}, Kind.RESOURCES),
    ],
)
def test_each_kind_of_mistake_is_found(y, n, constants, kind):
    assert [f.kind for f in look(X, y, n, **constants).findings] == [kind]


def test_a_kernel_that_does_not_fit_has_a_map_of_its_memory():
    seen = look(X, Y, 4, stages=20)
    assert [t.title for t in seen.tables] == ["Shared memory", "Inserted by the compiler"]
    assert "141% of the most for a block of sm_90a" in seen.tables[0].note


def test_several_mistakes_are_told_together():
    kinds = {f.kind for f in look(X, Y, 4, drains=2, text="__syncthreads();").findings}
    assert kinds == {Kind.BARRIER_COUNT, Kind.NAMED_BARRIER}
