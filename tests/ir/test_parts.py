"""Sums that a loop carries in parts: for which loops they are, and which values then are."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32, int32
from pykittens.ir.nodes import For, calls, walk
from pykittens.ir.text import text
from tests.ir import kernels
from tests.running import recorded

DTYPES = {f32: np.float32, int32: np.int32}


def kernel_of(body: Any, dtype: Any = f32) -> Any:
    """The lowered kernel of a loop over tiles t of x, whose body maps (l, m, t, i) to the next l and m."""

    @pk.kernel
    def kernel(x, y, z, n):
        pk.grid(1)
        l, m = (pk.load(row, cols=64, spread=pk.per_row) for row in (y, z))
        for i in pk.range(n):
            t = pk.load(x[0, i], rows=64, cols=64)
            l, m = body(l, m, t, i)
        pk.store(y, l)
        pk.store(z, m)

    x = np.ones((64, 256), DTYPES[dtype])
    return recorded(kernel, x, x[0, :64].copy(), x[0, :64].copy(), 2)


def in_parts(kernel: Any) -> dict[str, int]:
    """How often a kernel sums rows and has operations of parts."""
    names = Counter(c.op.name for c in calls(kernel.body))
    words = ("row_sum_in_parts", "row_sum", "row_part_alone", "row_parts_joined")
    return {w: names[w] for w in words if w in names}


ONE = {"row_sum_in_parts": 1, "row_part_alone": 1, "row_parts_joined": 1}


@pytest.mark.parametrize(
    "body",
    [
        lambda l, m, t, i: (l + pk.row_sum(t), m),
        lambda l, m, t, i: (pk.row_sum(t) + l, m),
        lambda l, m, t, i: (l * 2.0 + pk.row_sum(t * t), pk.maximum(m, pk.row_max(t))),
        lambda l, m, t, i: (l * m - pk.row_sum(t), pk.maximum(m, pk.row_max(t))),
        lambda l, m, t, i: (pk.fma(l, pk.exp2(m), pk.row_sum(t)), pk.maximum(m, pk.row_max(t))),
        lambda l, m, t, i: (pk.fma(m, l, pk.row_sum(t)), pk.maximum(m, 1.0)),
        lambda l, m, t, i: ((-l) / pk.row_max(t) + 0.5 * pk.row_sum(t), pk.maximum(m, 1.0)),
        lambda l, m, t, i: (l * pk.max(t) + pk.row_sum(t), pk.exp2(m)),
        lambda l, m, t, i: (l * m + pk.row_sum(t), pk.exp2(m)),
    ],
)
def test_a_sum_that_a_loop_only_adds_to_and_multiplies_is_in_parts(body):
    assert in_parts(kernel_of(body)) == ONE


def test_integers_are_carried_in_parts():
    body = lambda l, m, t, i: (l * i + pk.row_sum(t), pk.maximum(m, 1))  # noqa: E731
    assert in_parts(kernel_of(body, int32)) == ONE


def test_carried_sums_that_are_added_are_in_parts_together():
    kernel = kernel_of(lambda l, m, t, i: (l * 0.5 + pk.row_sum(t), m + l))
    assert in_parts(kernel) == {"row_sum_in_parts": 1, "row_part_alone": 2, "row_parts_joined": 2}
    kernel = kernel_of(lambda l, m, t, i: (m + pk.row_sum(t), l))
    assert in_parts(kernel) == {"row_sum_in_parts": 1, "row_part_alone": 2, "row_parts_joined": 2}
    kernel = kernel_of(lambda l, m, t, i: (l + pk.row_sum(t), m * 2.0 + pk.row_sum(t * t)))
    assert in_parts(kernel) == {"row_sum_in_parts": 2, "row_part_alone": 2, "row_parts_joined": 2}


def shown(l, m, t, i):
    pk.print("{}", l)
    return l + pk.row_sum(t), m


def read_twice(l, m, t, i):
    s = pk.row_sum(t)
    return l + s, pk.maximum(m, s)


@pk.function
def in_a_branch(l, m, t, i):
    if i > 1:
        l = l + pk.row_sum(t)  # noqa: E741
    return l, m


@pk.function
def summed_in_a_branch(l, m, t, i):
    s = pk.row_max(t)
    if i > 1:
        s = pk.row_sum(t)
    return l + s, m


@pytest.mark.parametrize(
    "body",
    [
        lambda l, m, t, i: (l + 1.0, m),
        lambda l, m, t, i: (l * 2.0, m * 2.0),
        lambda l, m, t, i: (l + pk.row_sum(t) + 1.0, m),
        lambda l, m, t, i: (l + pk.row_sum(t) + pk.row_max(t), m),
        lambda l, m, t, i: (pk.maximum(l, pk.row_sum(t)), m),
        lambda l, m, t, i: (pk.maximum(l + pk.row_sum(t), 0.0), m),
        lambda l, m, t, i: (l * l + pk.row_sum(t), m),
        lambda l, m, t, i: (l * pk.row_sum(t), m),
        lambda l, m, t, i: (l * pk.exp2(l) + pk.row_sum(t), m),
        lambda l, m, t, i: (pk.row_sum(t) / l, m),
        lambda l, m, t, i: (l + pk.row_sum(t), pk.maximum(m, l)),
        lambda l, m, t, i: (l + pk.row_sum(t + l), m),
        lambda l, m, t, i: (l + pk.row_prod(t), m),
        lambda l, m, t, i: (l + pk.sum(t), m),
        lambda l, m, t, i: (l + pk.row_sum(t.to(bf16)).to(f32), m),
        shown,
        read_twice,
        in_a_branch,
        summed_in_a_branch,
    ],
)
def test_a_sum_that_the_loop_reads_otherwise_is_joined_at_once(body):
    found = in_parts(kernel_of(body))
    assert found.keys() <= {"row_sum"}, text(kernel_of(body))


@pytest.mark.parametrize(
    ("dtype", "zero", "found"), [(f32, 0.0, "sum_in_parts"), (int32, 0, "sum")]
)
def test_a_scalar_sum_is_in_parts_if_it_cannot_overflow(dtype, zero, found):
    @pk.kernel
    def dots(x, y, n):
        pk.grid(1)
        a, b = zero, pk.sum(pk.load(x[0], cols=64))
        for i in pk.range(n):
            v = pk.load(x[i], cols=64)
            a, b = a + pk.sum(v * v), pk.sum(v) - b * 2
        pk.store(y[0], a + b)

    x = np.ones((4, 64), DTYPES[dtype])
    kernel = recorded(dots, x, x[0].copy(), 2)
    names = Counter(c.op.name for c in calls(kernel.body))
    # The first value of b is a sum that nothing else reads, and that of a is zero in all lanes.
    assert (names[found], names["part_alone"]) == (3, 0)
    assert names["parts_joined"] == (2 if dtype == f32 else 0)


def test_other_dtypes_and_directions_are_joined_at_once():
    @pk.kernel
    def narrow(x, y, z, n):
        pk.grid(1)
        l, c = pk.zeros(bf16, 64, spread=pk.per_row), pk.zeros(f32, 64, spread=pk.per_column)
        v = pk.zeros(f32, 64)
        for i in pk.range(n):
            t = pk.load(x[0, i], rows=64, cols=64)
            l, c, v = l + pk.row_sum(t.to(bf16)), c + pk.col_sum(t), v * 2.0  # noqa: E741
        pk.store(y, l)
        pk.store(z[0], c)
        pk.store(z[1], v)

    x, y = np.ones((64, 256), np.float32), np.ones(64, bf16.numpy)
    assert in_parts(recorded(narrow, x, y, np.ones((2, 64), np.float32), 2)) == {"row_sum": 1}


def test_an_initial_sum_that_nothing_else_reads_stays_in_parts():
    @pk.kernel
    def kernel(x, y, z, n, *, reads):
        pk.grid(1)
        first = pk.row_sum(pk.load(x[0], rows=64, cols=64))
        l = first  # noqa: E741
        for i in pk.range(1, n):
            l = l + pk.row_sum(pk.load(x[0, i], rows=64, cols=64))  # noqa: E741
        pk.store(y, l)
        if reads:
            pk.store(z, first)

    x, y = np.ones((64, 256), np.float32), np.ones(64, np.float32)
    found = [in_parts(recorded(kernel, x, y, y.copy(), 2, reads=r)) for r in (False, True)]
    assert found == [
        {"row_sum_in_parts": 2, "row_parts_joined": 1},
        {"row_sum_in_parts": 1, "row_sum": 1, "row_part_alone": 1, "row_parts_joined": 1},
    ]


def test_each_of_two_nested_loops_joins_its_own_sums():
    @pk.kernel
    def kernel(x, y, n):
        pk.grid(1)
        l = pk.zeros(f32, 64, spread=pk.per_row)  # noqa: E741
        for i in pk.range(n):
            for j in pk.range(i):
                l = l * 0.5 + pk.row_sum(pk.load(x[0, j], rows=64, cols=64))  # noqa: E741
        pk.store(y, l)

    x, y = np.ones((64, 256), np.float32), np.ones(64, np.float32)
    assert in_parts(recorded(kernel, x, y, 2)) == ONE


def test_a_while_that_tests_the_sum_joins_it_at_once():
    @pk.kernel
    def kernel(x, y, n, *, tests):
        pk.grid(1)
        i = n
        l = pk.zeros(f32, 64, spread=pk.per_row)  # noqa: E741
        while i > 0 and (not tests or pk.max(l) < 100.0):
            l = l + pk.row_sum(pk.load(x[0, i], rows=64, cols=64))  # noqa: E741
            i = i - 1
        pk.store(y, l)

    x, y = np.ones((64, 256), np.float32), np.ones(64, np.float32)
    assert in_parts(recorded(kernel, x, y, 2, tests=False)) == ONE
    assert in_parts(recorded(kernel, x, y, 2, tests=True)) == {"row_sum": 1}


def test_sums_of_weights_are_in_parts_while_products_are_in_flight():
    tensors = [np.ones((128, 64), bf16.numpy) for _ in range(3)]
    lowered = recorded(kernels.one_stage, *tensors, np.ones((128, 64), np.float32))
    assert in_parts(lowered) == {"row_sum_in_parts": 2, "row_parts_joined": 1}


def test_a_long_chain_of_sums_is_in_parts():
    def body(l, m, t, i):
        for k in range(600):
            l = l + pk.row_sum(t) * float(k)  # noqa: E741
        return l, m

    assert in_parts(kernel_of(body))["row_sum_in_parts"] == 600


def test_an_operation_says_in_which_operands_it_is_linear():
    rng = np.random.default_rng(0)
    for op in {
        c.op
        for c in calls(kernel_of(lambda l, m, t, i: (pk.fma(l, m, l - m) / -m * m, m + l)).body)
    }:
        for names in op.linear:
            args, more = (
                {n: rng.normal(size=3) for n in op.__signature__.parameters} for _ in range(2)
            )
            both = {n: a + more[n] if n in names else a for n, a in args.items()}
            other = {n: more[n] if n in names else a for n, a in args.items()}
            function = op.scalar.numpy
            assert np.allclose(function(**both), function(**args) + function(**other)), op.name


def test_a_sum_is_joined_after_the_loop_and_not_in_it():
    kernel = kernel_of(lambda l, m, t, i: (l + pk.row_sum(t), m))
    (loop,) = (n for n in walk(kernel.body) if isinstance(n, For))
    assert "row_parts_joined" not in {c.op.name for c in calls(loop.body)}
    assert kernel.body.nodes[kernel.body.nodes.index(loop) + 1].op.name == "row_parts_joined"
