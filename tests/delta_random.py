"""Random calls of the gated delta rule with all gradients, beside those of its recurrence in float64."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from tests.linear_random import LinearProblem, each, ends_of, gradients_inside, inside
from tests.linear_random import problem as of_attention
from tests.linear_random import tensors as of_attention_tensors

LONGEST = 200  # positions, which follow one another in the recurrence


def problem(draw: random.Random, longest: int = LONGEST, most: int = 6) -> LinearProblem:
    """A random call; longest: of its positions, most: of its heads."""
    return of_attention(draw, longest, most)


def tensors(p: LinearProblem, device: str) -> list[Any]:
    """q, k of length 1, v, beta, decay and the state before, of which the last two may be None."""
    q, k, v, decay, state = of_attention_tensors(p, device)
    k = torch.nn.functional.normalize(k.float(), dim=-1).to(k.dtype)
    beta = torch.rand(p.batch, p.heads, p.n, device=device)
    return [q, k, v, beta.to(v.dtype) if p.half else beta, decay, state]


def recurrence(q: Any, k: Any, v: Any, beta: Any, decay: Any, state: Any) -> tuple[Any, Any]:
    """One position after another, and the state after the last."""
    q, k = (x.repeat_interleave(v.shape[1] // x.shape[1], dim=1) for x in (q, k))
    log = torch.zeros(v.shape[:3], dtype=v.dtype, device=v.device)
    if decay is not None:
        log = log + (decay[None, :, None] if decay.dim() == 1 else decay)
    if state is None:
        state = torch.zeros(*v.shape[:2], q.shape[3], v.shape[3], dtype=v.dtype, device=v.device)
    found = []
    for i in range(v.shape[2]):
        state = log[:, :, i, None, None].exp() * state
        known = (k[:, :, i, None, :] @ state)[:, :, 0]
        added = beta[:, :, i, None] * (v[:, :, i] - known)
        state = state + k[:, :, i, :, None] * added[:, :, None]
        found.append((q[:, :, i, None, :] @ state)[:, :, 0])
    return torch.stack(found, dim=2) * q.shape[3] ** -0.5, state


def check(p: LinearProblem, device: str, rule: Callable[..., Any]) -> None:
    """Raise unless results and gradients of an operator are those in float64, within some roundings of the largest."""
    given = tensors(p, device)
    found: list[Any] = []
    exact: list[Any] = []
    weights: list[Any] = []
    for results, is_exact in ((found, False), (exact, True)):
        leaves = [
            x if x is None else (x.double() if is_exact else x).detach().requires_grad_()
            for x in given
        ]
        if is_exact:
            if p.decay == "head":  # of each position, whose errors add up
                shape = (p.batch, p.heads, p.n)
                leaves[4] = leaves[4].detach()[:, None].expand(shape).clone().requires_grad_()
            outs = each(recurrence, p.lengths, *leaves[:5], state=leaves[5], first=p.first)
        else:
            how = {"ends": ends_of(p.lengths, device, p.first), "return_state": True}
            out, after = rule(*leaves[:5], initial_state=leaves[5], **how)
            outs = inside(p, out), after
        weights = weights or [torch.randn(x.shape, device=device).to(x.dtype) for x in outs]
        weighed = outs if p.states else outs[:1]
        own = [x for x in leaves if x is not None]
        of_outs = [w.to(x.dtype) for w, x in zip(weights, weighed, strict=False)]
        results += [*outs, *gradients_inside(p, weighed, own, of_outs)]
    unit, most = 2.0**-7, [e.abs().max() for e in exact]
    if p.decay == "head":
        of_positions, exact[6] = exact[6], exact[6].sum((0, 2))
        most[6] = torch.maximum(exact[6].abs(), of_positions.square().sum((0, 2)).sqrt()).max()
    for i, (f, e, m) in enumerate(zip(found, exact, most, strict=True)):
        assert f.shape == e.shape, (p, i)
        assert f.isfinite().all(), (p, i)
        error = (f - e).abs().max()
        assert error <= 4 * unit * m + 1e-5, (p, i, float(error), float(m))
