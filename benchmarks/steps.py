"""Steps of one position, for decoding, beside copies of as many bytes in the same run, on a cold L2 cache.

A step reads the states of all sequences and writes them anew. The last column is the part of the bandwidth of a copy of
PyTorch's that a step has.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch  # noqa: E402
from linear import options_of, write  # noqa: E402
from protocol import isolated  # noqa: E402

from pykittens.kernels.delta import gated_delta_rule_step  # noqa: E402
from pykittens.kernels.linear import linear_attention_step  # noqa: E402

KINDS = ("position", "channel", "delta")
MOVED = 50e6  # bytes, from which on the bandwidth of a copy is asked for
COLUMNS = ("Step, batch, heads, d, width", "MB moved", "Step us", "Copy us", "Of the copy")


@dataclass(frozen=True)
class Problem:
    """A step; kind: with a decay of each head, with gates of channels, or of the gated delta rule."""

    kind: str
    batch: int
    heads: int
    groups: int
    d: int
    width: int

    def __str__(self) -> str:
        heads = f"{self.heads}" if self.heads == self.groups else f"{self.heads}/{self.groups}"
        return f"{self.kind}: {self.batch}, {heads}, {self.d}, {self.width}"

    @property
    def bytes(self) -> int:
        """Of the states, read and written."""
        return 2 * 4 * self.batch * self.heads * self.d * self.width


SIZES = ((64, 32, 32, 128, 128), (256, 16, 16, 64, 64), (32, 16, 16, 256, 256), (64, 64, 8, 64, 96))
GIVEN = tuple(Problem(kind, *sizes) for kind in KINDS for sizes in SIZES)


def drawn(count: int, seed: int) -> list[Problem]:
    """Random problems that move from 50 MB to 2 GB."""
    draw, found = random.Random(seed), list[Problem]()
    while len(found) < count:
        groups, shared = draw.choice((1, 2, 4, 8, 16, 32)), draw.choice((1, 1, 2, 8))
        d, width = (16 * draw.choice((1, 2, 4, 4, 6, 8, 8, 12, 16)) for _ in range(2))
        batch = int(2 ** draw.uniform(0, 11))
        one = Problem(draw.choice(KINDS), batch, groups * shared, groups, d, width)
        if MOVED <= one.bytes <= 2e9:
            found.append(one)
    return found


def tensors(p: Problem, device: str = "cuda") -> dict[str, Any]:
    """Random normal q, k, v and state, logarithms of decay from 0 to -0.1, and for the delta rule beta from 0 to 1."""
    shapes = {"q": (p.groups, p.d), "k": (p.groups, p.d), "v": (p.heads, p.width)}
    found = {n: torch.randn(p.batch, *x, device=device).bfloat16() for n, x in shapes.items()}
    found["state"] = torch.randn(p.batch, p.heads, p.d, p.width, device=device)
    gates = (p.groups, p.d) if p.kind == "channel" else (p.heads,)
    found["decay"] = -0.1 * torch.rand(p.batch, *gates, device=device)
    if p.kind == "delta":
        found["k"] = torch.nn.functional.normalize(found["k"].float(), dim=-1).bfloat16()
        found["beta"] = torch.rand(p.batch, p.heads, device=device)
    return found


def measured(p: Problem, rounds: int) -> dict[str, Any]:
    """The times of a step and of a copy of its states."""
    given = tensors(p)
    out, other = torch.empty_like(given["v"]), torch.empty_like(given["state"])
    step = gated_delta_rule_step if p.kind == "delta" else linear_attention_step
    contenders = {
        "step": lambda _: step(**given, out=out, next_state=other),
        "copy": lambda _: other.copy_(given["state"]),
    }
    figures = {f.name: 1e3 * f.median for f in isolated(contenders, 1, rounds)}
    return {"problem": str(p), "bytes": p.bytes, **figures}


def cells(r: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table."""
    times = f"{r['step']:,.1f}", f"{r['copy']:,.1f}"
    return r["problem"], f"{r['bytes'] / 1e6:,.0f}", *times, f"{r['copy'] / r['step']:.2f}"


def main() -> None:
    """Measure, print a table and write it."""
    options = options_of("steps", __doc__)
    rows = [measured(p, options.rounds) for p in (*GIVEN, *drawn(options.drawn, options.seed))]
    write("steps", rows, COLUMNS, cells, options)


if __name__ == "__main__":
    main()
