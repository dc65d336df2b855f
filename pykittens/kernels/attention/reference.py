"""Attention and its gradients in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykittens.kernels.attention.visible import band


@dataclass(frozen=True)
class Exact:
    """A call in float64: the result, the log-sum-exp of each query, and what the gradients are made of.

    weights: (batch, heads, queries, keys), after the softmax. kept: the factor of each weight.
    """

    out: Any
    lse: Any
    weights: Any
    kept: Any
    scores: Any


def exact(
    q: Any,
    k: Any,
    v: Any,
    *,
    visible: Any = True,
    scale: float | None = None,
    score: Callable[..., Any] | None = None,
    kept: Any = 1.0,
    sinks: Any = None,
) -> Exact:
    """softmax(score(scale q k^T)) v; `visible` and `kept`, the factors of weights: (batch, heads, queries, keys)."""
    wide_q, wide_k, wide_v = heads_repeated(q, k, v)
    s = wide_q @ wide_k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    s = scores = np.where(visible, s if score is None else score(s), -np.inf)
    if sinks is not None:
        sink = np.broadcast_to(np.reshape(sinks, (-1, 1, 1)), (*s.shape[:-1], 1))
        s = np.concatenate([s, sink], axis=-1)
    highest = s.max(axis=-1, keepdims=True, initial=-np.inf)
    e = np.exp(s - np.where(highest == -np.inf, 0, highest))
    total = e.sum(axis=-1, keepdims=True)
    weights = (e / np.where(total == 0, 1, total))[..., : k.shape[2]]
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + np.where(highest == -np.inf, 0, highest))[..., 0]
    return Exact(weights * kept @ wide_v, lse, weights, kept, scores)


def heads_repeated(q: Any, k: Any, v: Any) -> list[Any]:
    """q, k and v in float64; each head of k and v as often as there are query heads for it."""
    group = q.shape[1] // k.shape[1]
    return [
        q.astype(np.float64),
        *(np.repeat(x.astype(np.float64), group, axis=1) for x in (k, v)),
    ]


def visible_of(causal: Any, queries: int, keys: int, window: Any = None) -> Any:
    """Which keys each query sees, (queries, keys)."""
    left, right = window or (None, None)
    shift = keys - queries if causal == "bottom_right" else 0
    interval = band(left, 0 if causal else right, shift)
    i, j = np.ogrid[:queries, :keys]
    low = -queries if interval.low is None else interval.low
    return (j >= i + low) & (j < i + (keys if interval.high is None else interval.high))


def reference(
    q: Any,
    k: Any,
    v: Any,
    causal: bool | str = False,
    *,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
) -> Any:
    """softmax(scale q k^T) v in float64."""
    visible = visible_of(causal, q.shape[2], k.shape[2], window)
    return exact(q, k, v, visible=visible, scale=scale).out


def gradients(
    q: Any, k: Any, v: Any, gradient: Any, found: Exact, **how: Any
) -> tuple[Any, Any, Any]:
    """The gradients of q, k and v in float64. how: `scale`, and `slope`, the derivative of `score` at the scores."""
    wide_q, wide_k, wide_v = heads_repeated(q, k, v)
    wide = gradient.astype(np.float64)
    scale = how.get("scale") or q.shape[-1] ** -0.5
    weights = found.weights * found.kept
    dv = weights.swapaxes(-1, -2) @ wide
    delta = (wide * found.out).sum(axis=-1, keepdims=True)
    ds = found.weights * (wide @ wide_v.swapaxes(-1, -2) * found.kept - delta) * scale
    ds = ds * how.get("slope", 1.0)
    dq, dk = ds @ wide_k, ds.swapaxes(-1, -2) @ wide_q
    groups = (*k.shape[:2], q.shape[1] // k.shape[1])
    return dq, *(x.reshape(*groups, *x.shape[2:]).sum(axis=2) for x in (dk, dv))
