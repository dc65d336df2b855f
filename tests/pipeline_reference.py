"""A random pipeline program in float64, statement by statement, with a bound of the error of each element.

It knows nothing of stages and schedules: tiles are cut out of the tensors, and groups and tasks run one after another.
Bounds are carried on as in tile_programs.py; the hardware's tf32 has 10 bits of mantissa.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pykittens.types.dtypes import converted, f32, int32
from tests import tolerance
from tests.pipeline_consumers import SCALE, first_value
from tests.pipeline_parts import (
    OWN_ROWS,
    Blend,
    Body,
    Late,
    Load,
    Odd,
    Product,
    Program,
    Ring,
    Statement,
    Swap,
    Take,
    Tile,
)
from tests.tile_programs import Known

Array = np.ndarray[Any, Any]
F32 = np.dtype(np.float32)
TF32 = 2.0**-10


def exact(program: Program, tensors: Mapping[str, Array]) -> Known:
    """The output of a program and its bound; the tensors are those it starts from."""
    shape = program.out_shape
    out = Known(np.zeros(shape), np.zeros(shape))
    for row in range(program.tasks[0]):
        for col in range(program.tasks[1]):
            for group in range(program.groups):
                _put(program, out, row, col, group, _Run(program, tensors, row, col, group).total())
    return out


def _put(program: Program, out: Known, row: int, col: int, group: int, found: Known) -> None:
    """The result of a group of a task where it belongs."""
    r, s = program.rows, program.side
    if program.out in OWN_ROWS:
        row = row * program.groups + group
    to = (slice(row * r, row * r + r), slice(col * s, col * s + s))
    height, width = out.value[to].shape
    value, error = found.value[:height, :width], found.error[:height, :width]
    if program.out == "flags":
        above = (slice(to[0].start - program.all_rows, to[0].start), to[1])
        if to[0].start >= program.all_rows:
            value = value + out.value[above][:height]
            error = error + out.error[above][:height]
            error = error + tolerance.rounding(F32, np.abs(value) + error)
    elif program.out == "turn":
        value, error = value + out.value[to], error + out.error[to]
        error = error + tolerance.rounding(F32, np.abs(value) + error)
    elif program.out_dtype is int32:
        # What is cut off is less than one of each.
        value, error = value * SCALE + out.value[to], error * SCALE * 1.001 + 1 + out.error[to]
    elif program.out_dtype is not f32:
        error = error + tolerance.rounding(program.out_dtype.numpy, np.abs(value) + error)
    out.value[to], out.error[to] = value, error


class _Run:
    """One group in one task."""

    def __init__(
        self, program: Program, tensors: Mapping[str, Array], row: int, col: int, group: int
    ) -> None:
        self.program, self.tensors = program, tensors
        self.row, self.col, self.group = row, col, group
        zero = np.zeros((program.rows, program.side))
        self.tiles = [Known(zero + first_value(i), zero) for i in range(program.tiles)]

    def total(self) -> Known:
        program = self.program
        self.body(program.before, 0)
        steps = program.step_count
        if program.ahead:
            self.body(program.head, 0)
        for k in range(steps - program.ahead):
            self.body(program.head, k + program.ahead)
            self.body(program.tail, k)
        if program.ahead:
            self.body(program.tail, steps - 1)
        self.body(program.after, 0)
        first, *others = (self.tiles[i] for i in program.results)
        for tile in others:
            first = _sum(first, tile)
        return first

    def body(self, body: Body, k: int) -> None:
        for statement in body:
            self.statement(statement, k)

    def statement(self, statement: Statement, k: int) -> None:
        match statement:
            case Product():
                self.tiles[statement.target] = self.product(statement, k)
            case Blend(target, x, y):
                a, b = (Known(t.value / 2, t.error / 2) for t in (self.tiles[x], self.tiles[y]))
                self.tiles[target] = _sum(a, b)
            case Load(target, name):
                self.tiles[target] = self.left(name, k)
            case Swap(x, y):
                self.tiles[x], self.tiles[y] = self.tiles[y], self.tiles[x]
            case Take():
                self.body(statement.body, k)
            case Late():
                self.tiles[statement.product.target] = self.product(statement.product, k)
            case Odd():
                self.body(statement.then if k % 2 else statement.otherwise, k)

    def product(self, product: Product, k: int) -> Known:
        program = self.program
        if isinstance(product.left, str):
            left = self.left(product.left, k)
        else:
            left = self.tiles[product.left]
            if program.dtype is not f32:
                error = tolerance.rounding(program.dtype.numpy, np.abs(left.value) + left.error)
                left = Known(left.value, left.error + error)
        a = left.value.T if product.op.startswith("mma_At") else left.value
        ae = left.error.T if product.op.startswith("mma_At") else left.error
        b = self.cut(*program.tile(product.right), k)
        b = b.T if product.op.endswith("Bt") else b
        size = (np.abs(a) + ae) @ np.abs(b)
        value, error = a @ b, ae @ np.abs(b)
        if program.dtype is f32:
            error = error + 2 * TF32 * (1 + TF32) * size
        if product.accumulates:
            old = self.tiles[product.target]
            value, error = value + old.value, error + old.error
            size = size + np.abs(old.value) + old.error
        return Known(value, error + tolerance.product(F32, value, size, b.shape[0] + 1))

    def left(self, name: str, k: int) -> Known:
        """The group's rows of a left tile."""
        rows = self.program.rows
        part = self.cut(*self.program.tile(name), k)[self.group * rows : (self.group + 1) * rows]
        return Known(part, np.zeros_like(part))

    def cut(self, ring: Ring, tile: Tile, k: int) -> Array:
        """What a stage holds of a tile in float64."""
        program, step = self.program, ring.when in ("step", "odd")
        k = k if step else 0
        second = tile.way == "branch" and (k if step else self.row) % 2 == 1
        tensor = self.tensors[tile.tensors[second]]
        rows, cols = program.tile_rows(tile), program.side
        first = (self.row if tile.left else self.col) * rows
        part = tensor[first : first + rows, k * cols : (k + 1) * cols]
        whole = np.zeros((rows, cols))
        whole[: part.shape[0], : part.shape[1]] = part
        if ring.middle is not None:
            whole = converted(-whole, program.dtype).astype(np.float64)
        return 2 * whole if tile.way == "stores" else whole


def _sum(a: Known, b: Known) -> Known:
    value, error = a.value + b.value, a.error + b.error
    return Known(value, error + tolerance.rounding(F32, np.abs(value) + error))
