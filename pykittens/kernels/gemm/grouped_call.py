"""The arrays of grouped products as their kernels take them, and what is refused."""

from __future__ import annotations

from typing import Any

from pykittens.kernels.arrays import FP8, NARROW, Arrays, has_lines
from pykittens.kernels.gemm.config import Shape
from pykittens.types.dtypes import DTYPES, DType

# The operands of the epilogue in the order in which the kernel takes them, with their shapes, "b" for that of b, and
# the operands that each goes with.
OPERANDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "gate": ("b", ()),
    "row_scale": ("m", ()),
    "column_scale": ("groups n", ()),
    "gate_column_scale": ("groups n", ("gate",)),
    "row_blocks": ("m k/128", ("column_blocks",)),
    "column_blocks": ("groups n/128 k/128", ("row_blocks",)),
    "gate_blocks": ("groups n/128 k/128", ("gate", "row_blocks")),
    "bias": ("groups n", ()),
    "gate_bias": ("groups n", ("gate",)),
}
BLOCKS = ("row_blocks", "column_blocks", "gate_blocks")


def by_rows(arrays: Arrays, transpose_b: bool, out_dtype: DType | None) -> bool:
    """Check and lay out the arrays of grouped_gemm; whether the kernel sees b as (groups, n, k)."""
    b = "groups n k" if transpose_b else "groups k n"
    arrays.shapes(a="m k", b=b, offsets="groups")
    _check_dtypes(arrays, (*NARROW, *FP8))
    for name, (shape, needs) in OPERANDS.items():
        arrays.shapes(**{name: b if shape == "b" else shape})
        if name == "gate" and "row_blocks" in arrays:
            needs = ("gate_blocks",)
        arrays.needs(name, *needs)
    arrays.dtypes("b", "gate", among=(*NARROW, *FP8))
    arrays.dtypes(*BLOCKS, among=("f32",))
    own = arrays.found["a"].dtype
    if "row_blocks" in arrays and own in NARROW:
        raise arrays.fail(f"`row_blocks` scale blocks of fp8, and `a` is {own}")
    arrays.result("m n", own if own in NARROW else "bf16", out_dtype)
    # The engines multiply fp8 only if k runs fastest, so `b` is copied if need be.
    view = arrays.views["b"]
    turned = not transpose_b if own in FP8 else not has_lines(view) and has_lines(_turned(view))
    for name in ("b", "gate"):
        if turned and name in arrays:
            arrays.view(name, _turned(arrays.views[name]))
    if "row_blocks" in arrays:  # the kernel takes those of a step, of all rows, as a row
        arrays.view("row_blocks", arrays.views["row_blocks"].T)
    arrays.lines(*arrays.found)
    return transpose_b != turned


def by_depth(arrays: Arrays, transpose_a: bool, transpose_b: bool, out_dtype: DType | None) -> None:
    """Check and lay out the arrays of grouped_gemm_k.

    The kernel takes both with the axis that the groups share first: the copy engine can start at any of its elements.
    """
    arrays.shapes(a="k m" if transpose_a else "m k", b="n k" if transpose_b else "k n")
    arrays.shapes(offsets="groups")
    _check_dtypes(arrays, NARROW)
    arrays.result("groups m n", arrays.found["a"].dtype, out_dtype)
    for name, turned in (("a", not transpose_a), ("b", transpose_b)):
        if turned:
            arrays.view(name, _turned(arrays.views[name]))
    arrays.lines(*arrays.found)


def shape_of(arrays: Arrays) -> Shape:
    """What the choice of a configuration depends on."""
    out = arrays.made["out"] if "out" in arrays.made else arrays.found["out"]
    bytes, out_bytes = (DTYPES[x.dtype].bytes for x in (arrays.found["a"], out))
    gated, blocks = "gate" in arrays, "row_blocks" in arrays
    m, n, k = (arrays.dims[axis] for axis in "mnk")
    return Shape(m, n, k, 1, bytes, out_bytes, gated, blocks, may_swap=False)


def _check_dtypes(arrays: Arrays, among: tuple[str, ...]) -> None:
    mixed = {arrays.found["a"].dtype, arrays.found["b"].dtype} <= set(FP8)
    arrays.dtypes("a", "b", among=among, same=not mixed)
    arrays.dtypes("offsets", among=("int32",))


def _turned(x: Any) -> Any:
    return x.swapaxes(-1, -2)
