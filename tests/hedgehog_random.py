"""Random calls of Hedgehog attention with all gradients, beside its explicit form in float64."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import torch

from pykittens.torch import hedgehog_attention
from tests.linear_random import each, ends_of, inside, with_lengths

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
    """All pairs of positions, and the state that the next one would see; factors may be those of each position."""
    n = q.shape[2]
    a, b = (factors if factors.dim() == 4 else factors[:, None, :, None])[..., None]
    i = torch.arange(n, device=q.device)
    own, other = i[:, None] // CHUNK, i[None, :] // CHUNK
    is_near = (i[None, :] <= i[:, None]) & (other >= own - 1)
    s = (q.shape[3] ** -0.5 * q @ k.mT).masked_fill(~is_near, -torch.inf)
    of_q, of_k = maps(q, query_map), maps(k, key_map)
    weights = a * (s - s.amax(dim=-1, keepdim=True)).exp() + b * (of_q @ of_k.mT) * (
        other < own - 1
    )
    values = torch.cat([v, torch.ones_like(v[..., :1])], dim=3)
    out, older = weights @ values, max(n // CHUNK - 1, 0) * CHUNK
    after = of_k[:, :, :older].mT @ values[:, :, :older]
    if state is not None:
        out, after = out + b * (of_q @ state), after + state
    return out[..., :-1] / out[..., -1:], after


def gradients(
    given: list[Any], weights: list[Any], is_exact: bool, p: HedgehogProblem | None = None
) -> tuple[list[Any], list[Any]]:
    """Results, and the gradients of what is given from those of the result and perhaps of the state.

    is_exact: of the explicit form in float64, whose factors are those of each position. p: has the packed sequences.
    """
    lengths, first = (p.lengths, p.first) if p else ((), 0)
    leaves = [x if x is None else x.double() if is_exact else x for x in given]
    if is_exact:
        q = leaves[0]
        leaves[5] = leaves[5][:, None, :, None].expand(2, q.shape[0], q.shape[1], q.shape[2])
    leaves = [x if x is None else x.detach().clone().requires_grad_() for x in leaves]
    if is_exact:

        def of_one(q: Any, k: Any, v: Any, factors: Any, state: Any) -> tuple[Any, Any]:
            return explicit(q, k, v, *leaves[3:5], factors.permute(3, 0, 1, 2), state)

        of_positions = *leaves[:3], leaves[5].permute(1, 2, 3, 0)
        outs = each(of_one, lengths, *of_positions, state=leaves[6], first=first)
    else:
        how = {"factors": leaves[5], "initial_state": leaves[6], "return_state": True}
        how["ends"] = ends_of(lengths, leaves[0].device, first)
        out, after = hedgehog_attention(*leaves[:5], **how)
        outs = inside(p, out) if p else out, after
    own = [x for x in leaves if x is not None]
    of_outs = [w.to(x.dtype) for w, x in zip(weights, outs, strict=False)]
    found = list(torch.autograd.grad(outs[: len(weights)], own, of_outs))
    if p:
        found[:3] = (inside(p, x) for x in found[:3])
    return [x.detach() for x in outs], found


def check(p: HedgehogProblem, device: str) -> None:
    """Raise unless results and gradients are those in float64, within some roundings of the largest."""
    given = tensors(p, device)
    weights = [torch.randn_like(inside(p, given[2]))]
    if p.states:
        weights.append(torch.randn_like(given[6]))
    outs, found = gradients(given, weights, False, p)
    wanted, exact = gradients(given, weights, True, p)
    sizes = [float(e.abs().max()) for e in (*wanted, *exact)]
    # The terms of scores cancel, as all weights have one sum, and leave their roundings.
    sizes[2:5] = [max(sizes[2:5])] * 3
    # Those of factors are sums of terms with either sign, each of which has a rounding.
    sizes[len(outs) + 5] = float(exact[5].abs().sum(dim=(1, 3)).max())
    exact[5] = exact[5].sum(dim=(1, 3))
    for i, (f, e) in enumerate(zip((*outs, *found), (*wanted, *exact), strict=True)):
        assert f.shape == e.shape, (p, i)
        assert f.isfinite().all(), (p, i)
        error = (f - e).abs().max()
        assert error <= 2.0**-6 * sizes[i] + 1e-5, (p, i, float(error), sizes[i])
