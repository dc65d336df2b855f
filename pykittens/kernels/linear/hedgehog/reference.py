"""Hedgehog attention in float64, by all pairs of positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.kernels.linear.reference import by_sequences

CHUNK = 64  # positions, of which the softmax has one's own and the one before


def features(x: Any, matrix: Any) -> Any:
    """softmax(x matrix) and softmax(-x matrix), side by side."""
    y = np.einsum("bhid,hdf->bhif", x, matrix)
    found = []
    for z in (y, -y):
        z = np.exp(z - z.max(axis=-1, keepdims=True))
        found.append(z / z.sum(axis=-1, keepdims=True))
    return np.concatenate(found, axis=-1)


def reference(
    q: Any,
    k: Any,
    v: Any,
    query_map: Any,
    key_map: Any,
    *,
    factors: Any = None,
    scale: float | None = None,
    initial_state: Any = None,
    ends: Any = None,
    return_state: bool = False,
) -> Any:
    """A softmax of a chunk and the one before, and linear attention of earlier ones, with one sum of weights."""
    if ends is not None:
        words = {"query_map": query_map, "key_map": key_map, "scale": scale, "factors": factors}
        of_positions = {"q": q, "k": k, "v": v}
        how = words | {"initial_state": initial_state}
        return by_sequences(reference, ends, of_positions, return_state, **how)
    q, k, v, query_map, key_map = (x.astype(np.float64) for x in (q, k, v, query_map, key_map))
    n, heads = q.shape[2], q.shape[1]
    a, b = np.ones((2, heads)) if factors is None else factors.astype(np.float64)
    a, b = (x[None, :, None, None] for x in (a, b))
    scale = q.shape[3] ** -0.5 if scale is None else scale
    of_q, of_k = features(q, query_map), features(k, key_map)
    i, j = np.arange(n)[:, None], np.arange(n)[None, :]
    is_near = (j <= i) & (j // CHUNK >= i // CHUNK - 1)
    s = np.where(is_near, scale * np.einsum("bhid,bhjd->bhij", q, k), -np.inf)
    weights = a * np.exp(s - s.max(axis=-1, keepdims=True))
    weights = weights + b * np.einsum("bhif,bhjf->bhij", of_q, of_k) * (j // CHUNK < i // CHUNK - 1)
    values = np.concatenate([v, np.ones((*v.shape[:3], 1))], axis=3)
    out = weights @ values
    older = max(n // CHUNK - 1, 0) * CHUNK  # positions that position n sees by the state
    state = of_k[:, :, :older].swapaxes(2, 3) @ values[:, :, :older]
    if initial_state is not None:
        out, state = out + b * (of_q @ initial_state), state + initial_state
    out = out[..., :-1] / out[..., -1:]
    return (out, state) if return_state else out
