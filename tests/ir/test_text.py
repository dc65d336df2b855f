"""A kernel as text: every kind of node, and names that are the user's."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens import f32, int32
from pykittens.ir.text import text
from tests.running import put, recorded


@pk.kernel
def everything(out, x, n, *, factor):
    """All that a kernel without roles can hold."""
    pk.require(n > 0, "n is positive")
    i, j = pk.grid(2, pk.cdiv(out.rows, 64))
    width = pk.static(x.cols)
    row = pk.load(x.at(i)[j], cols=width, fill=-pk.inf)
    top, left = pk.max(row), n
    while left > 0 and not (left == 7 or n == 9):
        if top > 0.0:
            top, left = top / 2.0, left - 1
        else:
            left = left // factor
    for step in pk.range(n, 0, -2):
        put(out, step, left)
    pk.store(x[i, j, 0], row + top)


def test_a_kernel_as_text(golden):
    out, x = np.zeros((8, 8), np.int32), np.zeros((2, 3, 100), np.float32)
    golden("ir/everything.txt", text(recorded(everything, out, x, 3, factor=2)))


def test_a_name_that_is_taken_gets_a_number():
    @pk.kernel
    def kernel(out):
        pk.grid(1)
        x = pk.zeros(int32, 8)
        pk.store(out[0], x)
        x = pk.zeros(int32, 8)
        pk.store(out[1], x)
        t1 = pk.zeros(f32, 8)
        pk.store(out[2], t1.to(int32))

    lines = text(recorded(kernel, np.zeros((8, 8), np.int32))).splitlines()
    made = [line.split("=")[0].split(":")[0].strip() for line in lines if " = " in line]
    assert made == ["t1", "x", "x1", "t11", "t2"]
