"""Causal convolution in float64."""

from __future__ import annotations

from typing import Any

import numpy as np


def reference(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    activation: str = "",
    initial_state: Any = None,
    ends: Any = None,
    channels_first: bool = False,
    return_state: bool = False,
) -> Any:
    """activation(bias + the convolution of each channel of x with the last positions), sequence by sequence."""
    if channels_first:
        x = x.swapaxes(1, 2)
        initial_state = None if initial_state is None else initial_state.swapaxes(1, 2)
    parts = [*x] if ends is None else [x[0, i:j] for i, j in zip(ends, ends[1:], strict=False)]
    outs, states = [], []
    for i, part in enumerate(parts):
        state = None if initial_state is None else initial_state[i]
        out, last = _of_sequence(part, weight, bias, activation, state)
        outs.append(out)
        states.append(last)
    out = np.stack(outs) if ends is None else np.concatenate(outs)[None]
    found = [y.swapaxes(1, 2) if channels_first else y for y in (out, np.stack(states))]
    return tuple(found) if return_state else found[0]


def _of_sequence(x: Any, weight: Any, bias: Any, activation: str, state: Any) -> tuple[Any, Any]:
    """The outputs of a sequence (n, channels), and its last rows."""
    taps, n = weight.shape[1], len(x)
    before = np.zeros((taps - 1, x.shape[1])) if state is None else state.astype(np.float64)
    rows = np.concatenate([before, x.astype(np.float64)])
    y = sum(rows[i : i + n] * weight[:, i].astype(np.float64) for i in range(taps))
    y = y if bias is None else y + bias.astype(np.float64)
    return y / (1 + np.exp(-y)) if activation else y, rows[n:]
