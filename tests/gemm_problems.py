"""Matrix products to be tested: operands, layouts, epilogues and configurations.

A problem is plain data. Its arrays are made as NumPy arrays and go to a GPU with their strides, so that one list of
problems serves the emulator and the GPU; the expected results are in tests/gemm_bounds.py.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import pykittens as pk
from pykittens.kernels.gemm import gemm, gemm_tiles
from pykittens.kernels.gemm import kernel as gemm_file
from pykittens.kernels.gemm.call import GemmCall
from pykittens.kernels.gemm.config import Config
from pykittens.kernels.gemm.operands import OPERANDS
from pykittens.kernels.plan import Plan
from pykittens.types.dtypes import DTYPES

Array = np.ndarray[Any, Any]

BLOCK_SCALES = {"row_blocks": "f32", "column_blocks": "f32"}  # extras of an fp8 product


@dataclass(frozen=True)
class Layout:
    """The layout of an array.

    columns: the last two axes are exchanged in memory. lines: "tight", contiguous; "padded", at multiples of 16
    bytes with a gap; "odd", at unaligned offsets, one element past the start. step: the last stride.
    exchanged: the leading axes are exchanged in memory. repeated: all rows are one. backwards: rows come last to first.
    """

    columns: bool = False
    lines: str = "tight"
    step: int = 1
    exchanged: bool = False
    repeated: bool = False
    backwards: bool = False


class Stored:
    """A view of a shape into memory that holds more than it."""

    def __init__(self, shape: tuple[int, ...], dtype: str, layout: Layout) -> None:
        self.shape, self.dtype = shape, DTYPES[dtype].numpy
        order = list(range(len(shape)))
        if layout.exchanged:
            order[:-2] = order[:-2][::-1]
        if layout.columns and len(shape) > 1:
            order[-2:] = order[:-3:-1]
        per_line = 16 // self.dtype.itemsize
        strides, reach = [0] * len(shape), layout.step
        for position, axis in enumerate(reversed(order)):
            strides[axis] = reach
            reach *= max(shape[axis], 1)
            if position == 0 and layout.lines == "padded":
                reach = -(-reach // per_line) * per_line + per_line
            if position == 0 and layout.lines == "odd":
                reach += 1 + reach % 2  # an even number of elements would be aligned now and then
        self.offset = 1 if layout.lines == "odd" else 0
        if layout.repeated and len(shape) > 1:
            strides[-2] = 0
        if layout.backwards and len(shape) > 1 and shape[-2]:
            self.offset += strides[-2] * (shape[-2] - 1)
            strides[-2] = -strides[-2]
        self.strides = tuple(strides)
        self.memory: Any = np.zeros(self.offset + max(reach, 1) + per_line, self.dtype)

    def view(self, memory: Any = None) -> Any:
        """The array; of other memory, which may be a tensor, if that is given."""
        memory = self.memory if memory is None else memory
        if not isinstance(memory, np.ndarray):
            return memory.as_strided(self.shape, self.strides, self.offset)
        size = memory.itemsize
        strides = tuple(s * size for s in self.strides)
        return np.ndarray(self.shape, memory.dtype, memory, self.offset * size, strides)

    def fill(self, numbers: Array) -> None:
        """Put numbers into the array, rounded to its dtype, and NaN around it."""
        bits = np.full(self.memory.shape, np.nan, np.float32)
        self.memory[:] = bits.astype(self.dtype)
        self.view()[...] = numbers.astype(np.float32).astype(self.dtype)

    def outside(self, memory: Array) -> Array:
        """The bits of memory outside the array."""
        is_outside = np.ones(memory.shape, bool)
        inside = self.view(np.arange(memory.size))
        is_outside[inside.reshape(-1)] = False
        return memory.view(f"u{self.dtype.itemsize}")[is_outside]


@dataclass(frozen=True)
class Problem:
    """A call of gemm.

    leads: of a and of b. dtypes: of a and b. out_dtype: None if not asked for. out: whether one is passed. extras: the
    arrays of the epilogue by name, each with its dtype; numbers: alpha, gate_alpha and beta, of which those in `arrays`
    are passed as arrays. wide: whether vectors of columns have the axes of the batch. function: of FUNCTIONS.
    schedule: a seed of the emulator's. multiprocessors: how many a configuration is picked for, if none is given; 0 for
    those of the GPU.
    """

    m: int
    n: int
    k: int
    leads: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    dtypes: tuple[str, str] = ("bf16", "bf16")
    out_dtype: str | None = None
    out: bool = False
    transpose_b: bool = True
    accumulate: str = "f32"
    extras: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    arrays: tuple[str, ...] = ()
    wide: bool = False
    activation: str = ""
    row_sums: bool = False
    column_sums: bool = False
    function: str = ""
    layouts: dict[str, Layout] = field(default_factory=dict)
    config: Config | None = None
    schedule: int = 0
    multiprocessors: int = 0
    seed: int = 0

    @property
    def lead(self) -> tuple[int, ...]:
        """The axes of the batch."""
        return tuple(np.broadcast_shapes(*self.leads))

    @property
    def result(self) -> str:
        """The dtype of the result."""
        own = self.dtypes[0] if self.dtypes[0] in ("bf16", "f16") else "bf16"
        return self.out_dtype or own

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of an argument."""
        m, n, k, lead = self.m, self.n, self.k, self.lead
        wide = lead if self.wide else ()
        axes = {"m": m, "n": n, "k/128": -(-k // 128), "n/128": -(-n // 128), "1": 1}
        b = (*self.leads[1], *((n, k) if self.transpose_b else (k, n)))
        own = {"row": (*lead, m), "column": (*wide, n), "tile": (*lead, m, n)}
        shapes = {"a": (*self.leads[0], m, k), "b": b, "gate": b, "out": (*lead, m, n), **own}
        if name in shapes:
            return shapes[name]
        shape = OPERANDS[name].shape.split("|")[-1 if self.wide or name in self.arrays else 0]
        return tuple(
            extent
            for axis in shape.split()
            for extent in (lead if axis == "*lead" else (axes[axis],))
        )

    def stored(self) -> dict[str, Stored]:
        """All arrays by name, filled with random numbers of a size that keeps products near 1."""
        rng = np.random.default_rng(self.seed)
        dtypes = {"a": self.dtypes[0], "b": self.dtypes[1], "out": self.result}
        dtypes |= {n: "f32" for n in self.arrays} | self.extras
        if "gate" in self.extras:
            dtypes["gate"] = self.dtypes[1]
        if not self.out:
            del dtypes["out"]
        small = {name: max(self.k, 1) ** -0.25 for name in ("a", "b", "gate")}
        made = {}
        for name, dtype in dtypes.items():
            made[name] = Stored(self.shape_of(name), dtype, self.layouts.get(name, Layout()))
            numbers = rng.standard_normal(made[name].shape) * small.get(name, 1.0)
            if name in self.numbers:
                numbers = np.full(made[name].shape, self.numbers[name])
            if "blocks" in name:
                numbers = rng.uniform(0.5, 2.0, made[name].shape)
            made[name].fill(numbers)
        return made

    def given(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """The arguments of gemm by name, for arrays by name."""
        then = FUNCTIONS[self.function] if self.function else None
        own = OPERANDS_OF.get(self.function, ())
        given = self.numbers | {n: x for n, x in arrays.items() if n not in own}
        return given | {
            "transpose_b": self.transpose_b,
            "out_dtype": DTYPES[self.out_dtype] if self.out_dtype and not self.out else None,
            "accumulate": DTYPES[self.accumulate],
            "activation": self.activation,
            "row_sums": self.row_sums,
            "column_sums": self.column_sums,
            "epilogue": then,
            "operands": tuple(arrays[name] for name in own),
            "config": self.config,
        }

    def call(self) -> GemmCall:
        """The call in gemm's terms, to compile it without a launch."""
        given = self.given({name: x.view() for name, x in self.stored().items()})
        del given["config"]
        return GemmCall.of(
            gemm_tiles, given.pop("a"), given.pop("b"), given.pop("out", None), **given
        )


def arguments_of(call: GemmCall, config: Config) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the kernel of a call in a configuration, by position and by keyword, on the CPU.

    Memory that it must write before it reads it holds NaN.
    """
    plan = call.plan(config)
    return arguments_of_step(plan, unwritten(plan))


def unwritten(plan: Plan) -> dict[str, Any]:
    """The memory of a plan; arrays that it makes hold NaN."""
    memory = plan.memory()
    for name in (*plan.scratch, *plan.arrays.made):
        if memory[name].dtype.kind != "i":
            memory[name][...] = np.nan
    return memory


def arguments_of_step(plan: Plan, memory: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the product of a plan, by position and by keyword; launches before it are run."""
    for step in plan.steps:
        args, constants = tuple(memory[name] for name in step.args), dict(step.constants)
        if "config" in constants:
            break
        step.kernel(*args, **constants)
    return args, constants


# -- functions of a user ---------------------------------------------------------------------------


@pk.function
def shifted(x: Any, at: Any, row: Any, column: Any, tile: Any) -> Any:
    """x * row + column * tile: everything that a region can load."""
    return x * at.per_row(row) + at.per_column(column) * at.tile(tile)


@pk.function
def upper(x: Any, at: Any) -> Any:
    """x, negated in the parts that begin in the second 64 rows of 128, by a branch when the kernel runs."""
    first = at.row * at.rows
    if first % 128 >= 64:
        x = -x
    return x


@pk.function
def centred(x: Any, at: Any) -> Any:
    """x less the mean of its row in the part, of `at.cols` columns."""
    x = at.inside(x)
    return x - pk.row_sum(x) * (1.0 / at.cols)


FUNCTIONS = {"shifted": shifted, "upper": upper, "centred": centred}
OPERANDS_OF = {"shifted": ("row", "column", "tile")}


# -- running ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def _set_up(problem: Problem) -> Iterator[None]:
    """Set the emulator's schedule and the number of multiprocessors of a problem."""
    asked, before = gemm_file.limits_of, os.environ.get("PYKITTENS_SEED")

    def limits_of(array: Any) -> Any:
        limits = asked(array)
        fewer = problem.multiprocessors if problem.config is None else 0
        return replace(limits, multiprocessors=fewer or limits.multiprocessors)

    os.environ["PYKITTENS_SEED"] = str(problem.schedule)
    gemm_file.limits_of = limits_of  # type: ignore[attr-defined]
    try:
        yield
    finally:
        gemm_file.limits_of = asked  # type: ignore[attr-defined]
        os.environ.pop("PYKITTENS_SEED")
        if before is not None:
            os.environ["PYKITTENS_SEED"] = before


def results(problem: Problem, arrays: dict[str, Any]) -> list[Any]:
    """The results of gemm for arrays by name: the product and the sums that were asked for."""
    with _set_up(problem):
        found = gemm(**problem.given(arrays))
    wanted = problem.row_sums + problem.column_sums
    assert isinstance(found, tuple) == bool(wanted)
    if problem.out:
        assert (found[0] if wanted else found) is arrays["out"], "the result is not `out`"
    return list(found) if wanted else [found]
