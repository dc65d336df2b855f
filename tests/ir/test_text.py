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


def test_a_tile_of_a_view_is_named_with_its_plane():
    @pk.kernel(warps=1)
    def kernel(x, y, h):
        pk.grid(1)
        pk.store(y[:, 1][2], pk.load(x[:, h].window(0, 3, 8), cols=16))
        pk.store(y, pk.load(x.at(h), rows=16, cols=16))
        pk.store(y[1, :], pk.load(x[:, h, 2][5], cols=16))

    shapes = np.zeros((8, 4, 16), np.float32), np.zeros((8, 16), np.float32)
    lines = text(recorded(kernel, *shapes, 2)).splitlines()
    moves = [line.split("= ")[-1].strip() for line in lines if "load" in line or "store" in line]
    assert [m.split("(")[1] for m in moves] == [
        "src=x[0, h, 0; plane 0 2; axis 0 3 3 t2], cols=16)",
        "dst=y[2, 1; plane 0], value=t3)",
        "src=x[h, 0, 0], rows=16, cols=16)",
        "dst=y, value=t4)",
        "src=x[5, h, 2; plane 0], cols=16)",
        "dst=y[1, 0; plane 1], value=t5)",
    ]


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
