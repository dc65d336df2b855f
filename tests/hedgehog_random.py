"""Random calls of Hedgehog attention with all gradients, beside its explicit form in float64."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import torch

from pykittens.torch import hedgehog_attention
from tests.gradients_random import as_operand, check_gradients, inside, quotient, rounded
from tests.linear_random import each, ends_of, weights_for, with_lengths

LENGTHS = (1, 17, 63, 64, 65, 128, 129, 200, 500, 1000)
CHUNK = 64


@dataclass(frozen=True)
class HedgehogProblem:
    """A call: its sizes, and whether there are states, other strides, and f16. lengths, first: as of LinearProblem."""

    batch: int
    heads: int
    n: int
    d: int
    width: int
    features: int
    states: bool
    by_rows: bool
    half: bool
    lengths: tuple[int, ...] = ()
    first: int = 0


def problem(draw: random.Random, longest: int = 10**6, most: int = 6) -> HedgehogProblem:
    """A random call; longest: of its positions, most: of its heads."""
    found = HedgehogProblem(
        batch=draw.randint(1, 2),
        heads=draw.randint(1, most),
        n=draw.choice([n for n in LENGTHS if n <= longest]),
        d=draw.choice((5, 16, 40, 64, 100, 128, 128)),
        width=draw.choice((7, 16, 33, 40, 64, 128, 128, 192)),
        features=draw.choice((5, 8, 24, 64, 64)),
        states=draw.random() < 0.5,
        by_rows=draw.random() < 0.5,
        half=draw.random() < 0.25,
    )
    return with_lengths(draw, replace(found, batch=1)) if draw.random() < 0.3 else found


def maps(x: Any, matrix: Any) -> Any:
    """The features of queries or keys."""
    y = x @ matrix
    return torch.cat([y.softmax(dim=-1), (-y).softmax(dim=-1)], dim=-1)


def tensors(p: HedgehogProblem, device: str) -> list[Any]:
    """q, k, v, both maps, factors, and the state before, which may be None."""
    dtype = torch.float16 if p.half else torch.bfloat16

    def normal(size: int) -> Any:
        shape = (p.batch, p.n, p.heads, size) if p.by_rows else (p.batch, p.heads, p.n, size)
        x = torch.randn(shape, device=device).to(dtype)
        return x.transpose(1, 2) if p.by_rows else x

    of_maps = [torch.randn(p.heads, p.d, p.features, device=device) * p.d**-0.5 for _ in range(2)]
    factors = 0.1 + 0.9 * torch.rand(2, p.heads, device=device)
    state = None
    if p.states:
        count = len(p.lengths) or p.batch
        values = torch.randn(count, p.heads, 20, p.width + 1, device=device)
        values[..., -1] = 1
        k = torch.randn(count, p.heads, 20, p.d, device=device)
        state = maps(k, of_maps[1]).mT @ values
    given = [normal(p.d), normal(p.d), normal(p.width), *(x.to(dtype) for x in of_maps)]
    return [*given, factors, state]


def explicit(
    q: Any, k: Any, v: Any, query_map: Any, key_map: Any, factors: Any, state: Any
) -> tuple[Any, Any]:
    """All pairs of positions, and the state that the next one would see.

    A largest score has its gradient from the weights of features, as in kernels: by the others it rounds otherwise.
    """
    n = q.shape[2]
    a, b = factors[:, None, :, None, None]
    i = torch.arange(n, device=q.device)
    own, other = i[:, None] // CHUNK, i[None, :] // CHUNK
    is_near = (i[None, :] <= i[:, None]) & (other >= own - 1)
    s = (q.shape[3] ** -0.5 * q @ k.mT).masked_fill(~is_near, -torch.inf)
    of_q, of_k = (as_operand(maps(*x)) for x in ((q, query_map), (k, key_map)))
    largest = s.amax(dim=-1, keepdim=True)
    near = a * (rounded(s) - largest.detach()).exp()
    of_q = of_q * b * (largest - largest.detach()).exp()
    values = torch.cat([v, torch.ones_like(v[..., :1])], dim=3)
    out = (near + (of_q @ of_k.mT) * (other < own - 1)) @ values
    older = max(n // CHUNK - 1, 0) * CHUNK
    after = of_k[:, :, :older].mT @ values[:, :, :older]
    if state is not None:
        out, after = out + of_q @ as_operand(state), after + state
    return quotient(out[..., :-1], out[..., -1:]), after


def check(p: HedgehogProblem, device: str) -> None:
    """Raise unless results and gradients are those in float64, within some roundings."""
    given = tensors(p, device)

    def ours(*leaves: Any) -> Any:
        *words, factors, state = leaves
        how = {"factors": factors, "initial_state": state, "return_state": True}
        out, after = hedgehog_attention(*words, **how, ends=ends_of(p.lengths, device, p.first))
        return inside(p, out), after

    def exact(*leaves: Any) -> Any:
        def of_one(q: Any, k: Any, v: Any, state: Any) -> Any:
            return explicit(q, k, v, *leaves[3:6], state)

        return each(of_one, p.lengths, *leaves[:3], state=leaves[6], first=p.first)

    weights = weights_for(p, given[2], given[6])
    check_gradients(p, given, weights, ours, exact, bound=2.0**-6, along=3)
