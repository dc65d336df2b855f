"""The kernels that are compiled for every target: all examples and the library, with arguments of many kinds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np

from examples.catalog import EXAMPLES, arrays, load
from pykittens import settings
from pykittens.kernels import gemm, grouped_gemm, grouped_gemm_k
from pykittens.kernels.attention import attention_blocks, gradient_blocks
from pykittens.kernels.attention.config import CONFIGS, GRADIENT_CONFIGS
from pykittens.kernels.epilogue import Epilogue
from pykittens.kernels.gemm.choose import pick
from pykittens.kernels.gemm.config import GemmShape, together
from pykittens.kernels.gemm.grouped_choose import pick_k, pick_rows
from pykittens.kernels.gemm.tiles import Form
from pykittens.kernels.library import load_all
from pykittens.kernels.limits import Limits
from pykittens.kernels.rms_norm import rms_norm_rows
from pykittens.targets.architectures import TARGETS
from pykittens.targets.target import Target
from tests.attention_operands import (
    bounded_operands,
    gradient_operands,
    operands,
    packed_operands,
    split_operands,
)
from tests.gemm_problems import BLOCK_SCALES, Layout, Problem, arguments_of
from tests.library import small_cases

BF16, F16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
DTYPES = {"bf16": BF16, "f16": F16, "f32": np.dtype(np.float32), "int32": np.dtype(np.int32)}


@dataclass(frozen=True)
class Case:
    """A kernel, the arguments of one specialisation, and its targets.

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
    """Zeros; if unaligned, they start one element past a 16-byte boundary and have odd strides."""
    if aligned:
        return np.zeros(shape, dtype)
    return np.zeros((*shape[:-1], shape[-1] + 1), dtype)[..., 1:]


def cases() -> Iterator[Case]:
    """Every kernel, aligned and not, at widths with each swizzle."""
    kernels = {e.name: load(e).kernel for e in EXAMPLES}
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
        args = (matrix(16, width), matrix(width), matrix(16, width), 1e-6)
        yield Case(f"rms_norm-{width}", rms_norm_rows, args, golden=width == 2048)


def is_for(target: Target, warpgroups: bool, shared_bytes: int) -> bool:
    """Whether a configuration that takes so much shared memory serves a target."""
    return warpgroups == target.warpgroups and shared_bytes <= target.shared_bytes


PLAIN = Problem(256, 256, 256)
# Products by name: what is asked for, and extents for which a configuration is picked.
PRODUCTS = {
    "ABt": (PLAIN, (4096, 4096, 4096)),
    "AB": (replace(PLAIN, transpose_b=False), (4096, 4096, 4096)),
    "AtB": (replace(PLAIN, layouts={"a": Layout(columns=True)}), (4096, 4096, 4096)),
    "f16": (replace(PLAIN, dtypes=("f16", "f16")), (4096, 4096, 4096)),
    "unaligned": (
        replace(PLAIN, layouts=dict.fromkeys("ab", Layout(lines="odd"))),
        (4096, 4096, 4096),
    ),
    "skinny": (PLAIN, (16, 4096, 4096)),
    "skinny-unaligned": (
        replace(PLAIN, layouts=dict.fromkeys("ab", Layout(lines="odd")), extras={"bias": "bf16"}),
        (32, 4096, 4096),
    ),
    "vectors": (replace(PLAIN, m=1, k=937, extras={"bias": "bf16"}), (1, 4096, 4097)),
    "fp8": (replace(PLAIN, dtypes=("e4m3", "e5m2")), (4096, 4096, 4096)),
    "odd-rows": (
        replace(PLAIN, extras={"residual": "bf16"}, activation="gelu"),
        (160, 8192, 8192),
    ),
    "gate": (
        replace(
            PLAIN, extras={"gate": "bf16", "bias": "bf16", "gate_bias": "bf16"}, activation="silu"
        ),
        (4096, 4096, 4096),
    ),
    "fp8-blocks": (
        replace(PLAIN, dtypes=("e4m3", "e4m3"), extras=BLOCK_SCALES),
        (4096, 4096, 4096),
    ),
    "three-groups": (PLAIN, (1920, 4864, 896)),
    "three-groups-gelu": (
        replace(PLAIN, extras={"residual": "bf16", "bias": "bf16"}, activation="gelu"),
        (1920, 4864, 896),
    ),
    "small": (PLAIN, (512, 512, 512)),
    "split": (PLAIN, (16, 512, 8192)),
    "split-gelu": (
        replace(PLAIN, extras={"bias": "bf16"}, activation="gelu"),
        (256, 1024, 28672),
    ),
}
OFTEN = ("ABt", "skinny", "split")


