"""Random calls of long convolutions with all gradients, beside those of Fourier transforms in float64."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch

from pykittens.torch import long_conv
from tests.gradients_random import check_gradients

LENGTHS = (1, 17, 63, 64, 65, 128, 200, 256, 1000, 1024, 3000, 4096)
LONG = (4097, 5000, 8192, 12_288, 16384, 20_001, 30000, 32768, 100_000, 131_072, 2**19, 2**20)


@dataclass(frozen=True)
class ConvProblem:
    """A call: its sizes, how many taps a filter has, which gates there are, and the strides and dtype of sequences."""

    batch: int
    channels: int
    n: int
    taps: int
    circular: bool
    gates: tuple[bool, bool]
    by_channels: bool
    half: bool


def problem(draw: random.Random, longest: int = 4096, most: int = 2**17) -> ConvProblem:
    """A random call; longest: of its positions, most: its elements, if it is not of one sequence."""
    n = draw.choice([n for n in (*LENGTHS, *LONG) if n <= longest])
    batch = draw.choice([b for b in (1, 2, 3, 5, 16) if b == 1 or b * n <= most])
    channels = draw.choice([c for c in (1, 2, 3, 40, 130) if c == 1 or batch * c * n <= most])
    return ConvProblem(
        batch=batch,
        channels=channels,
        n=n,
        taps=draw.choice((n, n, draw.randint(1, n))),
        circular=draw.random() < 0.5,
        gates=(draw.random() < 0.4, draw.random() < 0.4),
        by_channels=draw.random() < 0.25,
        half=draw.random() < 0.25,
    )


def tensors(p: ConvProblem, device: str) -> list[Any]:
    """u, the filter, and the gates, which may be None."""
    dtype = torch.float16 if p.half else torch.bfloat16

    def normal() -> Any:
        shape = (p.channels, p.batch, p.n) if p.by_channels else (p.batch, p.channels, p.n)
        x = torch.randn(shape, device=device).to(dtype)
        return x.transpose(0, 1) if p.by_channels else x

    filters = torch.randn(p.channels, p.taps, device=device) / p.taps**0.5
    return [normal(), filters, *(normal() if gate else None for gate in p.gates)]


def explicit(u: Any, filter: Any, before: Any, after: Any, circular: bool) -> Any:
    """The convolution by transforms of PyTorch, in the dtype of u."""
    n = u.shape[2]
    length = n if circular else 2 * n
    x = u if before is None else u * before
    of_x, of_filter = torch.fft.rfft(x, length), torch.fft.rfft(filter, length)
    y = torch.fft.irfft(of_x * of_filter, length)[..., :n]
    return y if after is None else y * after


def check(p: ConvProblem, device: str) -> None:
    """Raise unless results and gradients are those in float64, within some roundings."""
    given = tensors(p, device)

    def ours(u: Any, filters: Any, before: Any, after: Any) -> Any:
        return [long_conv(u, filters, gate_before=before, gate_after=after, circular=p.circular)]

    def exact(*leaves: Any) -> Any:
        return [explicit(*leaves, p.circular)]

    weights = [torch.randn_like(given[0])]
    check_gradients(p, given, weights, ours, exact, bound=2.0**-7, floor=1e-6)
