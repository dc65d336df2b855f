"""The examples, each with arguments and a bound on its error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from pykittens.cli import arguments
from pykittens.runtime.kernel import KernelFunction

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

FOLDER = Path(__file__).resolve().parent
ROUNDING = 2.0**-8  # largest relative error of one rounding to bf16


@dataclass(frozen=True)
class Example:
    """One kernel and how to call it.

    shapes: of its arguments, the output last, from the sizes. small: sizes that the emulator runs in a moment, none a
    multiple of its tile. bound: on what `error` returns. inputs: makes the inputs from their shapes, unless they are
    random numbers in bf16.
    """

    title: str
    file: str
    name: str
    shapes: Callable[..., tuple[Shape, ...]]
    small: Shape
    bound: float
    constants: dict[str, Any] = field(default_factory=dict)
    inputs: Callable[..., list[Array]] | None = None


@dataclass(frozen=True)
class Loaded:
    """The contents of an example's file: the kernel, and its reference in float64."""

    kernel: KernelFunction
    reference: Callable[..., Array]


def _matrices(count: int) -> Callable[..., tuple[Shape, ...]]:
    return lambda m, n: ((m, n),) * count


def _product(title: str, file: str, name: str) -> Example:
    def shapes(m: int, n: int, k: int) -> tuple[Shape, ...]:
        return (m, k), (n, k), (m, n)

    return Example(title, file, name, shapes, (300, 500, 200), ROUNDING)


def _attention(title: str, causal: bool) -> Example:
    return Example(
        title,
        "07_attention.py",
        "attention",
        lambda b, h, n, d: ((b, h, n, d),) * 4,
        small=(1, 2, 300, 128),
        bound=4
        * ROUNDING,  # the weights are rounded to bf16 before the second product, the output once more
        constants={"causal": causal},
    )


def _heads_and_tables(rng: np.random.Generator, shapes: tuple[Shape, ...]) -> list[Array]:
    """Heads and weights in bf16, two tables in f32, and the row of the tables for each token."""
    x, weight, cos, sin, positions = shapes
    return [
        *(rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in (x, weight)),
        *(rng.uniform(-1, 1, s).astype(np.float32) for s in (cos, sin)),
        rng.integers(0, cos[0], positions).astype(np.int32),
    ]


EXAMPLES = (
    Example("copy", "01_copy.py", "copy", _matrices(2), (100, 130), bound=0.0),
    Example("add", "02_add.py", "add", _matrices(3), (100, 130), bound=ROUNDING),
    Example("softmax", "03_softmax.py", "softmax", _matrices(2), (100, 1000), bound=ROUNDING),
    _product("matmul tile", "04_matmul_tile.py", "matmul_tile"),
    _product("matmul pipeline", "05_matmul_pipeline.py", "matmul_pipeline"),
    _product("matmul", "06_matmul.py", "matmul"),
    _attention("attention", causal=False),
    _attention("attention, causal", causal=True),
    _product("matmul on lcsf", "08_lcsf.py", "lcsf_matmul"),
    Example(
        "norm and rotary",
        "09_own_kernel.py",
        "norm_rotary",
        lambda h, n, d: ((h, n, d), (d,), (8192, d), (8192, d), (n,), (h, n, d)),
        small=(3, 100, 96),
        bound=2 * ROUNDING,  # the mean, its root, the weight and the rotation are computed in f32
        inputs=_heads_and_tables,
    ),
    Example("prune", "10_own_operation.py", "prune", _matrices(2), (100, 130), bound=0.0),
)

# One product in steps, each faster than the previous one.
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


def load(example: Example) -> Loaded:
    """The kernel and the reference from the file of an example."""
    module = arguments.load(FOLDER / example.file)
    return Loaded(getattr(module, example.name), module.reference)


def arrays(example: Example, sizes: Shape) -> list[Array]:
    """Inputs, the same at each call, by default random normal numbers in bf16, and an output of NaN."""
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
