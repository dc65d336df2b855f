"""How evenly persistent blocks share the tasks of attention, which differ in length; and what is chosen for that.

Heads are taken in sections whose tensors fit the L2 cache, and in a section the longest tasks come first. How evenly
that fills the blocks depends on the numbers of both, and is counted for each call.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from pykittens.kernels.attention.config import AttentionConfig
from pykittens.kernels.attention.visible import Interval
from pykittens.kernels.limits import Limits

FIXED = 0.7  # what a task takes beyond its steps, in steps
COUNTED = 2**15  # tasks; more than that fill any GPU evenly


def steps_of(seen: Interval, size: int, count: int, other_size: int, others: int) -> np.ndarray:
    """How many blocks of the other side, at least 1, each block of this side sees, whose bounds are numbers or None."""
    start = np.arange(0, count, size)
    end = np.minimum(start + size, count) - 1
    low = np.zeros_like(start) if seen.low is None else np.maximum(start + seen.low, 0)
    high = np.full_like(end, others) if seen.high is None else np.minimum(end + seen.high, others)
    found: np.ndarray = np.maximum(-(-high // other_size) - low // other_size, 1)
    return found


def fullest(costs: np.ndarray, heads: int, section: int, blocks: int) -> float:
    """The cost of the block with most work in the order pk.longest_first(section). costs: of each head's tasks."""
    sections, rest = divmod(heads, section)
    order = [np.tile(np.repeat(costs, section), sections), np.repeat(costs, rest)]
    rounds: np.ndarray = np.zeros((-(-heads * len(costs) // blocks), blocks))
    rounds.flat[: heads * len(costs)] = np.concatenate(order)
    rounds[1::2] = rounds[1::2, ::-1].copy()
    return float(rounds.sum(axis=0).max())


def section_of(costs: np.ndarray, heads: int, head_bytes: int, limits: Limits) -> tuple[float, int]:
    """The cost of the fullest block, and the heads of a section, whose tensors take half of the L2 cache at most."""
    most = max(1, min(heads, limits.l2_bytes // 2 // max(head_bytes, 1)))
    if heads * len(costs) > COUNTED:
        return float(costs.sum()) * heads / limits.multiprocessors, most
    differ = (costs != costs[:1]).any()  # else every section is as good as the least
    sections = {max(1, most * i // 8) for i in range(1, 9 if differ else 2)}
    return min((fullest(costs, heads, s, limits.multiprocessors), s) for s in sections)


@functools.lru_cache(maxsize=4096)
def chosen(
    configs: Sequence[AttentionConfig],
    heads: int,
    queries: int,
    keys: int,
    head_bytes: int,
    seen: Interval,
    limits: Limits,
) -> tuple[AttentionConfig, int]:
    """The configuration and the section that end first; of equal ones, the first. Bounds in tensors count as none."""
    best: dict[float, tuple[AttentionConfig, int]] = {}
    for config in configs:
        steps = steps_of(seen, config.rows, queries, config.keys, keys)
        costs = (steps[::-1] + FIXED) * config.rows * config.keys / config.rate
        cost, section = section_of(costs, heads, head_bytes, limits)
        best.setdefault(cost, (config, section))
    return best[min(best)]
