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
    ends: Any = None,
    return_state: bool = False,
) -> Any:
    """S = exp(decay) S + k v^T and o = scale S^T q at each position; decay may be of each channel."""
    if ends is not None:
        of_positions = {"q": q, "k": k, "v": v, "decay": decay}
        words = {"initial_state": initial_state, "scale": scale}
        return by_sequences(reference, ends, of_positions, return_state, **words)
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


def by_sequences(
    of_one: Any,
    ends: Any,
    of_positions: dict[str, Any],
    return_state: bool,
    initial_state: Any = None,
    **words: Any,
) -> Any:
    """What a function finds for each packed sequence, put together.

    of_positions: arrays of (batch, heads, n, ...), and others that are of no position; initial_state: that of each
    sequence.
    """
    outs, states = [], []
    for i, (first, stop) in enumerate(zip(ends, ends[1:], strict=False)):
        own = {
            name: x[:, :, first:stop] if x is not None and x.ndim > 1 else x
            for name, x in of_positions.items()
        }
        before = None if initial_state is None else initial_state[i : i + 1]
        out, state = of_one(**own, **words, initial_state=before, return_state=True)
        outs.append(out)
        states.append(state)
    out = np.concatenate(outs, axis=2)
    return (out, np.concatenate(states)) if return_state else out
