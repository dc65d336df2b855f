"""The arrays of grouped products as their kernels take them, and what is refused.

NumPy arrays and PyTorch tensors are handled alike, by the methods that both have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pykittens.errors import ArgumentError
from pykittens.kernels.core import empty
from pykittens.kernels.products.config import SCALED
from pykittens.kernels.products.operands import FP8, NARROW, Lined, has_lines
from pykittens.runtime.arrays import Array, describe
from pykittens.types.dtypes import DTYPES, DType

# The operands of the epilogue in the order in which the kernel takes them, and what each has numbers for.
OPERANDS = {
    "gate": "b",
    "row_scale": "rows",
    "column_scale": "columns",
    "gate_column_scale": "columns",
    "row_blocks": "blocks of rows",
    "column_blocks": "blocks of columns",
    "gate_blocks": "blocks of columns",
    "bias": "columns",
    "gate_bias": "columns",
}
RESULTS = ("bf16", "f16", "f32", "e4m3", "e5m2")
# Operands without which another has no meaning.
NEEDED = {
    "gate_column_scale": ("gate",),
    "gate_bias": ("gate",),
    "row_blocks": ("column_blocks",),
    "column_blocks": ("row_blocks",),
    "gate_blocks": ("gate", "row_blocks"),
}


@dataclass
class Grouped(Lined):
    """A grouped product as its kernel takes it: the last stride of every array but `out` is 1."""

    m: int
    n: int
    k: int
    groups: int
    a: Any
    b: Any
    out: Any
    offsets: Any
    extras: dict[str, Any] = field(default_factory=dict)
    b_is_transposed: bool = False

    @property
    def lines(self) -> Any:
        """What the kernel writes: `out`, or a copy of it whose last stride is 1."""
        return self.lined(self.out)

    @property
    def names(self) -> tuple[str, ...]:
        """The operands of the epilogue that there are, in the order of the kernel."""
        return tuple(name for name in OPERANDS if name in self.extras)


class Arrays:
    """The arrays of a call by name, and the refusal of what does not fit."""

    def __init__(self, function: str, **given: Any) -> None:
        self.function, self.given = function, {n: x for n, x in given.items() if x is not None}
        self.found = {name: self._described(name, x) for name, x in self.given.items()}

    def _described(self, name: str, value: Any) -> Array:
        found = describe(value)
        if found is None:
            raise ArgumentError(
                f"{self.function}: `{name}` must be an array, not {type(value).__name__}"
            )
        return found

    def __getitem__(self, name: str) -> Array:
        return self.found[name]

    def fail(self, message: str, help: str | None = None) -> ArgumentError:
        """The error for arguments that do not fit."""
        return ArgumentError(f"{self.function}: {message}", operands=dict(self.found), help=help)

    def check_rank(self, name: str, rank: int) -> None:
        """Raise unless the array has this rank."""
        if len(self[name].shape) != rank:
            raise self.fail(f"`{name}` must have rank {rank}, not {len(self[name].shape)}")

    def check_shape(self, name: str, shape: tuple[int, ...]) -> None:
        """Raise unless the array, where it is given, has this shape."""
        if name in self.found and self[name].shape != shape:
            raise self.fail(f"`{name}` must have the shape {shape}")

    def check_operands(self, dtypes: Sequence[str]) -> None:
        """Raise unless a and b are of these dtypes and go together."""
        a, b = self["a"].dtype, self["b"].dtype
        for name in ("a", "b"):
            if self[name].dtype not in dtypes:
                *first, last = dtypes
                raise self.fail(
                    f"`{name}` must be {', '.join(first)} or {last}, not {self[name].dtype}"
                )
        if a != b and not {a, b} <= set(FP8):
            raise self.fail("`b` must have the dtype of `a`")

    def check_offsets(self, groups: int | None = None) -> int:
        """How many groups there are; raise unless the offsets are int32, one a group."""
        self.check_rank("offsets", 1)
        count: int = self["offsets"].shape[0]
        if self["offsets"].dtype != "int32":
            raise self.fail(
                f"`offsets` must be int32, not {self['offsets'].dtype}",
                help="offsets[g] is where the part of group g ends, as int32",
            )
        if groups is not None and count != groups:
            raise self.fail(f"`offsets` must have an element for each of the {groups} groups")
        return count

    def result(self, shape: tuple[int, ...], out_dtype: DType | None) -> Any:
        """`out`, or an array for the result: of `out_dtype`, or of the dtype of `a`, bf16 for fp8."""
        if not isinstance(out_dtype, DType | None):
            raise self.fail(f"`out_dtype` must be a dtype such as pk.f32, not {out_dtype!r}")
        asked = out_dtype.name if out_dtype is not None else None
        if "out" in self.found:
            self.check_shape("out", shape)
            if not self["out"].writable:
                raise self.fail("`out` is written and is read-only")
            if asked not in (None, self["out"].dtype):
                raise self.fail(f"`out` is {self['out'].dtype}, and `out_dtype` says {asked}")
            asked = self["out"].dtype
        own = self["a"].dtype
        asked = asked or (own if own in NARROW else "bf16")
        if asked not in RESULTS:
            *first, last = RESULTS
            raise self.fail(f"the result can be {', '.join(first)} or {last}, not {asked}")
        return self.given["out"] if "out" in self.given else empty(self.given["a"], shape, asked)


def by_rows(
    a: Any,
    b: Any,
    offsets: Any,
    out: Any,
    extras: dict[str, Any],
    transpose_b: bool,
    out_dtype: DType | None,
) -> Grouped:
    """What a call of grouped_gemm asks for, or an ArgumentError that says what does not fit."""
    arrays = Arrays("grouped_gemm", a=a, b=b, offsets=offsets, out=out, **extras)
    arrays.check_rank("a", 2)
    arrays.check_rank("b", 3)
    arrays.check_operands((*NARROW, *FP8))
    (m, k), (groups, *sides) = arrays["a"].shape, arrays["b"].shape
    n, inner = sides if transpose_b else sides[::-1]
    if inner != k:
        other = "matrices of `b`, transposed," if transpose_b else "matrices of `b`"
        raise arrays.fail(f"`a` has {k} columns and the {other} have {inner} rows")
    arrays.check_offsets(groups)
    _check_extras(arrays, m, n, k, groups)
    made = Grouped(m, n, k, groups, a, b, arrays.result((m, n), out_dtype), offsets)
    made.a, made.offsets = made.lined(a), made.lined(offsets)
    # The engines multiply fp8 only where k runs fastest, so there `b` is copied if need be.
    narrow = DTYPES[arrays["b"].dtype].bytes == 1
    turned = not transpose_b if narrow else not has_lines(b) and has_lines(b.swapaxes(-1, -2))
    made.b_is_transposed = transpose_b != turned
    made.b = made.lined(b.swapaxes(-1, -2) if turned else b)
    for name in (name for name in OPERANDS if name in arrays.given):
        x = arrays.given[name]
        if name == "gate" and turned:
            x = x.swapaxes(-1, -2)
        elif name == "row_blocks":  # the kernel takes those of a step, of all rows, as a row
            x = x.T
        made.extras[name] = made.lined(x)
    return made


def _check_extras(arrays: Arrays, m: int, n: int, k: int, groups: int) -> None:
    """Raise unless every operand of the epilogue has the shape that its name says, and goes with the others."""
    blocks_n, blocks_k = -(-n // SCALED), -(-k // SCALED)
    legal = {
        "b": tuple(arrays["b"].shape),
        "rows": (m,),
        "columns": (groups, n),
        "blocks of rows": (m, blocks_k),
        "blocks of columns": (groups, blocks_n, blocks_k),
    }
    given = arrays.found
    for name, kind in OPERANDS.items():
        arrays.check_shape(name, legal[kind])
        needed = NEEDED.get(name, ())
        if name == "gate" and "row_blocks" in given:
            needed = ("gate_blocks",)
        missing = [x for x in needed if x not in given]
        if name in given and missing:
            raise arrays.fail(f"`{name}` goes with `{missing[0]}`, which is missing")
    if "gate" in given and given["gate"].dtype != given["b"].dtype:
        raise arrays.fail("`gate` must have the dtype of `b`")
    for name in (name for name in given if name.endswith("_blocks")):
        if given[name].dtype != "f32":
            raise arrays.fail(f"`{name}` must be f32, not {given[name].dtype}")
    if "row_blocks" in given and DTYPES[given["a"].dtype].bytes != 1:
        raise arrays.fail("blocks have scales where `a` and `b` are fp8")


def by_depth(
    a: Any,
    b: Any,
    offsets: Any,
    out: Any,
    transposed: tuple[bool, bool],
    out_dtype: DType | None,
) -> Grouped:
    """What a call of grouped_gemm_k asks for, or an ArgumentError that says what does not fit.

    The kernel takes both with the axis that the groups share first: the copy engine can start at any of its elements.
    """
    arrays = Arrays("grouped_gemm_k", a=a, b=b, offsets=offsets, out=out)
    for name in ("a", "b"):
        arrays.check_rank(name, 2)
    arrays.check_operands(NARROW)
    left, right = a if transposed[0] else a.swapaxes(0, 1), b.swapaxes(0, 1) if transposed[1] else b
    (k, m), (inner, n) = left.shape, right.shape
    if inner != k:
        raise arrays.fail(f"`a` has {k} elements along the axis of the sum and `b` {inner}")
    groups = arrays.check_offsets()
    result = arrays.result((groups, m, n), out_dtype)
    made = Grouped(m, n, k, groups, left, right, result, offsets)
    made.a, made.b, made.offsets = (made.lined(x) for x in (left, right, offsets))
    return made
