"""The kernels that are compiled for every target: all examples and the library, with arguments of many kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from pykittens.cli.examples import EXAMPLES, arrays, folder, load
from pykittens.kernels import attention, gemm
from pykittens.kernels.core import KERNELS
from pykittens.kernels.rms_norm import rms_norm_rows
from pykittens.targets.target import TARGETS, Target

BF16, F16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
DTYPES = {"bf16": BF16, "f16": F16, "f32": np.dtype(np.float32), "int32": np.dtype(np.int32)}


@dataclass(frozen=True)
class Case:
    """A kernel, arguments of one specialisation and the targets it is for.

    golden: its CUDA C++ is kept. rare: compiled by `make compile` only.
    """

    name: str
    kernel: Any
    args: tuple[Any, ...]
    constants: dict[str, Any] = field(default_factory=dict)
    golden: bool = False
    targets: tuple[str, ...] = tuple(TARGETS)
    rare: bool = False


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
    above = {"add", "softmax", "matmul", "attention"}
    for e in EXAMPLES:
        if e.name not in above:
            yield Case(e.name, kernels[e.name], tuple(arrays(e, e.small)), e.constants)
    for width in (17, 2048, 4096, 8192):
        args = (matrix(16, width), matrix(width), matrix(16, width))
        yield Case(f"rms_norm-{width}", rms_norm_rows, args, {"eps": 1e-6}, golden=width == 2048)


def is_for(target: Target, warpgroups: bool, shared_bytes: int) -> bool:
    """Whether a configuration that takes so much shared memory serves a target."""
    return warpgroups == target.warpgroups and shared_bytes <= target.shared_bytes


def gemm_cases() -> Iterator[Case]:
    """Every configuration for its targets: b both ways round, both dtypes, beyond the reach of the copy engine."""
    for config in gemm.CONFIGS:
        able = [t for t, x in TARGETS.items() if is_for(x, config.warpgroups, config.shared_bytes)]
        size = f"{config.rows}x{config.cols}x{config.depth}x{config.stages}"
        for transpose_b, dtype, aligned in (
            (True, BF16, True),
            (False, BF16, True),
            (True, F16, True),
            (False, BF16, False),
        ):
            args = tuple(matrix(256, 256, dtype=dtype, aligned=aligned) for _ in range(3))
            word = f"{'ABt' if transpose_b else 'AB'}-{dtype.name}{'' if aligned else '-unaligned'}"
            constants = {"config": config, "transpose_b": transpose_b}
            name = f"library_gemm-{size}-{word}"
            rare = not (transpose_b and dtype == BF16)
            yield Case(name, gemm.gemm_tiles, args, constants, targets=tuple(able), rare=rare)


def attention_cases() -> Iterator[Case]:
    """Every configuration for its targets, at its widest and at an odd width."""
    for config in attention.CONFIGS:
        size = f"{config.rows}x{config.keys}x{config.stages}"
        for d in (config.widest, config.widest - 16):
            needed = config.shared_bytes(d)
            able = [t for t, x in TARGETS.items() if is_for(x, config.warpgroups, needed)]
            for causal in (False, True):
                args = tuple(matrix(1, 2, 256, d) for _ in range(4))
                name = f"library_attention-{size}-{d}{'-causal' if causal else ''}"
                constants = {"config": config, "causal": causal}
                rare = not causal or d < config.widest
                kernel = attention.attention_blocks
                yield Case(name, kernel, args, constants, targets=tuple(able), rare=rare)


LIBRARY = {"gemm": gemm_cases, "attention": attention_cases}
assert KERNELS.keys() == {"rms_norm", *LIBRARY}, "a kernel of the library is not compiled here"
CASES = {case.name: case for made in (cases, *LIBRARY.values()) for case in made()}
