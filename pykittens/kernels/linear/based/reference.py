"""Based linear attention in float64, by all pairs of positions, and its state by features."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.kernels.linear.reference import by_sequences


def features(x: Any) -> Any:
    """All pairs of elements, elements and 1, in the order of a state's rows, without the factors of queries."""
    d = x.shape[-1]
    r = np.arange(d * (d + 1) // 2)
    pairs = x[..., r % d] * x[..., (r % d + r // d) % d]
    return np.concatenate([pairs, x, np.ones((*x.shape[:-1], 1))], axis=-1)


def factors(d: int, scale: float) -> Any:
    """The factors of the features of queries."""
    of_pairs = np.full(d * (d + 1) // 2, scale**2)
    of_pairs[:d] /= 2
    return np.concatenate([of_pairs, np.full(d, scale), np.ones(1)])


def reference(
    q: Any,
    k: Any,
    v: Any,
    *,
    scale: float | None = None,
    normalize: bool = False,
    eps: float = 1e-6,
    initial_state: Any = None,
    ends: Any = None,
    return_state: bool = False,
) -> Any:
    """The sum of (1 + s + s^2 / 2) v over all positions up to each, divided by that of the weights with `normalize`."""
    if ends is not None:
        words = {"scale": scale, "normalize": normalize, "eps": eps}
        of_positions = {"q": q, "k": k, "v": v}
        how = words | {"initial_state": initial_state}
        return by_sequences(reference, ends, of_positions, return_state, **how)
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    n, d = q.shape[2:]
    scale = d**-0.5 if scale is None else scale
    values = np.concatenate([v, np.ones((*v.shape[:3], 1))], axis=3) if normalize else v
    s = scale * np.einsum("bhid,bhjd->bhij", q, k)
    out = np.tril(1 + s + s * s / 2) @ values
    state = features(k).swapaxes(2, 3) @ values
    if initial_state is not None:
        out = out + (features(q) * factors(d, scale)) @ initial_state
        state = state + initial_state
    if normalize:
        out = out[..., :-1] / (out[..., -1:] + eps)
    return (out, state) if return_state else out
