"""Attention with bounds of the keys beside our kernel without them, at the rate of the blocks that are left.

A call computes the blocks of queries x keys in which a query sees a key. Its rate counts all elements of these blocks,
so that it is that of the plain kernel if masks, starts and ends of tasks cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from protocol import Bench, normal
from record import Row, row
from run import check

from pykittens.kernels.attention import attention
from pykittens.kernels.attention.visible import packed

HEADS = 16
CHECKED = 256  # queries at the start, and at the end, of one head


@dataclass(frozen=True)
class Bounds:
    """The keys that each query sees, from `low` to before `high`, and the arguments that say so."""

    name: str
    low: np.ndarray
    high: np.ndarray
    how: dict[str, Any]
    plain: dict[str, Any]

    @property
    def length(self) -> int:
        """The number of queries and of keys."""
        return len(self.low)

    def elements(self, rows: int, keys: int) -> int:
        """The elements of the blocks of rows x keys that are left of one head; a block of queries has at least one."""
        start = np.arange(0, self.length, rows)
        end = np.minimum(start + rows, self.length) - 1
        steps = -(-self.high[end] // keys) - self.low[start] // keys
        return int(np.maximum(steps, 1).sum()) * rows * keys

    def check(self, found: torch.Tensor, q: Any, k: Any, v: Any) -> float:
        """The relative error of the first and the last queries of a head."""
        errors = []
        for at in (slice(0, CHECKED), slice(max(self.length - CHECKED, 0), self.length)):
            low, high = (
                torch.from_numpy(x[at]).to(q.device)[:, None] for x in (self.low, self.high)
            )
            j = torch.arange(self.length, device=q.device)
            wide = [x[0, 0].double() for x in (q, k, v)]
            s = wide[0][at] @ wide[1].T * q.shape[-1] ** -0.5
            s = s.masked_fill((j < low) | (j >= high), -torch.inf)
            errors.append(check(self.name, found[0, 0, at], s.softmax(dim=-1) @ wide[2], 8e-3))
        return max(errors)


def window_of(length: int, window: int) -> Bounds:
    """A causal sliding window, beside causal attention."""
    i = np.arange(length)
    how = {"causal": True, "window": (window - 1, 0)}
    return Bounds(
        f"window of {window}", np.maximum(i - window + 1, 0), i + 1, how, {"causal": True}
    )


def documents_of(length: int, causal: bool, seed: int = 0) -> Bounds:
    """Documents one after another, beside one document; their random lengths are log-uniform, from 64 to 4,096."""
    rng, ends = np.random.default_rng(seed), [0]
    while ends[-1] < length:
        ends.append(min(ends[-1] + int(2 ** rng.uniform(6, 12)), length))
    low, high = packed(ends, ends, None, 0 if causal else None)
    how = {"key_start": low[None], "key_stop": high[None]}
    name = f"{len(ends) - 1} documents{', causal' * causal}"
    return Bounds(name, low, high, how, {"causal": causal})


def bounds_row(bench: Bench, bounds: Bounds, d: int) -> Row:
    """A call with bounds beside our plain attention, both in elements of the blocks that they compute."""
    shape = 1, HEADS, bounds.length, d
    sets = [[normal(*shape, device=bench.device) for _ in range(3)] for _ in range(3)]
    how = {
        name: torch.from_numpy(x).to(bench.device) if isinstance(x, np.ndarray) else x
        for name, x in bounds.how.items()
    }
    error = bounds.check(attention(*sets[0], **how), *sets[0])
    first = bounds.name.split()[0]
    ways = {
        first: lambda i: attention(*sets[i], **how),
        "plain": lambda i: attention(*sets[i], **bounds.plain),
    }
    ours, plain = bench.measure(ways, len(sets))
    i, n = np.arange(bounds.length), bounds.length
    high = i + 1 if bounds.plain["causal"] else np.full(n, n)
    whole = replace(bounds, low=np.zeros(n, int), high=high)
    left, of_plain = (
        b.elements(*_sizes(sets[0], words)) for b, words in ((bounds, how), (whole, bounds.plain))
    )
    scaled = replace(plain, rounds=tuple(x * left / of_plain for x in plain.rounds))
    name, work = f"{bounds.name}, in blocks left", 4.0 * HEADS * left * d
    return row(name, "{}, {}, {}, {}".format(*shape), bench.protocol, ours, scaled, work, error)


def _sizes(tensors: Any, how: dict[str, Any]) -> tuple[int, int]:
    """The rows and the keys of the blocks of a call."""
    config = attention.plan(*tensors, **how).steps[0].constants["config"]
    return config.rows, config.keys
