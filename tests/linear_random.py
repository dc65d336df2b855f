"""Random calls of linear attention with all gradients, beside the gradients of its explicit form in float64."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from pykittens.torch import gated_linear_attention, linear_attention
from tests.gradients_random import check_gradients, inside

LENGTHS = (1, 17, 63, 64, 65, 129, 200, 500, 1000)
AT_ONCE = 32  # positions
WIDTHS = (5, 16, 17, 24, 32, 40, 64, 72, 96, 100, 128, 192, 250, 256)


@dataclass(frozen=True)
class LinearProblem:
    """A call: its sizes, the axes of its decay, how strong that is, and whether there are states and other strides.

    lengths: of packed sequences, or none. first: where the first of them starts; positions may follow the last.
    """

    batch: int
    heads: int
    groups: int
    n: int
    d: int
    width: int
    decay: str
    strength: float
    states: bool
    by_rows: bool
    half: bool
    gates: int = 0  # heads of a decay of each channel
    lengths: tuple[int, ...] = ()
    first: int = 0


def problem(draw: random.Random, longest: int = 10**6, most: int = 6) -> LinearProblem:
    """A random call; longest: of its positions, most: of its heads."""
    shared = draw.choice((1, 1, 2, 3))
    groups = draw.randint(1, max(most // shared, 1))
    found = LinearProblem(
        batch=draw.randint(1, 2),
        heads=groups * shared,
        groups=groups,
        n=draw.choice([n for n in LENGTHS if n <= longest]),
        d=draw.choice(WIDTHS),
        width=draw.choice(WIDTHS),
        decay=draw.choice(("none", "head", "position")),
        strength=draw.choice((0.01, 0.1, 1.0, 20.0)),
        states=draw.random() < 0.5,
        by_rows=draw.random() < 0.5,
        half=draw.random() < 0.25,
    )
    return with_lengths(draw, replace(found, batch=1)) if draw.random() < 0.3 else found


def with_lengths(draw: random.Random, p: Any) -> Any:
    """The call with packed sequences, and perhaps positions before the first and after the last."""
    first = draw.choice((0, 0, draw.randrange(p.n)))
    after = draw.choice((0, 0, draw.randrange(p.n - first)))
    return replace(p, lengths=some_lengths(draw, p.n - first - after), first=first)


def some_lengths(draw: random.Random, n: int) -> tuple[int, ...]:
    """The lengths of packed sequences with n positions, some of which may be 0."""
    cuts = sorted(draw.randint(0, n) for _ in range(draw.choice((0, 1, 3, 10))))
    return tuple(j - i for i, j in zip([0, *cuts], [*cuts, n], strict=True))


def of_channels(draw: random.Random, p: LinearProblem) -> LinearProblem:
    """The call with a gate for each channel, of any number of heads that fits."""
    shared = p.heads // p.groups
    gates = p.groups * draw.choice([x for x in range(1, shared + 1) if shared % x == 0])
    return replace(p, decay="channel", gates=gates)


def tensors(p: LinearProblem, device: str) -> list[Any]:
    """q, k, v, decay and the state before, of which the last two may be None."""
    dtype = torch.float16 if p.half else torch.bfloat16

    def normal(heads: int, size: int) -> Any:
        shape = (p.batch, p.n, heads, size) if p.by_rows else (p.batch, heads, p.n, size)
        x = torch.randn(shape, device=device).to(dtype)
        return x.transpose(1, 2) if p.by_rows else x

    shapes: dict[str, tuple[int, ...]] = {"head": (p.heads,), "position": (p.batch, p.heads, p.n)}
    shapes["channel"] = p.batch, p.gates, p.n, p.d
    count = len(p.lengths) or p.batch
    state = torch.randn(count, p.heads, p.d, p.width, device=device) if p.states else None
    decay = None
    if p.decay in shapes:
        decay = -p.strength * torch.rand(shapes[p.decay], device=device)
    return [normal(p.groups, p.d), normal(p.groups, p.d), normal(p.heads, p.width), decay, state]


def explicit(q: Any, k: Any, v: Any, decay: Any, state: Any) -> tuple[Any, Any]:
    """All pairs of positions, and the state after the last."""
    q, k = (x.repeat_interleave(v.shape[1] // x.shape[1], dim=1) for x in (q, k))
    n = v.shape[2]
    log = torch.zeros(v.shape[:3], dtype=v.dtype, device=v.device)
    if decay is not None:
        log = log + (decay[None, :, None] if decay.dim() == 1 else decay)
    sums = log.cumsum(dim=2)
    seen = torch.ones(n, n, dtype=torch.bool, device=v.device).tril()
    kept = (sums[..., :, None] - sums[..., None, :]).masked_fill(~seen, -torch.inf).exp()
    out = ((q @ k.mT) * kept) @ v
    after = (k * (sums[..., -1:] - sums).exp()[..., None]).mT @ v
    if state is not None:
        out = out + sums.exp()[..., None] * (q @ state)
        after = after + sums[..., -1].exp()[..., None, None] * state
    return out * q.shape[3] ** -0.5, after


def by_channels(q: Any, k: Any, v: Any, decay: Any, state: Any) -> tuple[Any, Any]:
    """Some positions at a time, with a gate for each channel, and the state after the last."""
    q, k, decay = (x.repeat_interleave(v.shape[1] // x.shape[1], dim=1) for x in (q, k, decay))
    if state is None:
        state = torch.zeros(*v.shape[:2], q.shape[3], v.shape[3], dtype=v.dtype, device=v.device)
    found = []
    for at in range(0, v.shape[2], AT_ONCE):
        a, b, c, log = (x[:, :, at : at + AT_ONCE] for x in (q, k, v, decay))
        sums = log.cumsum(dim=2)
        seen = torch.ones(log.shape[2], log.shape[2], dtype=torch.bool, device=v.device).tril()
        kept = sums[..., :, None, :] - sums[..., None, :, :]
        kept = kept.masked_fill(~seen[..., None], -torch.inf).exp()
        pairs = torch.einsum("bhid,bhjd,bhijd->bhij", a, b, kept)
        found.append(pairs @ c + (a * sums.exp()) @ state)
        behind = sums[:, :, -1:]
        state = behind.mT.exp() * state + (b * (behind - sums).exp()).mT @ c
    return torch.cat(found, dim=2) * q.shape[3] ** -0.5, state


def ends_of(lengths: Sequence[int], device: Any, first: int = 0) -> Any:
    """Where packed sequences start, and where the last ends; None if none are packed."""
    return torch.tensor([first, *lengths], device=device).cumsum(0).int() if lengths else None


def each(
    of_one: Callable[..., tuple[Any, Any]],
    lengths: Sequence[int],
    *given: Any,
    state: Any,
    first: int = 0,
) -> tuple[Any, Any]:
    """The results of all packed sequences, if there are any, and their states.

    given: tensors (batch, heads, n, ...), and others that all sequences share. state: those before, or None.
    """
    if not lengths:
        return of_one(*given, state)
    outs, states = [], []
    for i, length in enumerate(lengths):
        parts = [
            x[:, :, first : first + length] if x is not None and x.dim() > 1 else x for x in given
        ]
        before = None if state is None else state[i : i + 1]
        # No position has a result to be put together with others, and the state stays.
        out, after = of_one(*parts, before) if length else (None, before)
        outs += [] if out is None else [out]
        states.append(after)
        first += length
    known = next(x for x in states if x is not None)
    return torch.cat(outs, 2), torch.cat(
        [torch.zeros_like(known) if x is None else x for x in states]
    )


def weights_for(p: Any, v: Any, state: Any) -> list[Any]:
    """The gradients of a result, of the positions of packed sequences, and of the states if there are some before."""
    return [torch.randn_like(x) for x in (inside(p, v), state) if x is not None]


def roundings_of(p: Any) -> float:
    """What roundings in f32, and multiples of the least number of f16, leave of sums of products of all sizes."""
    return max(1e-5, 2.0**-23 * (p.n * p.d * p.width) ** 0.5)


def check(p: LinearProblem, device: str) -> None:
    """Raise unless results and gradients are those in float64, within some roundings."""
    given = tensors(p, device)

    def ours(q: Any, k: Any, v: Any, decay: Any, state: Any) -> Any:
        operator = gated_linear_attention if p.gates else linear_attention
        how = {"ends": ends_of(p.lengths, device, p.first), "return_state": True}
        out, after = operator(q, k, v, decay, initial_state=state, **how)
        return inside(p, out), after

    def exact(*leaves: Any) -> Any:
        *of_positions, state = leaves
        of_one = by_channels if p.gates else explicit
        return each(of_one, p.lengths, *of_positions, state=state, first=p.first)

    weights = weights_for(p, given[2], given[4])
    how: dict[str, Any] = {"bound": 2.0**-5, "floor": roundings_of(p)}
    check_gradients(p, given, weights, ours, exact, **how, along=4)
