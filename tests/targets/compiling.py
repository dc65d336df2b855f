"""The kernels that are compiled for every target: all examples and the library, with arguments of many kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from pykittens.cli.examples import EXAMPLES, folder, load
from pykittens.kernels.core import KERNELS
from pykittens.kernels.rms_norm import rms_norm_rows

BF16, F16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
DTYPES = {"bf16": BF16, "f16": F16, "f32": np.dtype(np.float32), "int32": np.dtype(np.int32)}


@dataclass(frozen=True)
class Case:
    """A kernel and arguments of one specialisation; `golden` ones have their CUDA C++ kept."""

    name: str
    kernel: Any
    args: tuple[Any, ...]
    constants: dict[str, Any] = field(default_factory=dict)
    golden: bool = False


def matrix(*shape: int, dtype: np.dtype[Any] = BF16, aligned: bool = True) -> np.ndarray[Any, Any]:
    """Zeros; unaligned ones start one element behind a 16-byte boundary and have odd strides."""
    if aligned:
        return np.zeros(shape, dtype)
    return np.zeros((*shape[:-1], shape[-1] + 1), dtype)[..., 1:]


def cases() -> Iterator[Case]:
    """Every kernel, aligned and not, at widths with each swizzle."""
    source = folder()
    assert source is not None
    kernels = {e.name: load(source, e).kernel for e in EXAMPLES}
    for name, dtype in DTYPES.items():
        for aligned in (True, False):
            args = tuple(matrix(128, 64, dtype=dtype, aligned=aligned) for _ in range(3))
            kept = aligned and name == "f32"
            yield Case(
                f"add-{name}{'' if aligned else '-unaligned'}", kernels["add"], args, golden=kept
            )
    for width in (1, 17, 64, 1000, 2048, 4096, 6000):
        for aligned in (True, False):
            args = tuple(matrix(16, width, aligned=aligned) for _ in range(2))
            kept = aligned and width == 1000
            yield Case(
                f"softmax-{width}{'' if aligned else '-unaligned'}",
                kernels["softmax"],
                args,
                golden=kept,
            )
    for aligned in (
        (True, True, True),
        (False, True, True),
        (True, False, True),
        (True, True, False),
        (False,) * 3,
    ):
        args = tuple(matrix(256, 256, aligned=a) for a in aligned)
        word = "".join("a" if a else "u" for a in aligned)
        yield Case(f"matmul-{word}", kernels["matmul"], args, golden=all(aligned))
    for width in (16, 32, 48, 64, 96, 128):
        for causal in (False, True):
            args = tuple(matrix(1, 2, 256, width) for _ in range(4))
            name = f"attention-{width}{'-causal' if causal else ''}"
            yield Case(
                name, kernels["attention"], args, {"causal": causal}, golden=causal and width == 128
            )
    unaligned = tuple(matrix(1, 2, 256, 64, aligned=False) for _ in range(4))
    yield Case("attention-64-unaligned", kernels["attention"], unaligned, {"causal": True})
    for width in (17, 2048, 4096, 8192):
        args = (matrix(16, width), matrix(width), matrix(16, width))
        yield Case(f"rms_norm-{width}", rms_norm_rows, args, {"eps": 1e-6}, golden=width == 2048)


assert KERNELS.keys() == {"rms_norm"}, "a kernel of the library is not compiled here"
CASES = {case.name: case for case in cases()}
