"""Random calls of the gated delta rule with all gradients, beside those of its recurrence in float64."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from tests.gradients_random import check_gradients, inside
from tests.linear_random import LinearProblem, each, ends_of, roundings_of, weights_for
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
    """Raise unless results and gradients of an operator are those in float64, within some roundings."""
    given = tensors(p, device)

    def ours(*leaves: Any) -> Any:
        *of_positions, state = leaves
        how = {"ends": ends_of(p.lengths, device, p.first), "return_state": True}
        out, after = rule(*of_positions, initial_state=state, **how)
        return inside(p, out), after

    def exact(*leaves: Any) -> Any:
        *of_positions, state = leaves
        return each(recurrence, p.lengths, *of_positions, state=state, first=p.first)

    weights = weights_for(p, given[2], given[5])
    how: dict[str, Any] = {"bound": 2.0**-5, "floor": roundings_of(p)}
    check_gradients(p, given, weights, ours, exact, **how, along=5)
