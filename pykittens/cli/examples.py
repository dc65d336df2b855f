"""The kernels of the examples folder, with arguments to run them on and a bound for what they compute."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

ROUNDING = 2.0**-8  # largest relative error of one rounding to bf16


@dataclass(frozen=True)
class Example:
    """One kernel and how to call it.

    shapes: of its arguments, the output last, from the sizes. small: sizes the emulator runs in a moment,
    none a multiple of its tile. large: sizes that fill a GPU. bound: for `error`. work: floating point
    operations, or bytes where `unit` says so, from the sizes. inputs: makes them of their shapes, where they are
    not random numbers in bf16.
    """

    title: str
    file: str
    name: str
    shapes: Callable[..., tuple[Shape, ...]]
    small: Shape
    large: Shape
    bound: float
    work: Callable[..., float]
    unit: str = "TFLOP/s"
    constants: dict[str, Any] = field(default_factory=dict)
    inputs: Callable[..., list[Array]] | None = None


@dataclass(frozen=True)
class Loaded:
    """What the file of an example holds: the kernel and its meaning in float64."""

    kernel: Any
    reference: Callable[..., Array]


def _attention(causal: bool) -> Example:
    return Example(
        "attention, causal" if causal else "attention",
        "07_attention.py",
        "attention",
        lambda b, h, n, d: ((b, h, n, d),) * 4,
        small=(1, 2, 300, 128),
        large=(16, 16, 1536, 128),
        # The weights are rounded to bf16 before they meet V, the output once more.
        bound=4 * ROUNDING,
        work=lambda b, h, n, d: 4.0 * b * h * n * n * d * (0.5 if causal else 1),
        constants={"causal": causal},
    )


def _product(title: str, file: str, name: str) -> Example:
    return Example(
        title,
        file,
        name,
        lambda m, n, k: ((m, k), (n, k), (m, n)),
        small=(300, 500, 200),
        large=(8192, 8192, 8192),
        bound=ROUNDING,
        work=lambda m, n, k: 2.0 * m * n * k,
    )


def _heads_and_tables(rng: np.random.Generator, shapes: tuple[Shape, ...]) -> list[Array]:
    """Heads and weights in bf16, two tables in f32, and the rows of the tables that the tokens take."""
    x, weight, cos, sin, positions = shapes
    return [
        *(rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in (x, weight)),
        *(rng.uniform(-1, 1, s).astype(np.float32) for s in (cos, sin)),
        rng.integers(0, cos[0], positions).astype(np.int32),
    ]


EXAMPLES = (
    Example(
        "copy",
        "01_copy.py",
        "copy",
        lambda m, n: ((m, n),) * 2,
        small=(100, 130),
        large=(16384, 4096),
        bound=0.0,
        work=lambda m, n: 4.0 * m * n,
        unit="TB/s",
    ),
    Example(
        "add",
        "02_add.py",
        "add",
        lambda m, n: ((m, n),) * 3,
        small=(100, 130),
        large=(16384, 4096),
        bound=ROUNDING,
        work=lambda m, n: 6.0 * m * n,
        unit="TB/s",
    ),
    Example(
        "softmax",
        "03_softmax.py",
        "softmax",
        lambda m, n: ((m, n),) * 2,
        small=(100, 1000),
        large=(16384, 2048),
        bound=ROUNDING,
        work=lambda m, n: 4.0 * m * n,
        unit="TB/s",
    ),
    _product("matmul tile", "04_matmul_tile.py", "matmul_tile"),
    _product("matmul pipeline", "05_matmul_pipeline.py", "matmul_pipeline"),
    _product("matmul", "06_matmul.py", "matmul"),
    _attention(causal=False),
    _attention(causal=True),
    _product("matmul on lcsf", "08_lcsf.py", "lcsf_matmul"),
    Example(
        "norm and rotary",
        "09_own_kernel.py",
        "norm_rotary",
        lambda h, n, d: ((h, n, d), (d,), (8192, d), (8192, d), (n,), (h, n, d)),
        small=(3, 100, 96),
        large=(32, 16384, 128),
        # The mean, its root, the weight and the rotation are computed in f32.
        bound=2 * ROUNDING,
        work=lambda h, n, d: 4.0 * h * n * d,
        unit="TB/s",
        inputs=_heads_and_tables,
    ),
    Example(
        "prune",
        "10_own_operation.py",
        "prune",
        lambda m, n: ((m, n),) * 2,
        small=(100, 130),
        large=(16384, 4096),
        bound=0.0,
        work=lambda m, n: 4.0 * m * n,
        unit="TB/s",
    ),
)


# One product in steps, each of which is faster than the one before.
LADDER = tuple(
    _product(f"matmul ladder {stem}", f"matmul_ladder/{stem}.py", "matmul")
    for stem in (
        "01_warp",
        "02_tile",
        "03_warpgroup",
        "04_copies",
        "05_pipeline",
        "06_consumers",
        "07_persistent",
        "08_neighbours",
    )
)


def folder() -> Path | None:
    """The examples of the source tree; None where the package was installed without it."""
    beside = Path(__file__).resolve().parents[2] / "examples"
    return next(
        (f for f in (beside, Path.cwd() / "examples") if (f / "01_copy.py").is_file()), None
    )


def module(folder: Path, stem: str) -> ModuleType:
    """The file of an example as a module, by its name without the ending."""
    spec = importlib.util.spec_from_file_location(f"example_{stem}", folder / f"{stem}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def load(folder: Path, example: Example) -> Loaded:
    """The kernel and the reference that the file of an example holds."""
    found = module(folder, example.file.removesuffix(".py"))
    return Loaded(getattr(found, example.name), found.reference)


def arrays(example: Example, sizes: Shape) -> list[Array]:
    """Inputs, always the same, random normal ones in bf16 if not said otherwise, and an output of NaN."""
    rng = np.random.default_rng(0)
    *shapes, output = example.shapes(*sizes)
    if example.inputs is not None:
        made = example.inputs(rng, tuple(shapes))
    else:
        made = [rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in shapes]
    return [*made, np.full(output, np.nan, ml_dtypes.bfloat16)]


def error(found: Array, expected: Array) -> float:
    """The largest error of an element over its size plus the root mean square of its row; NaN if one is NaN."""
    scale = np.abs(expected) + np.sqrt(np.mean(expected**2, axis=-1, keepdims=True))
    difference = np.abs(found.astype(np.float64) - expected)
    return float(np.max(difference / np.maximum(scale, np.finfo(np.float64).tiny)))
