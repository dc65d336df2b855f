"""Packed sequences of all recurrences with a state, forward and backward, on a cold L2 cache.

Beside the same positions in one sequence, and beside a batch in which each sequence is padded to the longest. Lengths
are drawn at random, so that few are multiples of a chunk.
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
from linear import Problem as OfAttention  # noqa: E402
from linear import of_mamba2, options_of, write  # noqa: E402
from linear import tensors as of_attention  # noqa: E402
from protocol import isolated  # noqa: E402

from pykittens.kernels.delta import gated_delta_rule, gated_delta_rule_backward  # noqa: E402
from pykittens.kernels.linear import (  # noqa: E402
    based_attention,
    based_attention_backward,
    gated_linear_attention,
    gated_linear_attention_backward,
    hedgehog_attention,
    hedgehog_attention_backward,
    linear_attention,
    linear_attention_backward,
    mamba2,
    mamba2_backward,
)

FUNCTIONS = {
    "linear_attention": (linear_attention, linear_attention_backward),
    "mamba2": (mamba2, mamba2_backward),
    "gated_linear_attention": (gated_linear_attention, gated_linear_attention_backward),
    "based_attention": (based_attention, based_attention_backward),
    "hedgehog_attention": (hedgehog_attention, hedgehog_attention_backward),
    "gated_delta_rule": (gated_delta_rule, gated_delta_rule_backward),
}
SIZES = {"based_attention": (16, 64)}  # of d and width, in place of those of a problem
FEATURES = 64
COUNTS = (1, 8, 64, 512, 2048)  # of sequences
MOST = 2**20  # positions of a padded batch


@dataclass(frozen=True)
class Problem:
    """A call of a function with so many positions in so many sequences, of which each has one at least."""

    name: str
    sequences: int
    n: int = 32768
    heads: int = 16
    d: int = 128
    width: int = 128

    def lengths(self, seed: int) -> list[int]:
        """The lengths, each as likely as any others with this sum."""
        draw = random.Random(seed)
        cuts = sorted(draw.sample(range(1, self.n), self.sequences - 1))
        return [j - i for i, j in zip([0, *cuts], [*cuts, self.n], strict=True)]


def tensors(p: Problem, batch: int, n: int, device: str = "cuda") -> dict[str, Any]:
    """The tensors of a call, and a gradient of its result."""
    d, width = SIZES.get(p.name, (p.d, p.width))
    found = of_attention(OfAttention(batch, p.heads, p.heads, n, d, width), device)
    gradient = {"gradient": found["gradient"]}
    if p.name == "mamba2":
        return of_mamba2(found) | gradient
    if p.name in ("based_attention", "hedgehog_attention"):
        del found["decay"]
    if p.name == "hedgehog_attention":
        of_maps = (torch.randn(p.heads, d, FEATURES, device=device) * d**-0.5 for _ in range(2))
        maps = zip(("query_map", "key_map"), of_maps, strict=True)
        return found | {name: x.bfloat16() for name, x in maps}
    if p.name == "gated_linear_attention":
        shape = *found["decay"].shape, d
        return found | {"decay": -0.1 * torch.rand(shape, device=device)}
    if p.name == "gated_delta_rule":
        found["k"] = torch.nn.functional.normalize(found["k"], dim=-1)
        return found | {"beta": torch.rand_like(found["decay"])}
    return found


def calls(p: Problem, given: dict[str, Any], **words: Any) -> dict[str, Any]:
    """The forward and the backward call of these tensors."""
    forward, backward = FUNCTIONS[p.name]
    own = {name: x for name, x in given.items() if name != "gradient"}
    if p.name == "hedgehog_attention":
        kept = zip(("out", "rows"), forward(**own, **words, return_rows=True), strict=True)
        given = given | dict(kept)
    return {
        "forward": lambda _: forward(**own, **words),
        "backward": lambda _: backward(**given, **words),
    }


def measured(p: Problem, seed: int, rounds: int) -> dict[str, Any]:
    """The times of a problem in microseconds; those of a padded batch are left out if it is too large."""
    lengths = p.lengths(seed)
    ends = torch.tensor([0, *lengths], device="cuda").cumsum(0).int()
    given, found = tensors(p, 1, p.n), {"packed": {"ends": ends}, "one sequence": {}}
    figures: dict[str, Any] = {}
    for label, words in found.items():
        times = isolated(calls(p, given, **words), 1, rounds)
        figures |= {f"{label}, {f.name}": 1e3 * f.median for f in times}
    if p.sequences * max(lengths) <= MOST:
        padded = tensors(p, p.sequences, max(lengths))
        times = isolated(calls(p, padded), 1, rounds)
        figures |= {f"padded, {f.name}": 1e3 * f.median for f in times}
    return {"name": p.name, "sequences": p.sequences, "longest": max(lengths), **figures}


def cells(r: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table."""
    labels = (f"{x}, {way}" for way in ("forward", "backward") for x in LABELS)
    times = (f"{r[x]:,.1f}" if x in r else "" for x in labels)
    return r["name"], f"{r['sequences']:,}", f"{r['longest']:,}", *times


LABELS = "packed", "one sequence", "padded"


def main() -> None:
    """Measure, print a table and write it."""
    options = options_of("packed", __doc__)
    problems = [Problem(name, count) for name in FUNCTIONS for count in COUNTS]
    rows = [measured(p, options.seed, options.rounds) for p in problems]
    times = (f"{way}, {x} us" for way in ("Forward", "Backward") for x in LABELS)
    write("packed", rows, ("Function", "Sequences", "Longest", *times), cells, options)


if __name__ == "__main__":
    main()
