"""The formulas of a kernel's values: loops, extents, what is required of them, and what is only loaded."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.checker.proofs.formula import Comparison, compare
from pykittens.checker.proofs.symbolic import Formulas
from pykittens.ir.nodes import Call, For, walk
from tests.running import recorded


def trips(bounds, x=None, n=5, m=7):
    """The passes of a loop over the range that a function of Python makes of n, m and the extents of x."""

    @pk.kernel
    def kernel(x, y, n, m):
        pk.grid(1)
        for i in bounds(x, n, m):
            pk.store(y[i], 1)

    x = np.zeros((40, 30), np.float32) if x is None else x
    made = recorded(kernel, x, np.zeros(8, np.int32), n, m)
    node = next(node for node in walk(made.body) if isinstance(node, For))
    return str(Formulas(made).trips(node.start, node.stop, node.step))


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        (lambda x, n, m: pk.range(n + m - 2 * n, m + n, 1), "max(2 * n, 0)"),
        (lambda x, n, m: pk.range((n + 1) * (m - 1)), "max(m + m * n - n - 1, 0)"),
        (lambda x, n, m: pk.range(x.rows + 2, 2, -1), "x.shape[0]"),
        (lambda x, n, m: pk.range(pk.cdiv(x.rows, 16) * 2), "2 * cdiv(x.shape[0], 16)"),
        (lambda x, n, m: pk.range((x.rows * 8 + 3) // 4), "2 * x.shape[0]"),
        (lambda x, n, m: pk.range((x.rows * 8 + x.cols) // 4), "floor_div(x.shape[1], 4) + 2 * x.shape[0]"),
        (lambda x, n, m: pk.range(pk.static(x.rows), 100, 7), "9"),
        (lambda x, n, m: pk.range(pk.maximum(x.rows, 3)), "maximum(x.shape[0], 3)"),
        (lambda x, n, m: pk.range(0, x.rows, 3), "cdiv(x.shape[0], 3)"),
        (lambda x, n, m: pk.range(n - n), "0"),
    ],
)  # fmt: skip
def test_passes_of_loops(bounds, text):
    assert trips(bounds) == text


@pytest.mark.parametrize("n", [-3, 0, 1, 5])
@pytest.mark.parametrize(("start", "stop", "step"), [(0, 4, 1), (7, 1, -2), (3, 3, 1), (5, 1, 1)])
def test_passes_of_known_loops_are_python_s(n, start, stop, step):
    # `n` is a constant of the kernel, by pk.static.
    found = trips(lambda x, k, m: pk.range(pk.static(k) + start, pk.static(k) + stop, step), n=n)
    assert int(found) == len(range(n + start, n + stop, step))


def test_extents_that_are_required_to_be_equal_have_one_name():
    @pk.kernel
    def kernel(x, y, n):
        pk.require(x.shape == y.shape, "x and y are alike")
        pk.require(n == 4, "n is 4")
        pk.grid(1)
        for _ in pk.range(y.cols + n):
            pk.store(y[0, 0], pk.load(x[0, 0]))

    x = np.zeros((40, 30), np.float32)
    made = recorded(kernel, x, x, 4)
    node = next(node for node in walk(made.body) if isinstance(node, For))
    assert str(Formulas(made).formula(node.stop)) == "x.shape[1] + 4"


def test_what_is_required_of_a_float_says_nothing_of_integers():
    @pk.kernel
    def kernel(y, scale, n):
        pk.require(scale == 0.5, "half")
        pk.require((scale > 0) & (n >= 2), "more")
        pk.grid(1)
        for _ in pk.range(n):
            pk.store(y[0], scale)

    made = recorded(kernel, np.zeros(8, np.float32), 0.5, 4)
    node = next(node for node in walk(made.body) if isinstance(node, For))
    assert str(Formulas(made).formula(node.stop)) == "n"
    assert made.params[1] not in Formulas(made).known


def test_a_number_that_is_loaded_is_a_quantity_of_its_own():
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        a, b = pk.load(x[0]), pk.load(x[0])
        pk.store(y[0], a - b)

    made = recorded(kernel, np.zeros(8, np.int32), np.zeros(8, np.int32))
    made_of = Formulas(made)
    loads = [n for n in walk(made.body) if isinstance(n, Call) and n.op.name == "load"]
    a, b = (made_of.formula(n.results[0]) for n in loads)
    assert a != b
    assert compare(a, b) is Comparison.UNKNOWN
