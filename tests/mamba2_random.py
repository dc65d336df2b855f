"""Random calls of Mamba-2 with all gradients, beside those of all pairs of positions in float64."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch

from pykittens.torch import mamba2
from tests.gradients_random import check_gradients, inside
from tests.linear_random import (
    LENGTHS,
    WIDTHS,
    each,
    ends_of,
    explicit,
    roundings_of,
    weights_for,
    with_lengths,
)


@dataclass(frozen=True)
class Mamba2Problem:
    """A call: its sizes, what is added to steps before the softplus, how strong the decay is, and which inputs it has.

    lengths, first: as of LinearProblem.
    """

    batch: int
    heads: int
    groups: int
    n: int
    d: int
    width: int
    shift: float
    strength: float
    states: bool
    by_rows: bool
    half: bool
    skips: bool
    biased: bool
    lengths: tuple[int, ...] = ()
    first: int = 0


def problem(draw: random.Random, longest: int = 10**6, most: int = 6) -> Mamba2Problem:
    """A random call; longest: of its positions, most: of its heads."""
    shared, is_packed = draw.choice((1, 1, 2, 3)), draw.random() < 0.3
    groups = draw.randint(1, max(most // shared, 1))
    found = Mamba2Problem(
        batch=1 if is_packed else draw.randint(1, 2),
        heads=groups * shared,
        groups=groups,
        n=draw.choice([n for n in LENGTHS if n <= longest]),
        d=draw.choice(WIDTHS),
        width=draw.choice(WIDTHS),
        shift=draw.choice((-16.0, -6.0, -3.0, -1.0)),
        strength=draw.choice((0.1, 1.0, 16.0)),
        states=draw.random() < 0.5,
        by_rows=draw.random() < 0.5,
        half=draw.random() < 0.25,
        skips=draw.random() < 0.5,
        biased=draw.random() < 0.5,
    )
    return with_lengths(draw, found) if is_packed else found


def tensors(p: Mamba2Problem, device: str) -> list[Any]:
    """x, dt, A, B, C, D, dt_bias and the state before, of which the last three may be None."""
    dtype = torch.float16 if p.half else torch.bfloat16

    def normal(heads: int, size: int) -> Any:
        shape = (p.batch, p.n, heads, size) if p.by_rows else (p.batch, heads, p.n, size)
        x = torch.randn(shape, device=device).to(dtype)
        return x.transpose(1, 2) if p.by_rows else x

    x, b, c = normal(p.heads, p.width), normal(p.groups, p.d), normal(p.groups, p.d)
    dt = torch.randn(p.batch, p.heads, p.n, device=device) + p.shift
    rate = -p.strength * torch.rand(p.heads, device=device)
    skip, bias = torch.randn(2, p.heads, device=device)
    state = torch.randn(len(p.lengths) or p.batch, p.heads, p.d, p.width, device=device)
    more = (skip, p.skips), (bias, p.biased), (state, p.states)
    return [x, dt, rate, b, c, *(y if is_given else None for y, is_given in more)]


def pairs(
    x: Any, dt: Any, rate: Any, b: Any, c: Any, skip: Any, bias: Any, state: Any
) -> tuple[Any, Any]:
    """All pairs of positions, and the state after the last; `explicit` scales by d."""
    step = torch.nn.functional.softplus(dt if bias is None else dt + bias[:, None])
    values, scale = x * step[..., None], c.shape[3] ** 0.5
    out, after = explicit(c * scale, b, values, step * rate[:, None], state)
    return (out if skip is None else out + skip[:, None, None] * x), after


def check(p: Mamba2Problem, device: str) -> None:
    """Raise unless results and gradients are those in float64, within some roundings."""
    given = tensors(p, device)

    def ours(*leaves: Any) -> Any:
        *of_positions, state = leaves
        how = {"ends": ends_of(p.lengths, device, p.first), "return_state": True}
        out, after = mamba2(*of_positions, softplus=True, initial_state=state, **how)
        return inside(p, out), after

    def exact(*leaves: Any) -> Any:
        *of_positions, state = leaves
        return each(pairs, p.lengths, *of_positions, state=state, first=p.first)

    how: dict[str, Any] = {"bound": 2.0**-5, "floor": roundings_of(p)}
    weights = weights_for(p, given[0], given[7])
    check_gradients(p, given, weights, ours, exact, **how, along=5)
