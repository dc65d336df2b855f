"""How evenly persistent blocks share the tasks of attention, which differ in length; and what is chosen for that.

Heads are taken in sections, and in a section the longest tasks come first. How evenly that fills the blocks depends on
the numbers of both, and is counted for each call; the fewer heads a section has, the more its tensors stay in caches.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from pykittens.kernels.attention.config import AttentionConfig
from pykittens.kernels.attention.visible import Interval
from pykittens.kernels.limits import Limits

FIXED = 0.7  # what a task takes beyond its steps, in steps
MASKED = 0.2  # what a step takes longer if bounds of the keys cut its tile: of 433 instructions, 110 to 130 more
# Heads of a section if bounds are in tensors. The fullest block of random documents has 1.03 to 1.31 of the mean work
# with all of 16 to 64 heads, and 1.08 to 1.69 with one head at a time (docs/tuning/attention-library.md).
UNKNOWN = 64
COUNTED = 2**15  # tasks; more than that fill any GPU evenly


def steps_of(seen: Interval, size: int, count: int, other_size: int, others: int) -> np.ndarray:
    """How many blocks of the other side, at least 1, each block of this side sees, whose bounds are numbers or None."""
    start = np.arange(0, count, size)
    end = np.minimum(start + size, count) - 1
    low = np.zeros_like(start) if seen.low is None else np.maximum(start + seen.low, 0)
    high = np.full_like(end, others) if seen.high is None else np.minimum(end + seen.high, others)
    found: np.ndarray = np.maximum(-(-high // other_size) - low // other_size, 1)
    return found


def masked_of(seen: Interval, size: int, count: int, other_size: int, others: int) -> np.ndarray:
    """How many of these blocks are cut by bounds, so that some positions of this side do not see all of them."""
    start = np.arange(0, count, size)
    end = np.minimum(start + size, count) - 1
    cut = np.zeros_like(start)
    if seen.high is not None:
        stop, partial = (np.clip(x + seen.high, 0, others) for x in (end, start))
        cut = cut - (-stop // other_size) - partial // other_size
    if seen.low is not None:
        first, whole = (np.clip(x + seen.low, 0, others) for x in (start, end))
        cut = cut - (-whole // other_size) - first // other_size
    found: np.ndarray = np.minimum(cut, steps_of(seen, size, count, other_size, others))
    return found


def fullest(costs: np.ndarray, heads: int, section: int, blocks: int) -> float:
    """The cost of the block with most work in the order pk.longest_first(section). costs: of each head's tasks."""
    sections, rest = divmod(heads, section)
    order = [np.tile(np.repeat(costs, section), sections), np.repeat(costs, rest)]
    rounds: np.ndarray = np.zeros((-(-heads * len(costs) // blocks), blocks))
    rounds.flat[: heads * len(costs)] = np.concatenate(order)
    rounds[1::2] = rounds[1::2, ::-1].copy()
    return float(rounds.sum(axis=0).max())


def section_of(
    costs: np.ndarray, heads: int, head_bytes: int, limits: Limits, ordered: bool = False
) -> tuple[float, int]:
    """The cost of the fullest block, and the heads of a section. ordered: the tasks of a head wait for one another.

    Measured on an H200 (docs/tuning/attention-library.md): each doubling of a section's tensors beyond the L2 cache
    costs about 4%, and more if few tasks of a head run at a time, which share what they read from memory. Tasks in
    order wait 15% longer if those of a section take from half a round to five, and the more of a head run at a time,
    the longer they wait to add to the same tile.
    """
    blocks, caches = limits.multiprocessors, head_bytes / limits.l2_bytes
    least = max(1, min(heads, int(1 / caches) // 16))
    if heads * len(costs) > COUNTED:
        return float(costs.sum()) * heads / blocks, least
    if not (costs != costs[:1]).any():
        return fullest(costs, heads, least, blocks), least
    sections = {heads, *(x << i for x in (1, 3) for i in range(10))}
    found = []
    for section in sections | {blocks // i for i in range(1, 7)}:
        missing = max(1 - 1 / (section * caches), 0)
        lost = 0.04 * math.log2(1 + section * caches) + 0.25 * missing * section / blocks
        if ordered:
            beside = min(len(costs), blocks / section)  # tasks of a head that run at a time
            lost += 0.08 * beside / costs.mean() + 0.15 * (0.4 < section * len(costs) / blocks < 5)
        if section <= heads:
            found.append((fullest(costs, heads, section, blocks) * (1 + lost), section))
    return min(found)


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
        masked = masked_of(seen, config.rows, queries, config.keys, keys)
        costs = (steps + MASKED * masked + FIXED)[::-1] * config.rows * config.keys / config.rate
        cost, section = section_of(costs, heads, head_bytes, limits)
        best.setdefault(cost, (config, section))
    return best[min(best)]
