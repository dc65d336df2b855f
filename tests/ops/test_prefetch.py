"""Prefetches: what they may name, and that they are no access."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import AccessError, LanguageError, TypeMismatch
from pykittens.ir.nodes import Call, For, calls, written
from pykittens.types.dtypes import f32
from tests.running import recorded

X = np.zeros((4, 64), np.float32)


@pk.kernel(warps=1)
def in_a_loop(x, y, n):
    """Prefetches whose operands do not depend on the loop, and whose tensor nothing reads."""
    pk.grid(1)
    for _ in pk.range(n):
        pk.prefetch(x[n], cols=64)
    pk.store(y[0], pk.zeros(f32, 64))


def test_a_prefetch_is_neither_dropped_nor_moved():
    program = recorded(in_a_loop, X, X.copy(), 3)
    (loop,) = (node for node in program.body.nodes if isinstance(node, For))
    assert [n.op.name for n in loop.body.nodes if isinstance(n, Call)] == ["prefetch"]
    assert [c.op.name for c in calls(program.body)].count("prefetch") == 1


@pk.kernel
def while_others_write(x, y):
    """Each block prefetches the rows that others write, in the same role and in another."""
    (i,) = pk.grid(x.rows)
    with pk.warps(2) as w:
        pk.prefetch(y, rows=100, cols=100)
        pk.store(y[i, w], pk.load(x[i, w], cols=32))
    with pk.warps(1):
        pk.prefetch(y[i], cols=64)


def test_a_prefetch_needs_no_order_with_writes():
    y = np.empty_like(X)
    report = pk.check(while_others_write, X, y)
    assert report.ok, str(report)
    assert written(recorded(while_others_write, X, y)) == ["y"]
    (table,) = (t for t in report.tables if t.title == "Global accesses")
    assert {row.cells[0] for row in table.rows} == {"load", "store"}
    (table,) = (t for t in report.tables if t.title == "Traffic of the launch")
    assert [row.cells[1] for row in table.rows] == ["1024 B", "1024 B", "2048 B"]


@pk.kernel(warps=1)
def of_another(x, y, i):
    pk.grid(1)
    pk.prefetch(x[i, :], rows=16, cols=16)
    pk.store(y, pk.zeros(f32, 64))


def test_an_index_of_another_axis_must_lie_inside_it():
    x, y = np.zeros((3, 20, 20), np.float32), np.zeros(64, np.float32)
    of_another(x, y, 2)
    with pytest.raises(AccessError, match="index 3 of axis 0 is outside `x`"):
        of_another(x, y, 3)


@pk.kernel(warps=1)
def far(x, y, i):
    pk.grid(1)
    pk.prefetch(x[i], cols=2**20)
    pk.store(y, pk.zeros(f32, 64))


def test_coordinates_are_those_of_an_int32():
    y = np.zeros(64, np.float32)
    far(np.zeros(5, np.float32), y, 2**11 - 1)
    with pytest.raises(AccessError, match="the coordinate 2147483648 in `x` overflows an int32"):
        far(np.zeros(5, np.float32), y, 2**11)


@pk.kernel(warps=1)
def vast(x, y):
    pk.grid(1)
    pk.prefetch(x, rows=2**16, cols=2**15)
    pk.store(y, pk.zeros(f32, 64))


def test_a_tile_of_more_elements_than_an_int32_counts_is_refused():
    with pytest.raises(
        TypeMismatch, match="must be at most 2147483647 elements, not 65536 x 32768"
    ):
        vast(X, X.copy())


@pk.kernel
def outside_of_roles(x, y):
    pk.grid(1)
    pk.prefetch(x, cols=64)
    with pk.warps(1):
        pk.store(y, pk.load(x, cols=64))


def test_a_prefetch_of_a_kernel_with_roles_is_in_one():
    with pytest.raises(LanguageError, match="prefetch: stands outside the roles"):
        outside_of_roles(X, X.copy())
