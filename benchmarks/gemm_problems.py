"""The products that benchmarks/gemm.py measures: their shapes, their data, and their exact results."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pykittens.kernels.gemm import gemm, gemm_tiles
from pykittens.kernels.gemm.call import GemmCall
from pykittens.kernels.gemm.config import Config
from pykittens.kernels.gemm.reference import reference

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
BLOCK = 128  # elements along a side of a block of fp8 that has one scale
CHECKED_ROWS = 256
# Errors relative to an element's size plus the root mean square of its row: one rounding to bf16; for fp8 the tensor
# cores keep 14 bits of a sum: 3.5e-3 on average at k = 16384, so 1.9e-2 for the worst of millions.
ROUNDING, FP8_ROUNDING = 2.0**-8, 2.0**-5

SIZES = (1024, 2048, 4096, 8192, 16384)
DEPTHS = (64, 128, 256, 512, 1024)
ROWS = (1, 16, 64, 256, 1024, 4096)
LAYERS = {  # n, k
    "8B qkv": (6144, 4096),
    "8B o": (4096, 4096),
    "8B gate + up": (28672, 4096),
    "8B down": (4096, 14336),
    "70B qkv": (10240, 8192),
    "70B o": (8192, 8192),
    "70B gate + up": (57344, 8192),
    "70B down": (8192, 28672),
}
FP8_SIZES = SIZES[1:]
# The operands of an epilogue and its activation.
FUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "bias + gelu": (("bias",), "gelu"),
    "bias + relu": (("bias",), "relu"),
    "residual": (("residual",), ""),
    "bias + gelu + residual": (("bias", "residual"), "gelu"),
    "silu + gate": (("gate",), "silu"),
}
FUSED_SHAPES = (  # m, n, k
    (4096, 1024, 1024),
    (4096, 4096, 1024),
    (8192, 4096, 1024),
    (2048, 8192, 2048),
    (4096, 4096, 4096),
    (4096, 16384, 4096),
    (4096, 4096, 8192),
    (64, 4096, 4096),
)
# n, k with fewer tiles than multiprocessors and many steps.
FEW = ((512, 8192), (1024, 8192), (1024, 28672))
FEW_ROWS = (16, 64, 128, 256)
# The ranges of m for random shapes; n and k are multiples of 64.
BANDS = ((1, 32), (33, 256), (257, 4096))
DRAWN = 24  # random shapes of each band
EXTENTS = 256, 32768
MOST_OPERATIONS, MOST_BYTES = 6e11, 1.5e9
SECTIONS = ("bf16", "fp8", "blocks", "epilogues", "few tiles", "random")


@dataclass(frozen=True)
class Problem:
    """A product (m x k) @ (k x n).

    section: of the tables. kind: of a group that has a mean. panel, at: its panel and position in the picture. fused:
    the name of its epilogue. transpose_a: whether a lies in memory as k x m.
    """

    section: str
    kind: str
    panel: str
    at: str
    m: int
    n: int
    k: int
    transpose_b: bool = True
    fused: str = ""
    transpose_a: bool = False

    @property
    def layout(self) -> str:
        return f"A{'.T' * self.transpose_a} @ B{'.T' * self.transpose_b}"

    @property
    def shape(self) -> str:
        return f"{self.m} x {self.n} x {self.k}"

    @property
    def name(self) -> str:
        """The name in messages, and for --match."""
        what = self.fused or self.layout
        return f"{self.section}, {self.kind}, {self.panel}, {self.shape}, {what}"

    @property
    def operands(self) -> tuple[str, ...]:
        return FUSED[self.fused][0] if self.fused else ()

    @property
    def activation(self) -> str:
        return FUSED[self.fused][1] if self.fused else ""

    @property
    def is_gated(self) -> bool:
        return "gate" in self.operands

    @property
    def dtype(self) -> torch.dtype:
        return FP8 if self.section in ("fp8", "blocks") else BF16

    @property
    def work(self) -> float:
        """Floating-point operations of its products."""
        return 2.0 * self.m * self.n * self.k * (1 + self.is_gated)


def square(n: int, k: int | None = None) -> Problem:
    """A bf16 product with n x n results."""
    return Problem("bf16", "", "", "", n, n, k or n)


def problems() -> tuple[Problem, ...]:
    """All of them, in the order of the tables."""
    return (*_bf16(), *_fp8(), *_fused(), *_few(), *_random())


def _bf16() -> Iterator[Problem]:
    add = functools.partial(Problem, "bf16")
    for n in SIZES:
        for is_transposed in (True, False):
            yield add("squares", "m = n = k", f"{n}", n, n, n, is_transposed)
    for k in DEPTHS:
        for is_transposed in (True, False):
            yield add("small k", "m = n = 4096, k", f"{k}", 4096, 4096, k, is_transposed)
    for layer, (n, k) in LAYERS.items():
        for m in ROWS:
            for is_transposed in (True, False):
                yield add(
                    f"Llama m = {m}", f"{layer}, {n} x {k}, m", f"{m}", m, n, k, is_transposed
                )


def _fp8() -> Iterator[Problem]:
    for section, kind in (("fp8", "fast accumulation"), ("blocks", "scales of blocks")):
        for n in FP8_SIZES:
            yield Problem(section, kind, f"fp8, {kind}", f"{n}", n, n, n)


def _fused() -> Iterator[Problem]:
    for name in FUSED:
        for m, n, k in FUSED_SHAPES:
            panel = f"{name}: m, n, k"
            yield Problem("epilogues", name, panel, f"{m}\n{n}\n{k}", m, n, k, fused=name)


def _few() -> Iterator[Problem]:
    for n, k in FEW:
        for m in FEW_ROWS:
            for is_transposed in (True, False):
                panel = f"{n} x {k}, m"
                yield Problem(
                    "few tiles", f"few tiles, m = {m}", panel, f"{m}", m, n, k, is_transposed
                )


def _random() -> Iterator[Problem]:
    """Random shapes: the logarithms of the extents are uniformly distributed."""
    numbers = random.Random(0)

    def drawn(low: int, high: int) -> int:
        return round(math.exp(numbers.uniform(math.log(low), math.log(high))))

    for low, high in BANDS:
        name, found = f"random, m = {low} to {high}", 0
        while found < DRAWN:
            m, n, k = drawn(low, high), *(drawn(*EXTENTS) // 64 * 64 for _ in range(2))
            is_transposed, moved = found % 2 == 0, 2 * (m * k + n * k + m * n)
            p = Problem("random", name, name, f"{m}\n{n}\n{k}", m, n, k, is_transposed)
            if p.work <= MOST_OPERATIONS and moved <= MOST_BYTES:
                found += 1
                yield p


# -- data ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """The arrays of one call. extras: by the names of gemm. weights: b, with the gate below it.

    padded: the scales of blocks of b in rows of a multiple of 4, as the library reads them.
    """

    a: Tensor
    b: Tensor
    out: Tensor
    extras: dict[str, Tensor]
    weights: Tensor
    padded: Tensor | None = None

    @property
    def tensors(self) -> list[Tensor]:
        """Each allocation once."""
        extras = [x for name, x in self.extras.items() if name != "gate"]
        return [self.a, self.weights, self.out, *extras]


def made(problem: Problem, device: str) -> Data:
    """Random normal data, and an output of NaN. The input of an activation has a deviation of 1."""
    p = problem

    def normal(*shape: int, deviation: float = 1.0) -> Tensor:
        x = torch.randn(shape, device=device, dtype=BF16)
        return (x if deviation == 1 else x.mul_(deviation)).to(p.dtype)

    def scales(*shape: int) -> Tensor:
        return torch.rand(shape, device=device) + 0.5

    weights = normal(
        *((p.n * (1 + p.is_gated), p.k) if p.transpose_b else (p.k, p.n)),
        deviation=p.k**-0.5 if p.fused else 1.0,
    )
    extras: dict[str, Tensor] = {}
    padded = None
    if p.section == "fp8":
        extras["alpha"] = torch.full((1,), 0.5, device=device)
    if p.section == "blocks":
        # The library requires the scales of the rows of a step to be contiguous.
        steps = -(-p.k // BLOCK)
        extras["row_blocks"] = scales(steps, p.m).t()
        padded = scales(-(-p.n // BLOCK), -(-steps // 4) * 4)
        extras["column_blocks"] = padded[:, :steps].contiguous()
    if "bias" in p.operands:
        extras["bias"] = normal(p.n)
    if "residual" in p.operands:
        extras["residual"] = normal(p.m, p.n)
    if p.is_gated:
        extras["gate"] = weights[p.n :]
    out = torch.full((p.m, p.n), torch.nan, device=device, dtype=BF16)
    a = normal(p.k, p.m).t() if p.transpose_a else normal(p.m, p.k)
    return Data(a, weights[: p.n] if p.is_gated else weights, out, extras, weights, padded)


def call_of(problem: Problem, data: Data) -> GemmCall:
    """The call of gemm, of which nothing is launched."""
    words = {"transpose_b": problem.transpose_b, "activation": problem.activation, **data.extras}
    return GemmCall.of(gemm_tiles, data.a, data.b, data.out, **words)


def calls(problem: Problem, sets: Sequence[Data], config: Config | None) -> Callable[[int], Tensor]:
    """The product by pykittens, as benchmarks/protocol.py calls a contender: the number picks the buffers."""
    p = problem
    words: dict[str, Any] = {"transpose_b": p.transpose_b}
    words |= {"activation": p.activation} if p.activation else {}
    words |= {"config": config} if config is not None else {}
    given = [((d.a, d.b, d.out), {**d.extras, **words}) for d in sets]

    def call(i: int) -> Tensor:
        arrays, named = given[i]
        gemm(*arrays, **named)
        return arrays[2]

    return call


# -- exact results ---------------------------------------------------------------------------------


class Expected:
    """Rows of a product in float64, spread over its height."""

    def __init__(self, problem: Problem, data: Data) -> None:
        p, count = problem, min(CHECKED_ROWS, problem.m)
        self.rows = torch.linspace(0, p.m - 1, count, device=data.a.device).long()
        extras = {
            name: x[self.rows] if name in ("residual", "row_blocks") else x
            for name, x in data.extras.items()
        }
        # By their bytes, since PyTorch cannot index fp8 on every device.
        size = torch.uint8 if p.dtype == FP8 else p.dtype
        a = data.a.view(size)[self.rows].view(p.dtype)
        self.values = reference(a, data.b, p.transpose_b, activation=p.activation, **extras)
        self.scale = self.values.abs() + self.values.square().mean(-1, keepdim=True).sqrt()

    def error(self, found: Tensor) -> float:
        """The largest error over the element's size plus the root mean square of its row; infinite with any NaN."""
        if bool(found.isnan().any()):
            return float("inf")
        return float(((found[self.rows].double() - self.values).abs() / self.scale).max())


def allowed(problem: Problem) -> float:
    """The largest error allowed if sums are rounded once."""
    return FP8_ROUNDING if problem.dtype == FP8 else ROUNDING
