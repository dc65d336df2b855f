"""What a call of gemm says besides its arrays and numbers, and whether that goes with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pykittens.errors import ArgumentError
from pykittens.kernels.epilogue import ACTIVATIONS
from pykittens.kernels.gemm_operands import NARROW, Product
from pykittens.runtime.arrays import Array, describe
from pykittens.types.dtypes import DTYPES, DType

# Operands of an epilogue, each with the one that it goes with.
BESIDE = {"row_blocks": "column_blocks", "column_blocks": "row_blocks"}
BESIDE |= dict.fromkeys(("gate_alpha", "gate_bias", "gate_column_scale", "gate_blocks"), "gate")
RESULTS = ("bf16", "f16", "f32", "e4m3", "e5m2")


@dataclass(frozen=True)
class Options:
    """What a call of gemm says besides its arrays and numbers."""

    transpose_b: bool
    out_dtype: DType | None
    accumulate: DType
    activation: str
    row_sums: bool
    column_sums: bool
    epilogue: Callable[..., Any] | None

    @property
    def is_whole(self) -> bool:
        """Whether the product is looked at as it is: not transposed, and not as the rows of a larger one."""
        return self.epilogue is not None or self.row_sums or self.column_sums

    def check(self, extras: dict[str, Any], out: Any) -> None:
        """Raise unless what is asked for makes sense, whatever the arrays are."""
        if self.activation not in ACTIVATIONS:
            known = ", ".join(map(repr, ACTIVATIONS))
            raise ArgumentError(
                f"gemm: `activation` must be one of {known}, not {self.activation!r}"
            )
        for name, other in BESIDE.items():
            if name in extras and other not in extras:
                raise ArgumentError(f"gemm: `{name}` without `{other}` has no meaning")
        if "gate" in extras and "row_blocks" in extras and "gate_blocks" not in extras:
            raise ArgumentError("gemm: with `gate` and `row_blocks` there must be `gate_blocks`")
        if "beta" in extras and not isinstance(extras["beta"], int | float):
            kind = type(extras["beta"]).__name__
            raise ArgumentError(f"gemm: `beta` must be a number, not {kind}")
        if "beta" in extras and out is None:
            raise ArgumentError("gemm: `beta` scales what `out` holds, and there is no `out`")
        for name, dtype in (("accumulate", self.accumulate), ("out_dtype", self.out_dtype)):
            if not isinstance(dtype, DType | None):
                raise ArgumentError(f"gemm: `{name}` must be a dtype such as pk.f32, not {dtype!r}")

    def check_dtypes(self, p: Product) -> None:
        """Raise where sums or scales of blocks do not go with the dtypes of the operands."""
        dtype, sums = dtype_of(p.a).name, self.accumulate.name
        if sums != "f32" and (sums != "f16" or dtype != "f16"):
            raise ArgumentError(f"gemm: {dtype} is summed in f32, f16 also in f16, not in {sums}")
        if "row_blocks" in p.extras and dtype in NARROW:
            raise ArgumentError(f"gemm: `row_blocks` scale blocks of fp8, and `a` is {dtype}")

    def result_dtype(self, p: Product) -> str:
        """The dtype of the result: that of `out`, what was asked for, or that of the operands, bf16 for fp8."""
        asked = self.out_dtype.name if self.out_dtype is not None else None
        if p.out is not None:
            found = described(p.out).dtype
            if asked not in (None, found):
                raise ArgumentError(f"gemm: `out` is {found}, and `out_dtype` says {asked}")
            asked = found
        own = dtype_of(p.a).name
        asked = asked or (own if own in NARROW else "bf16")
        if asked not in RESULTS:
            known = f"{', '.join(RESULTS[:-1])} or {RESULTS[-1]}"
            raise ArgumentError(f"gemm: the result can be {known}, not {asked}")
        return asked


def dtype_of(array: Any) -> DType:
    """The dtype of an array that is known to have one of the language's."""
    return DTYPES[described(array).dtype]


def described(array: Any) -> Array:
    """What is known of a value that is an array."""
    found = describe(array)
    assert found is not None
    return found
