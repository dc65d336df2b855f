"""The operands of the library's products: which there are, their shapes and dtypes, and their layout for kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pykittens.kernels.arrays import FP8, NARROW, Arrays, has_lines
from pykittens.kernels.gemm.config import GemmShape
from pykittens.types.dtypes import DTYPES, DType


@dataclass(frozen=True)
class Operand:
    """An operand of the epilogue: its shapes, the operands that it goes with, and the number that is the same as None.

    Axes are those of C = A @ B, (*lead, m, n); "b" is the shape of b. grouped: the shape in grouped_gemm, if it has the
    operand. Only an operand with `neutral` may be a number.
    """

    shape: str
    needs: tuple[str, ...] = ()
    neutral: float | None = None
    grouped: str | None = None


# In the order in which the kernels take them.
OPERANDS = {
    "gate": Operand("b", grouped="b"),
    "alpha": Operand("| 1", neutral=1.0),
    "gate_alpha": Operand("| 1", ("gate",), neutral=1.0),
    "row_scale": Operand("*lead m", grouped="m"),
    "column_scale": Operand("n | *lead n", grouped="groups n"),
    "gate_column_scale": Operand("n | *lead n", ("gate",), grouped="groups n"),
    "row_blocks": Operand("m k/128", ("column_blocks",), grouped="m k/128"),
    "column_blocks": Operand("n/128 k/128", ("row_blocks",), grouped="groups n/128 k/128"),
    "gate_blocks": Operand("n/128 k/128", ("gate", "row_blocks"), grouped="groups n/128 k/128"),
    "bias": Operand("n | *lead n", grouped="groups n"),
    "gate_bias": Operand("n | *lead n", ("gate",), grouped="groups n"),
    "beta": Operand("", ("out",), neutral=0.0),
    "residual": Operand("*lead m n"),
}
GROUPED = {name: x.grouped for name, x in OPERANDS.items() if x.grouped is not None}
BLOCKS = ("row_blocks", "column_blocks", "gate_blocks")


def check_operands(arrays: Arrays, shapes: Mapping[str, str]) -> None:
    """Raise unless the operands that are given have their shapes, by name, and come with those that they need."""
    for name, shape in shapes.items():
        arrays.needs(name, *OPERANDS[name].needs)
        if OPERANDS[name].neutral is None or name in arrays.found:
            arrays.shapes(**{name: shape})
    if "row_blocks" in arrays:
        arrays.needs("gate", "gate_blocks")


def check_dtypes(
    arrays: Arrays, result: str, asked: DType | None, among: tuple[str, ...] = (*NARROW, *FP8)
) -> str:
    """The dtype of the result, which has this shape; raise if dtypes do not go together.

    `a` and `b` may have both dtypes of fp8. The result of fp8 is bf16 unless `out` or the caller asks for another.
    """
    are_fp8 = {arrays.found["a"].dtype, arrays.found["b"].dtype} <= set(FP8)
    dtype = arrays.dtypes("a", "b", among=among, same=not are_fp8)
    arrays.dtypes("b", "gate", among=among)
    arrays.dtypes(*BLOCKS, among=("f32",))
    if "row_blocks" in arrays and dtype in NARROW:
        raise arrays.fail(f"`row_blocks` scale blocks of fp8, and `a` is {dtype}")
    return arrays.result(result, dtype if dtype in NARROW else "bf16", asked)


def is_transposed(view: Any) -> bool:
    """Whether a matrix lies in memory column by column, so that its transpose has a last stride of 1."""
    return not has_lines(view) and has_lines(view.swapaxes(-1, -2))


def lay_out(arrays: Arrays, *transposed: str) -> None:
    """Transpose the views of these arrays, and give every array a last stride of 1, by a copy if need be."""
    for name in (
        *transposed,
        "row_blocks",
    ):  # a row of the kernel's `row_blocks` has the scales of a step
        if name in arrays:
            arrays.view(name, arrays.views[name].swapaxes(-1, -2))
    arrays.lines(*arrays.found)


def shape_of(arrays: Arrays, m: int, n: int, k: int, batch: int = 1, **more: Any) -> GemmShape:
    """The inputs to the choice of a configuration, for a product of these extents."""
    out = arrays.made["out"] if "out" in arrays.made else arrays.found["out"]
    bytes, out_bytes = (DTYPES[x.dtype].bytes for x in (arrays.found["a"], out))
    gated, blocks = "gate" in arrays, "row_blocks" in arrays
    return GemmShape(m, n, k, batch, bytes, out_bytes, gated, blocks, **more)


def check_groups(
    arrays: Arrays, result: str, asked: DType | None, among: tuple[str, ...] = (*NARROW, *FP8)
) -> tuple[GemmShape, int]:
    """The shape and the number of groups of a grouped product whose extents are known; raise as `check_dtypes` does."""
    groups = arrays.shapes(offsets="groups")["groups"]
    check_dtypes(arrays, result, asked, among)
    arrays.dtypes("offsets", among=("int32",))
    return shape_of(arrays, *(arrays.dims[axis] for axis in "mnk"), may_swap=False), groups
