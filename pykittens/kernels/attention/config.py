"""How the work of attention is cut: for each target and width of the heads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

from pykittens.kernels.attention.visible import Interval
from pykittens.kernels.limits import Limits, first_that_fits


@dataclass(frozen=True)
class AttentionConfig:
    """The work of a block.

    rows: queries, shared by `consumers` warpgroups. keys: keys and values of a stage, `stages` of which are in flight.
    out_cols: the most columns of the output's stage. widest: the largest width of values that registers allow.
    warpgroups: for targets whose warpgroups multiply together, else for those whose warps multiply alone. q_stages:
    blocks of queries that are loaded at a time. turns: warpgroups issue their products one after another, so that one
    multiplies while another normalises. rate: products in a time, in units of the first configuration of a width.
    """

    rows: int
    keys: int
    stages: int
    consumers: int
    out_cols: int
    widest: int
    warpgroups: bool
    q_stages: int = 1
    turns: bool = False
    rate: float = 1.0

    def columns_at_once(self, width: int) -> int:
        """Columns of the output's stage: the width of values, or a divisor of it."""
        return width if width <= self.out_cols else gcd(width, self.out_cols)

    def shared_bytes(self, d: int, width: int | None = None) -> int:
        """Bytes of shared memory of a block, for heads of d and values of `width` elements.

        Queries, keys, values, output, two barriers per stage, and for turns one per warpgroup.
        """
        width = d if width is None else width
        queries, output = 2 * self.rows * d, 2 * self.rows * self.columns_at_once(width)
        stage = _stage(self.keys * d) + _stage(self.keys * width)
        count = self.q_stages + 2 * self.stages + 1 + (self.consumers if self.turns else 0)
        return self.q_stages * queries + output + self.stages * stage + 16 * count


# For each width, the first that is wide enough and fits is used, or another for the same width. A lane keeps its
# elements of s, p and o in registers. If warpgroups cannot trade registers, a lane of ten warps has 168, so that
# d > 64 needs fewer keys at a time, and d > 128 a single warpgroup.
HOPPER: dict[str, Any] = {"warpgroups": True, "q_stages": 2}
CONFIGS = (
    # sm_90a: 227 KiB.
    AttentionConfig(192, 128, 2, 3, out_cols=64, widest=64, **HOPPER, turns=True),
    AttentionConfig(128, 128, 2, 2, out_cols=64, widest=64, **HOPPER, turns=True, rate=0.82),
    AttentionConfig(128, 128, 2, 2, out_cols=128, widest=128, **HOPPER),
    AttentionConfig(128, 128, stages=2, consumers=2, out_cols=64, widest=128, warpgroups=True),
    AttentionConfig(128, 64, stages=2, consumers=2, out_cols=64, widest=256, warpgroups=True),
    # sm_80, and newer GPUs without an own target: 163 KiB. The first fits sm_89, too.
    AttentionConfig(128, 64, stages=3, consumers=2, out_cols=64, widest=64, warpgroups=False),
    AttentionConfig(128, 48, stages=3, consumers=2, out_cols=64, widest=128, warpgroups=False),
    AttentionConfig(64, 48, stages=2, consumers=1, out_cols=64, widest=256, warpgroups=False),
    # sm_89 and sm_86: 99 KiB.
    AttentionConfig(128, 48, stages=2, consumers=2, out_cols=64, widest=128, warpgroups=False),
    AttentionConfig(64, 32, stages=2, consumers=1, out_cols=16, widest=256, warpgroups=False),
)


@functools.cache
def configs_for(d: int, width: int, limits: Limits) -> tuple[AttentionConfig, ...]:
    """The configurations for heads of d elements and values of `width` on a GPU of these limits."""
    able = [c for c in CONFIGS if c.warpgroups == limits.warpgroups and width <= c.widest]
    first = first_that_fits("attention", able, lambda c: c.shared_bytes(d, width), limits)
    room = limits.shared_bytes
    return tuple(c for c in able if c.widest == first.widest and c.shared_bytes(d, width) <= room)