def gemm_cases() -> Iterator[Case]:
    """What is picked for each target: b both ways round, dtypes, beyond the reach of the copy engine, few rows."""
    for arch in TARGETS:
        for word, (problem, (m, n, k)) in PRODUCTS.items():
            if "fp8" in word and arch == "sm_80":
                continue  # its tensor cores have none
            call = problem.call()
            shape = replace(call.shape, m=m, n=n, k=k)
            picked = pick(shape, limits(arch))
            config = together(picked, call.shape, limits(arch).multiprocessors)
            args, constants = arguments_of(call, config)
            name, rare = f"library_gemm-{word}-{arch}", word not in OFTEN
            kernel = gemm.gemm_vectors if config.vectors else gemm.gemm_tiles
            yield Case(name, kernel, args, constants, targets=(arch,), rare=rare)


def attention_cases() -> Iterator[Case]:
    """Every configuration for its targets, at its widest and at an odd width."""
    for config in CONFIGS:
        size = f"{config.rows}x{config.keys}x{config.stages}"
        size += f"q{config.q_stages}" * (config.q_stages > 1)
        for d in (config.widest, config.widest - 16):
            needed = config.shared_bytes(d)
            able = [t for t, x in TARGETS.items() if is_for(x, config.warpgroups, needed)]
            for causal in (False, True):
                more, form = operands(causal)
                args = (*(matrix(1, 2, 256, d) for _ in range(4)), *more)
                name = f"library_attention-{size}-{d}{'-causal' if causal else ''}"
                constants = {"config": config, "form": form}
                rare = not causal or d < config.widest
                yield Case(name, attention_blocks, args, constants, targets=tuple(able), rare=rare)
            if d == config.widest:
                shape = (1, 2, 256, d)
                tensors = tuple(matrix(*shape) for _ in range(4))
                more, form = split_operands(config.rows // config.consumers, shape)
                variants = {"split": ((*tensors, *more), form)}
                more, form = bounded_operands(config, shape)
                variants["bounds"] = (*tensors, *more), form
                for split in (False, True):
                    args, form = packed_operands(config, 4, shape, split)
                    if form.packed:
                        variants[f"packed{'-split' * split}"] = args, form
                for ending, (args, form) in variants.items():
                    constants = {"config": config, "form": form}
                    name = f"library_attention-{size}-{d}-{ending}"
                    own = {"targets": tuple(able), "rare": True}
                    yield Case(name, attention_blocks, args, constants, **own)


def gradient_cases() -> Iterator[Case]:
    """Every configuration of the backward pass for its targets, in order and as the blocks come."""
    for config in GRADIENT_CONFIGS:
        size = f"{config.queries}x{config.keys}x{config.stages}"
        for d in {64: (64,), 128: (64, 128), 256: (192, 256)}[config.widest]:
            needed = config.shared_bytes(d, d)
            able = [t for t, x in TARGETS.items() if is_for(x, config.warpgroups, needed)]
            for causal in (False, True):
                ordered = causal and not config.copy_registers
                args, form = gradient_operands(config, (1, 2, 256, d), causal, ordered)
                ending = f"{d}{'-causal' * causal}{'-ordered' * ordered}"
                yield Case(
                    f"library_attention_gradients-{size}-{ending}",
                    gradient_blocks,
                    args,
                    {"config": config, "form": form},
                    targets=tuple(able),
                    rare=not causal or d < config.widest,
                )


# Grouped products: the dtype, whether b lies n x k, the operands of the epilogue, the activation.
GROUPED = {
    "ABt": (BF16, True, (), ""),
    "AB": (BF16, False, (), ""),
    "f16": (F16, True, (), ""),
    "gate": (BF16, True, ("gate",), "silu"),
    "bias": (BF16, True, ("bias",), "relu"),
    "fp8": (E4M3, True, ("row_scale", "column_scale"), ""),
    "blocks": (E4M3, True, ("row_blocks", "column_blocks"), ""),
    "gate-blocks": (E4M3, True, ("gate", "row_blocks", "column_blocks", "gate_blocks"), "silu"),
}


def grouped_cases() -> Iterator[Case]:
    """For each target the configurations for groups of many rows and of few, with every kind of operands."""
    f32, m, n, k = DTYPES["f32"], 512, 256, 256
    for way, (dtype, transposed, names, activation) in GROUPED.items():
        b = (4, n, k) if transposed else (4, k, n)
        shapes = {
            "gate": b,
            "bias": (4, n),
            "row_scale": (m,),
            "column_scale": (4, n),
            "row_blocks": (k // 128, m),
            "column_blocks": (4, n // 128, k // 128),
            "gate_blocks": (4, n // 128, k // 128),
        }
        operands = [matrix(*shapes[x], dtype=dtype if x == "gate" else f32) for x in names]
        offsets, out = np.zeros(4, np.int32), matrix(m, n)
        args = matrix(m, k, dtype=dtype), matrix(*b, dtype=dtype), out, offsets, *operands
        form = Form(b_is_transposed=transposed, epilogue=Epilogue(names, activation))
        for target in TARGETS:
            if dtype == E4M3 and target == "sm_80":
                continue
            for size, rows in (("many", 1 << 14), ("few", 64)):
                blocks = "row_blocks" in names
                shape = GemmShape(rows, 4096, 4096, 1, dtype.itemsize, 2, "gate" in names, blocks)
                constants = {"form": form, "config": pick_rows(shape, 4, limits(target))}
                name, rare = f"library_grouped-{way}-{size}-{target}", way not in ("ABt", "gate")
                kernel = grouped_gemm.grouped_tiles
                yield Case(name, kernel, args, constants, targets=(target,), rare=rare)


def grouped_k_cases() -> Iterator[Case]:
    """For each target the configurations for wide and for narrow products, in bf16 and in f32."""
    form = Form(a_is_transposed=True, b_is_transposed=False)
    for target in TARGETS:
        for sides in ((4096, 4096), (2048, 40), (40, 40)):
            for out in ("bf16", "f32"):
                shape = GemmShape(*sides, 1024, 1, 2, DTYPES[out].itemsize)
                constants = {"form": form, "config": pick_k(shape, 4, limits(target))}
                arrays = matrix(256, 256), matrix(256, 256), matrix(4, 256, 256, dtype=DTYPES[out])
                args = *arrays, np.zeros(4, np.int32)
                name = f"library_grouped_k-{'x'.join(map(str, sides))}-{out}-{target}"
                kernel = grouped_gemm_k.grouped_k_tiles
                yield Case(name, kernel, args, constants, targets=(target,), rare=out == "f32")


def limits(target: str) -> Limits:
    """What a target gives a configuration."""
    found = TARGETS[target]
    return Limits(target, found.shared_bytes, found.warpgroups)


def library_cases() -> Iterator[Case]:
    """What every kernel of the library launches for its small cases, as it chooses for each target."""
    chosen = settings.target
    for entry in load_all().values():
        for i, case in enumerate(small_cases(entry)):
            given = entry.inputs(np.random.default_rng(0), **case)
            for target in TARGETS:
                if target == "sm_80" and any(map(is_fp8, given.values())):
                    continue
                settings.target = lambda target=target: target
                try:
                    plan = entry.function.plan(**given)
                finally:
                    settings.target = chosen
                memory = plan.memory()
                for step in plan.steps:
                    args = tuple(memory[name] for name in step.args)
                    name = f"library_{entry.name}-case{i}-{step.kernel.__name__}-{target}"
                    yield Case(name, step.kernel, args, dict(step.constants), targets=(target,))


def is_fp8(x: Any) -> bool:
    """Whether a value is an array of 8-bit floats, which sm_80 does not multiply."""
    return isinstance(x, np.ndarray) and x.itemsize == 1


def together_for_targets(cases: Iterable[Case]) -> Iterator[Case]:
    """Cases of which those with one launch, for different targets, are one, with the name of the first."""
    found: dict[tuple[Any, ...], Case] = {}
    for case in cases:
        key = case.kernel, repr(case.constants), *map(described, case.args)
        known = found.get(key, case)
        targets = tuple(dict.fromkeys((*known.targets, *case.targets)))
        found[key] = replace(known, targets=targets, rare=known.rare and case.rare)
    yield from found.values()


def described(x: Any) -> Any:
    """What a launch with an argument depends on: the form of an array, or a number."""
    return (x.shape, x.dtype, x.strides, x.ctypes.data % 16) if isinstance(x, np.ndarray) else x


LIBRARY = (
    library_cases,
    gemm_cases,
    attention_cases,
    gradient_cases,
    grouped_cases,
    grouped_k_cases,
)
CASES = {case.name: case for made in (cases, *LIBRARY) for case in together_for_targets(made())}
