"""Random calls of Based linear attention with all gradients, beside its explicit form in float64."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, replace
from typing import Any

import torch

from pykittens.torch import based_attention
from tests.gradients_random import check_gradients, inside, quotient
from tests.linear_random import each, ends_of, weights_for, with_lengths

LENGTHS = (1, 17, 63, 64, 65, 129, 200, 500, 1000)


@dataclass(frozen=True)
class BasedProblem:
    """A call: its sizes, whether outputs are divided, and whether there are states and other strides.

    lengths, first: as of LinearProblem.
    """

    batch: int
    heads: int
    n: int
    d: int
    width: int
    normalize: bool
    states: bool
    by_rows: bool
    half: bool
    lengths: tuple[int, ...] = ()
    first: int = 0


def problem(draw: random.Random, longest: int = 10**6, most: int = 6) -> BasedProblem:
    """A random call; longest: of its positions, most: of its heads."""
    found = BasedProblem(
        batch=draw.randint(1, 2),
        heads=draw.randint(1, most),
        n=draw.choice([n for n in LENGTHS if n <= longest]),
        d=draw.choice((16, 16, 16, 5, 8, 24, 32)),
        width=draw.choice((5, 16, 33, 40, 64, 64, 72, 128)),
        normalize=draw.random() < 0.5,
        states=draw.random() < 0.5,
        by_rows=draw.random() < 0.5,
        half=draw.random() < 0.25,
    )
    return with_lengths(draw, replace(found, batch=1)) if draw.random() < 0.3 else found


def features(x: Any) -> Any:
    """All pairs of elements, elements and 1, in the order of a state's rows."""
    d = x.shape[-1]
    r = torch.arange(d * (d + 1) // 2, device=x.device)
    pairs = x[..., r % d] * x[..., (r % d + r // d) % d]
    return torch.cat([pairs, x, torch.ones_like(x[..., :1])], dim=-1)


def tensors(p: BasedProblem, device: str) -> list[Any]:
    """q, k, v, and the state before, which may be None."""
    dtype = torch.float16 if p.half else torch.bfloat16

    def normal(size: int) -> Any:
        shape = (p.batch, p.n, p.heads, size) if p.by_rows else (p.batch, p.heads, p.n, size)
        x = torch.randn(shape, device=device).to(dtype)
        return x.transpose(1, 2) if p.by_rows else x

    state = None
    if p.states:  # that of positions before, so that no sum of weights is near 0
        count = len(p.lengths) or p.batch
        k = torch.randn(count, p.heads, 20, p.d, device=device)
        v = torch.randn(count, p.heads, 20, p.width + p.normalize, device=device)
        if p.normalize:
            v[..., -1] = 1
        state = features(k).mT @ v
    return [normal(p.d), normal(p.d), normal(p.width), state]


def explicit(p: BasedProblem, q: Any, k: Any, v: Any, state: Any) -> tuple[Any, Any]:
    """All pairs of positions, and the state after the last."""
    scale, d = p.d**-0.5, p.d
    values = torch.cat([v, torch.ones_like(v[..., :1])], dim=3) if p.normalize else v
    s = scale * q @ k.mT
    out = torch.tril(1 + s + s * s / 2) @ values
    after = features(k).mT @ values
    if state is not None:
        factors = torch.full((features(q).shape[-1],), scale**2, dtype=q.dtype, device=q.device)
        factors[:d] /= 2
        factors[-d - 1 :] = scale
        factors[-1] = 1
        out, after = out + (features(q) * factors) @ state, after + state
    return (quotient(out[..., :-1], out[..., -1:] + 1e-6) if p.normalize else out), after


def check(p: BasedProblem, device: str) -> None:
    """Raise unless results and gradients are those in float64, within some roundings."""
    given = tensors(p, device)

    def ours(q: Any, k: Any, v: Any, state: Any) -> Any:
        how: dict[str, Any] = {"normalize": p.normalize, "return_state": True}
        how["ends"] = ends_of(p.lengths, device, p.first)
        out, after = based_attention(q, k, v, initial_state=state, **how)
        return inside(p, out), after

    def exact(*leaves: Any) -> Any:
        *of_positions, state = leaves
        of_one = functools.partial(explicit, p)
        return each(of_one, p.lengths, *of_positions, state=state, first=p.first)

    weights = weights_for(p, given[2], given[3])
    check_gradients(p, given, weights, ours, exact, bound=2.0**-6, along=3)
