"""Linear attention in float64, one position after another."""

from __future__ import annotations

from typing import Any

import numpy as np


def reference(
    q: Any,
    k: Any,
    v: Any,
    decay: Any = None,
    *,
    scale: float | None = None,
    initial_state: Any = None,
    return_state: bool = False,
) -> Any:
    """S = exp(decay) S + k v^T and o = scale S^T q at each position; decay may be of each channel."""
    v = v.astype(np.float64)
    batch, heads, n, width = v.shape
    shared = heads // q.shape[1]
    q, k = (np.repeat(x.astype(np.float64), shared, axis=1) for x in (q, k))
    d = q.shape[3]
    log = np.zeros(()) if decay is None else np.asarray(decay, np.float64)
    if log.ndim == 4:
        log = np.repeat(log, heads // log.shape[1], axis=1)
    else:
        log = np.broadcast_to(log[None, :, None] if log.ndim == 1 else log, (batch, heads, n))[
            ..., None
        ]
    state = np.zeros((batch, heads, d, width))
    if initial_state is not None:
        state = state + initial_state
    out = np.empty_like(v)
    for i in range(n):
        added = np.einsum("bhd,bhw->bhdw", k[:, :, i], v[:, :, i])
        state = np.exp(log[:, :, i])[..., None] * state + added
        out[:, :, i] = np.einsum("bhd,bhdw->bhw", q[:, :, i], state)
    out *= d**-0.5 if scale is None else scale
    return (out, state) if return_state else out
