"""Values in many lanes at once: numbers stay numbers, arrays follow the lanes, unknown stays unknown."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.analysis.traffic.vector import Columns, Later, put
from pykittens.ir.nodes import Call, walk
from pykittens.ir.values import Scalar
from pykittens.types.dtypes import int32
from pykittens.types.tiles import SCALAR
from tests.running import recorded


def scalar():
    return Scalar(SCALAR(int32))


@pk.kernel
def arithmetic(out, n):
    """Scalars of all kinds; the row that is stored to is the last."""
    (i,) = pk.grid(10)
    a = pk.cdiv(i * 7 - n, 3) // 2 % 5
    b = pk.where(a > 2, pk.minimum(a, n), pk.maximum(a, -n))
    c = (b.to(pk.f32) / 3).to(pk.int32) + (i << 2) + ((i & 3) ^ 1)
    pk.store(out[c, 0], 1.0)


def stored_row(kernel):
    (store,) = (n for n in walk(kernel.body) if isinstance(n, Call) and n.op.name == "store")
    return store.args["dst"].index[0]


def test_scalars_of_many_lanes_are_those_of_each():
    kernel = recorded(arithmetic, np.zeros((100, 8), np.float32), 4)
    (index,), n = kernel.launch.index, kernel.params[1]
    row = stored_row(kernel)
    together = Columns(10, {index: np.arange(10), n: 4}).value(row)
    alone = [Columns(1, {index: i, n: 4}).value(row) for i in range(10)]
    assert together.dtype == np.int64
    assert together.tolist() == alone
    assert all(type(x) is int for x in alone)


def test_what_is_computed_of_an_unknown_number_is_unknown():
    kernel = recorded(arithmetic, np.zeros((100, 8), np.float32), 4)
    (index,), n = kernel.launch.index, kernel.params[1]
    assert Columns(10, {index: None, n: 4}).value(stored_row(kernel)) is None


def test_inner_lanes_have_what_their_outer_lane_has():
    outer, inner, one = scalar(), scalar(), scalar()
    lanes = Columns(3, {outer: np.array([10, 20, 30]), one: 5})
    part = lanes.part(np.array([0, 0, 2]))
    part.known[inner] = np.array([1, 2, 3])
    deeper = part.part(np.array([2, 1]))
    assert deeper.value(outer).tolist() == [30, 10]
    assert deeper.value(inner).tolist() == [3, 2]
    assert deeper.value(one) == 5
    assert lanes.value(inner) is None


def test_what_nobody_asks_for_is_not_computed():
    asked, value = [], scalar()
    lanes = Columns(1, {value: Later(lambda: asked.append(1) or 7)})
    part = lanes.part(np.array([0]))
    assert not asked
    assert part.value(value) == lanes.value(value) == 7
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("old", "rows", "new", "expected"),
    [
        (5, [0, 2], np.array([1, 2]), [1, 5, 2]),
        (np.array([7, 8, 9]), [1], 4, [7, 4, 9]),
        (None, [1], 4, None),
        (5, [1], None, None),
        (None, [0, 1, 2], 4, 4),
    ],
)
def test_some_lanes_of_a_value_change(old, rows, new, expected):
    found = put(old, np.array(rows), new, 3, int32)
    assert (found.tolist() if isinstance(expected, list) else found) == expected
