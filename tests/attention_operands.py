"""What the kernels of attention take, as the host functions pass it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from pykittens.kernels.attention.config import AttentionConfig, AttentionForm, GradientConfig
from pykittens.kernels.attention.packed import part_of


def operands(causal: bool, high: int = 1) -> tuple[tuple[Any, ...], AttentionForm]:
    """The operands that follow the tensors of the forward kernel, and its form; causal: keys up to i + high."""
    return ((high, 16), AttentionForm(("high", "section"))) if causal else ((), AttentionForm())


def bounded_operands(
    config: AttentionConfig, shape: tuple[int, ...]
) -> tuple[tuple[Any, ...], AttentionForm]:
    """The operands with bounds of the keys in tensors, and the form."""
    bounds = np.zeros((shape[0], shape[2]), np.int32)
    given = {"key_start": bounds, "key_stop": bounds, "section": 16}
    if config.warpgroups:
        given["tickets"] = np.zeros(1, np.int32)
    return tuple(given.values()), AttentionForm(tuple(given))


def split_operands(rows: int, shape: tuple[int, ...]) -> tuple[tuple[Any, ...], AttentionForm]:
    """The operands if blocks share keys, where a group of warps has this many rows, and the form."""
    batch, heads, n, width = shape
    given = {
        "lse": np.zeros((batch, heads, n), np.float32),
        "high": 1,
        "splits": 3,
        "arrivals": np.zeros((batch, heads, -(-n // rows)), np.int32),
        "partial": np.zeros((3, batch, heads, n, width), np.float32),
        "partial_lse": np.zeros((3, batch, heads, n), np.float32),
    }
    return tuple(given.values()), AttentionForm(tuple(given))


def packed_operands(
    config: AttentionConfig, group: int, shape: tuple[int, ...], split: bool
) -> tuple[tuple[Any, ...], AttentionForm]:
    """All operands of the forward kernel for 5 queries of grouped heads, of zeros, and its form.

    shape: that of keys. `packed` of the form is 0 if the queries of a group do not fit a tile.
    """
    batch, kv_heads, _, d = shape
    q, out = (np.zeros((batch, kv_heads * group, 5, d), ml_dtypes.bfloat16) for _ in range(2))
    k, v = (np.zeros(shape, ml_dtypes.bfloat16) for _ in range(2))
    own = config.rows // config.consumers
    more, form = split_operands(own, (batch, kv_heads, 5 * group, d))
    given = dict(zip(form.names, more, strict=True))
    given["arrivals"] = np.zeros((batch, kv_heads, config.consumers), np.int32)
    if not split:
        given = {name: given[name] for name in ("lse", "high")}
    size = part_of(config.rows, own, group)
    return (q, k, v, out, *given.values()), AttentionForm(tuple(given), group, packed=size)


def gradient_operands(
    config: GradientConfig, shape: tuple[int, ...], causal: bool, ordered: bool
) -> tuple[tuple[Any, ...], AttentionForm]:
    """All operands of the backward kernel, of zeros, and its form; `ordered` with flags."""
    batch, heads, n, d = shape
    steps = -(-n // config.queries)
    rows = np.zeros((batch, heads, steps * config.queries), np.float32)
    q, k, v, gradient, dk, dv = (np.zeros(shape, ml_dtypes.bfloat16) for _ in range(6))
    sums = np.zeros((batch * heads, rows.shape[2] * config.widths(d, d)[0]), np.float32)
    flags = np.zeros((batch, heads, steps), np.int32)
    more = ("high", "section") * causal + ("flags",) * ordered
    given = {"high": 1, "section": 16, "flags": flags}
    args = (q, k, v, gradient, rows, rows.copy(), sums, dk, dv, *(given[x] for x in more))
    return args, AttentionForm(more)