def splits_for(
    heads: int, dims: Mapping[str, Any], config: AttentionConfig, multiprocessors: int
) -> int:
    """How many blocks share the keys of some queries: as there are multiprocessors for, with two steps or more."""
    tasks = heads * -(-dims["queries"] // config.rows)
    steps = -(-dims["keys"] // config.keys)
    shared: int = max(1, min(multiprocessors // max(tasks, 1), steps // 2))
    return shared


def _stage(elements: int) -> int:
    return -(-2 * elements // 1024) * 1024  # stages start at multiples of 1024


@dataclass(frozen=True)
class GradientConfig:
    """The work of a block of the backward pass.

    keys: keys and values, of which each of `consumers` warpgroups has its part, or, if `by_columns`, all keys and a
    part of the columns of their gradients. queries: a step's, `stages` of which are in flight. ds_stages: tiles of
    gradients of scores. turned: the transpose of dQ is computed, for queries that are no multiple of 64. widest: the
    largest width that registers allow. copy_registers: of a thread that copies, if not the usual number.
    """

    queries: int
    keys: int
    consumers: int
    stages: int
    ds_stages: int
    widest: int
    warpgroups: bool
    by_columns: bool = False
    turned: bool = False
    copy_registers: int | None = None

    @property
    def share(self) -> int:
        """Warpgroups that have all keys and a part of the columns each."""
        return self.consumers if self.by_columns else 1

    def widths(self, d: int, width: int) -> tuple[int, int]:
        """Columns of the tiles of keys and values. A tile that warpgroups share has a power of two, 16 for each."""
        least = 64 if self.turned else 16
        shared = max(least * self.consumers, 1 << (d - 1).bit_length())
        of_values = max(16 * self.consumers, 1 << (width - 1).bit_length())
        return shared, of_values if self.by_columns else width

    def dq_cols(self, d: int) -> int:
        """Columns of dQ that a warpgroup computes at a time, for registers; d: those of the tile of keys."""
        return min(d // self.consumers, 64)

    def piece(self, d: int, width: int) -> int:
        """Columns of a warpgroup's part of the stage of results."""
        return gcd(64, *(x // self.share for x in self.widths(d, width)))

    def shared_bytes(self, d: int, width: int) -> int:
        """Bytes of shared memory of a block: the stages of six rings, and two barriers for each."""
        (d, width), queries, keys = self.widths(d, width), self.queries, self.keys
        step = sum(map(_stage, (queries * d, queries * width, 2 * queries, 2 * queries)))
        results = 4 * queries * d + 2 * keys * self.piece(d, width) * self.share
        stages = 128 * TURNS + self.stages * step + self.ds_stages * 2 * keys * queries * self.share
        count = 3 + TURNS + self.stages + self.ds_stages
        return _stage(keys * d) + _stage(keys * width) + stages + results + 16 * count


TURNS = 2  # so many steps ahead the backward pass waits for its turn to add to dQ
GRADIENT_CONFIGS = (
    # sm_90a.
    GradientConfig(
        128, 128, 2, stages=2, ds_stages=2, widest=64, warpgroups=True, copy_registers=24
    ),
    GradientConfig(64, 128, 2, stages=2, ds_stages=2, widest=128, warpgroups=True),
    GradientConfig(64, 64, 2, stages=1, ds_stages=1, widest=256, warpgroups=True, by_columns=True),
    # sm_80, and newer GPUs without an own target.
    GradientConfig(32, 64, 1, stages=2, ds_stages=2, widest=128, warpgroups=False, turned=True),
    # sm_89 and sm_86.
    GradientConfig(32, 64, 1, stages=1, ds_stages=1, widest=128, warpgroups=False, turned=True),
)


@functools.cache
def gradient_config_for(d: int, width: int, limits: Limits) -> GradientConfig:
    """The configuration of the backward pass for heads of d elements and values of `width`."""
    able = [
        c
        for c in GRADIENT_CONFIGS
        if c.warpgroups == limits.warpgroups and max(c.widths(d, width)) <= c.widest
    ]
    return first_that_fits("attention_backward", able, lambda c: c.shared_bytes(d, width), limits)


@dataclass(frozen=True)
class AttentionForm:
    """What a kernel of attention computes: a compile-time constant.

    names: the operands that follow the tensors, in their order; further ones are for `score`. group: query heads that
    share a head of keys and values. score: a function (s, place, *tensors) of scaled scores; gradient: another, its
    derivative by s. packed: the rows of a tile that each head of a group has, or 0 if a tile has queries of one head.
    """

    names: tuple[str, ...] = ()
    group: int = 1
    score: Callable[..., Any] | None = None
    gradient: Callable[..., Any] | None = None
    packed: int = 0

    def bind(self, operands: tuple[Any, ...]) -> Operands:
        """The operands by name."""
        return Operands(self.names, operands)


class Operands:
    """The operands of a launch; those that are absent are None."""

    def __init__(self, names: tuple[str, ...], operands: tuple[Any, ...]) -> None:
        find = dict(zip(names, operands, strict=False)).get
        self.lse, self.scale, self.sinks = find("lse"), find("scale"), find("sinks")
        self.gain, self.rate, self.seed = find("gain"), find("dropout"), find("seed")
        # Bounds are numbers or tensors.
        self.visible = Interval(find("key_start", find("low")), find("key_stop", find("high")))
        self.section, self.tickets, self.flags = (find(x) for x in ("section", "tickets", "flags"))
        self.splits, self.arrivals = find("splits"), find("arrivals")
        self.partial, self.partial_lse = find("partial"), find("partial_lse")
        self.tensors = operands[len(names) :]
        self._of_keys = Interval(find("query_start"), find("query_stop"))

    @property
    def queries(self) -> Interval:
        """The queries that see a key."""
        return self.visible.turned() if self._of_keys == (None, None) else self._of_keys
