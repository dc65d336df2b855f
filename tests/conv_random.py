"""Random calls of causal convolutions with all gradients, beside those of conv1d in float64."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass
from typing import Any

import torch

from pykittens.torch import causal_conv
from tests.gradients_random import check_gradients

LENGTHS = (1, 2, 3, 17, 64, 100, 255, 257, 1000, 1025, 3000, 9000)
CHANNELS = (1, 5, 8, 63, 64, 130, 256, 520, 1000)


@dataclass(frozen=True)
class ConvProblem:
    """A call: its sizes, its layout, and what is given; lengths: of packed sequences, or none."""

    batch: int
    n: int
    channels: int
    taps: int
    dtype: torch.dtype
    channels_first: bool
    activation: str
    bias: bool
    states: bool
    lengths: tuple[int, ...]
    is_turned: bool


def problem(draw: random.Random, longest: int = 10**6, widest: int = 10**6) -> ConvProblem:
    """A random call; longest: of its positions, widest: of its channels."""
    n, is_packed = draw.choice([n for n in LENGTHS if n <= longest]), draw.random() < 0.3
    cuts = sorted(draw.randint(0, n) for _ in range(draw.choice((0, 1, 3, 10))))
    lengths = tuple(j - i for i, j in zip([0, *cuts], [*cuts, n], strict=True))
    return ConvProblem(
        batch=1 if is_packed else draw.randint(1, 3),
        n=n,
        channels=draw.choice([c for c in CHANNELS if c <= widest]),
        taps=draw.choice((2, 3, 4, 4, 4, 8)),
        dtype=draw.choice((torch.bfloat16, torch.float16, torch.float32)),
        channels_first=draw.random() < 0.5,
        activation=draw.choice(("", "silu")),
        bias=draw.random() < 0.5,
        states=draw.random() < 0.5,
        lengths=lengths if is_packed else (),
        is_turned=draw.random() < 0.2,
    )


def tensors(p: ConvProblem, device: str) -> dict[str, Any]:
    """x, weight, bias and the state before, of which the last two may be None."""

    def normal(*shape: int) -> Any:
        return torch.randn(shape, device=device).to(p.dtype)

    def placed(rows: int, count: int) -> Any:
        shape = (count, p.channels, rows) if p.channels_first else (count, rows, p.channels)
        x = normal(*shape)
        return x.transpose(1, 2).contiguous().transpose(1, 2) if p.is_turned else x

    state = placed(p.taps - 1, len(p.lengths) or p.batch) if p.states else None
    bias = normal(p.channels) if p.bias else None
    return {
        "x": placed(p.n, p.batch),
        "weight": normal(p.channels, p.taps),
        "bias": bias,
        "initial_state": state,
    }


def explicit(p: ConvProblem, x: Any, weight: Any, bias: Any, initial_state: Any) -> tuple[Any, Any]:
    """The result and the states, by conv1d of each sequence."""
    if not p.channels_first:
        x = x.transpose(1, 2)
        initial_state = None if initial_state is None else initial_state.transpose(1, 2)
    count = p.taps - 1
    parts = x.split(p.lengths, dim=2) if p.lengths else [x]
    outs, states = [], []
    for i, part in enumerate(parts):
        before = part.new_zeros(part.shape[0], p.channels, count)
        if initial_state is not None:
            before = initial_state[i : i + 1] if p.lengths else initial_state
        rows = torch.cat([before, part], dim=2)
        states.append(rows[:, :, part.shape[2] :])
        if part.shape[2]:
            outs.append(torch.nn.functional.conv1d(rows, weight[:, None], bias, groups=p.channels))
    out, state = torch.cat(outs, dim=2), torch.cat(states)
    out = torch.nn.functional.silu(out) if p.activation else out
    return (out, state) if p.channels_first else (out.transpose(1, 2), state.transpose(1, 2))


def check(p: ConvProblem, device: str) -> None:
    """Raise unless results and gradients are those in float64, within some roundings."""
    given = list(tensors(p, device).values())
    ends = torch.tensor([0, *p.lengths], device=device).cumsum(0).int() if p.lengths else None

    def ours(x: Any, weight: Any, bias: Any, state: Any) -> Any:
        how: dict[str, Any] = {"activation": p.activation, "return_state": True}
        how |= {"ends": ends, "channels_first": p.channels_first}
        outs = causal_conv(x, weight, bias, initial_state=state, **how)
        assert all(out.dtype == p.dtype for out in outs), p
        return outs

    weights = [torch.randn_like(x) for x in (given[0], given[3]) if x is not None]
    unit = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-22}[p.dtype]
    # Sums along positions have roundings of their own in f32.
    floor = 2.0**-20 * p.batch * p.n**0.5
    exact = functools.partial(explicit, p)
    check_gradients(p, given, weights, ours, exact, bound=2 * unit, floor=floor)
