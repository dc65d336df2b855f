"""Things that a user may pass to an operation: values of each type, and Python objects.

A thing has a name, by which calls are written, and the properties by which rules accept or refuse it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

import pykittens as pk
from pykittens.ir.build import Builder, record
from pykittens.ir.nodes import Block, Kernel
from pykittens.ir.values import Global, Scalar
from pykittens.lang.bindings import named
from pykittens.types.dtypes import DTYPES, DType
from pykittens.types.tiles import GL, SCALAR

REGISTERS = ("tile", "vector", "scalar")


@dataclass(frozen=True)
class Thing:
    """kind: tile, vector, scalar, number, shared, tensor, semaphore or python. value: that of a Python object."""

    name: str
    kind: str
    make: Callable[[Case], Any]
    dtype: DType | None = None
    shape: tuple[int, ...] = ()
    lies: str = ""  # how a vector is spread, or what a shared tile belongs to
    value: Any = None

    @property
    def in_registers(self) -> bool:
        return self.kind in REGISTERS

    @property
    def is_int(self) -> bool:
        """Whether it is one of Python's ints, other than a truth."""
        return self.kind == "number" and type(self.value) is int


class Case:
    """A kernel that is being recorded, with what its calls name made on demand."""

    def __init__(self, warps: int = 4) -> None:
        extents = tuple(Scalar(SCALAR(pk.int32), f"A_n{axis}") for axis in range(2))
        self.A = Global(GL(pk.f32, 2), "A", extents)
        self.flags = Global(GL(pk.int32, 1), "flags", extents[:1])
        self.ints = Global(GL(pk.int32, 2), "ints", extents)
        self.narrow = Global(GL(pk.e4m3, 2), "narrow", extents)
        params: list[Any] = [self.A, self.flags, self.ints, self.narrow]
        self.kernel = Kernel("kernel", params, Block(owner="the kernel"), [], {}, [], warps)
        self.kernel.cluster = 2
        self.builder = Builder(self.kernel, dict.fromkeys(extents, 8))
        self.open = ExitStack()
        self.made: dict[str, Any] = {}

    def __enter__(self) -> Case:
        self.recording = record(self.builder)
        self.recording.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.recording.__exit__(None, None, None)

    def __getitem__(self, name: str) -> Any:
        if name not in self.made:
            self.made[name] = named(name, THINGS[name].make(self))
        return self.made[name]


THINGS: dict[str, Thing] = {}


def add(name: str, kind: str, make: Callable[[Case], Any], *rest: Any, **more: Any) -> None:
    THINGS[name] = Thing(name, kind, make, *rest, **more)


def _tile(name: str, dtype: DType, rows: int = 64, cols: int = 64) -> None:
    add(name, "tile", lambda case: pk.zeros(dtype, rows, cols), dtype, (rows, cols))


def _vector(name: str, dtype: DType, length: int, spread: pk.plain) -> None:
    add(
        name,
        "vector",
        lambda case: pk.zeros(dtype, length, spread=spread),
        dtype,
        (length,),
        str(spread),
    )


_tile("tile", pk.f32)
_tile("bf16_tile", pk.bf16)
_tile("e4m3_tile", pk.e4m3)
_tile("int_tile", pk.int32)
_tile("long_tile", pk.int64)
_tile("bool_tile", pk.bool_)
_tile("tall", pk.f32, 128, 64)
_tile("wide", pk.f32, 64, 128)
_vector("rows", pk.f32, 64, pk.per_row)
_vector("cols", pk.f32, 64, pk.per_column)
_vector("vector", pk.f32, 64, pk.plain)
_vector("odd", pk.f32, 63, pk.plain)
_vector("long_rows", pk.f32, 128, pk.per_row)
_vector("int_rows", pk.int32, 64, pk.per_row)
_vector("int_vector", pk.int32, 64, pk.plain)
_vector("bool_vector", pk.bool_, 64, pk.plain)
add("scalar", "scalar", lambda case: pk.sum(case["vector"]), pk.f32)
add("count", "scalar", lambda case: case.A.rows + 1, pk.int32)
add("long", "scalar", lambda case: case["count"].to(pk.int64), pk.int64)
add("truth", "scalar", lambda case: case["count"] > 3, pk.bool_)
for _text in ("1.5", "0", "3", "16", "64", "-1", "10**400", "True"):
    _value = eval(_text)
    add(_text, "number", lambda case, v=_value: v, value=_value)
add("np.float32(2.5)", "number", lambda case: np.float32(2.5), value=2.5)
add("np.int64(64)", "number", lambda case: np.int64(64), value=64)

_TILE = {"shape": (64, 64)}
add("shared_tile", "shared", lambda c: pk.shared(pk.st(pk.f32, 64, 64)), pk.f32, **_TILE)
add("shared_bf16", "shared", lambda c: pk.shared(pk.st(pk.bf16, 64, 64)), pk.bf16, **_TILE)
add("shared_wide", "shared", lambda c: pk.shared(pk.st(pk.bf16, 64, 128)), pk.bf16, (64, 128))
add("shared_tall", "shared", lambda c: pk.shared(pk.st(pk.bf16, 128, 64)), pk.bf16, (128, 64))
add("shared_vector", "shared", lambda c: pk.shared(pk.sv(pk.f32, 64)), pk.f32, (1, 64))
add("shared_row", "shared", lambda c: c["shared_tile"].row(3), pk.f32, (1, 64), lies="row")
add("shared_tiles", "python", lambda c: pk.shared(pk.st(pk.f32, 64, 64), count=2))


def _taken(side: str) -> Callable[[Case], Any]:
    def make(case: Case) -> Any:
        return case.open.enter_context(getattr(case["ring"], side)())

    return make


add("filled", "shared", _taken("fill"), pk.f32, lies="fill", **_TILE)
add("drained", "shared", _taken("drain"), pk.f32, lies="drain", **_TILE)
add("full", "semaphore", lambda case: pk.semaphore(1))
add("semaphores", "python", lambda case: pk.semaphore(1, count=2))
add("A", "tensor", lambda case: case.A, pk.f32, shape=(2,))
add("A[0, 0]", "tensor", lambda case: case.A[0, 0], pk.f32, shape=(2,))
add("A[1, 0]", "tensor", lambda case: case.A[1, 0], pk.f32, shape=(2,), lies="row")
add("ints", "tensor", lambda case: case.ints, pk.int32, shape=(2,))
add("narrow", "tensor", lambda case: case.narrow, pk.e4m3, shape=(2,))
add("flags", "tensor", lambda case: case.flags, pk.int32, shape=(1,))

add("ring", "python", lambda case: pk.pipeline(2, pk.st(pk.f32, 64, 64)))
add(
    "stage",
    "python",
    lambda c: c.open.enter_context(pk.pipeline(1, a=pk.st(pk.f32, 64, 64)).fill()),
)
add("array", "python", lambda case: np.ones(4, np.float32))
_OBJECTS = (
    """None "text" "add" [1.0] (1,) pk.f32 pk.int32 pk.per_row pk.row_major pk.st(pk.f32,64,64)"""
)
for _text in _OBJECTS.split():
    _value = eval(_text)
    add(_text, "python", lambda case, v=_value: v, value=_value)
add("len", "python", lambda case: len)
assert {t.dtype for t in THINGS.values()} <= {None, *DTYPES.values()}
