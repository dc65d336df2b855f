"""The gated delta rule in float64, one position after another."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.kernels.linear.reference import by_sequences


def reference(
    q: Any,
    k: Any,
    v: Any,
    beta: Any,
    decay: Any = None,
    *,
    scale: float | None = None,
    initial_state: Any = None,
    ends: Any = None,
    return_state: bool = False,
) -> Any:
    """S = a S + beta k (v - a S^T k)^T with a = exp(decay), and o = scale S^T q at each position."""
    if ends is not None:
        of_positions = {"q": q, "k": k, "v": v, "beta": beta, "decay": decay}
        words = {"initial_state": initial_state, "scale": scale}
        return by_sequences(reference, ends, of_positions, return_state, **words)
    v, beta = (x.astype(np.float64) for x in (v, beta))
    batch, heads, n, width = v.shape
    shared = heads // q.shape[1]
    q, k = (np.repeat(x.astype(np.float64), shared, axis=1) for x in (q, k))
    d = q.shape[3]
    log = np.zeros(()) if decay is None else np.asarray(decay, np.float64)
    log = np.broadcast_to(log[None, :, None] if log.ndim == 1 else log, (batch, heads, n))
    state = np.zeros((batch, heads, d, width))
    if initial_state is not None:
        state = state + initial_state
    out = np.empty_like(v)
    for i in range(n):
        state = np.exp(log[:, :, i])[..., None, None] * state
        known = np.einsum("bhd,bhdw->bhw", k[:, :, i], state)
        added = beta[:, :, i, None] * (v[:, :, i] - known)
        state = state + k[:, :, i, :, None] * added[:, :, None]
        out[:, :, i] = np.einsum("bhd,bhdw->bhw", q[:, :, i], state)
    out *= d**-0.5 if scale is None else scale
    return (out, state) if return_state else out
