"""One position of the delta rule for each of many sequences: the state is read and written once."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.kernels.arrays import Arrays
from pykittens.kernels.delta.call import check_rate
from pykittens.kernels.delta.function import of_length_1
from pykittens.kernels.library import entry
from pykittens.kernels.linear.call import check_heads
from pykittens.kernels.linear.launches import add_scale
from pykittens.kernels.linear.step import CASES, plan_of
from pykittens.kernels.linear.step import inputs as of_attention
from pykittens.kernels.plan import Plan


def reference(
    q: Any,
    k: Any,
    v: Any,
    beta: Any,
    state: Any,
    decay: Any = None,
    *,
    next_state: Any = None,
    scale: float | None = None,
) -> Any:
    """The same in float64."""
    shared = v.shape[1] // q.shape[1]
    q, k = (np.repeat(x.astype(np.float64), shared, axis=1) for x in (q, k))
    kept = np.ones(v.shape[:2]) if decay is None else np.exp(decay.astype(np.float64))
    old = np.broadcast_to(kept, v.shape[:2])[..., None, None] * state
    known = np.einsum("bhd,bhdw->bhw", k, old)
    added = beta.astype(np.float64)[..., None] * (v.astype(np.float64) - known)
    new = old + k[..., None] * added[..., None, :]
    scale = q.shape[2] ** -0.5 if scale is None else scale
    return scale * np.einsum("bhd,bhdw->bhw", q, new)


def inputs(rng: np.random.Generator, **case: Any) -> dict[str, Any]:
    """Those of linear_attention_step, with keys of length 1, and beta from 0 to 1."""
    found = of_attention(rng, **case)
    found["k"] = of_length_1(found["k"])
    return found | {"beta": rng.random(found["v"].shape[:2]).astype(np.float32)}


@entry(reference=reference, cases=CASES, inputs=inputs)
def gated_delta_rule_step(
    q: Any,
    k: Any,
    v: Any,
    beta: Any,
    state: Any,
    decay: Any = None,
    out: Any = None,
    *,
    next_state: Any = None,
    scale: float | None = None,
) -> Plan:
    """One position of gated_delta_rule: S = a S + beta k (v - a S^T k)^T with a = exp(decay); scale S^T q is returned.

    q, k: (batch, groups, d), v: (batch, heads, width), all bf16 or all f16, NumPy or PyTorch; d is at most 256. Head h
    of v goes with group h // (heads / groups). The result (batch, heads, width) has their dtype; it is written to `out`
    if that is given. beta: f32 or the dtype of v, (batch, heads). state: f32 (batch, heads, d, width); it is replaced
    by the state after the position, which is written to `next_state` instead if that is given. decay: f32 (batch,
    heads) or (heads,), the logarithm of what is kept. scale: 1 / sqrt(d) if None. An ArgumentError for other arguments.

        >>> x, state = np.ones((1, 1, 16), np.float16), np.zeros((1, 1, 16, 16), np.float32)
        >>> beta = np.full((1, 1), 1 / 32, np.float32)
        >>> [float(gated_delta_rule_step(x, x, x, beta, state, scale=1.0)[0, 0, 0]) for _ in range(3)]
        [0.5, 0.75, 0.875]
    """
    given = {"q": q, "k": k, "v": v, "beta": beta, "state": state, "decay": decay, "out": out}
    arrays = Arrays("gated_delta_rule_step", **given, next_state=next_state)
    arrays.shapes(q="batch groups d", k="batch groups d", v="batch heads width")
    of_state = "batch heads d width"
    arrays.shapes(state=of_state, next_state=of_state, decay="heads|batch heads")
    arrays.shapes(beta="batch heads")
    check_heads(arrays)
    check_rate(arrays)
    arrays.result("batch heads width", arrays.found["v"].dtype)
    if not arrays.have_memory:
        return Plan(arrays, [])
    arrays.lines(*arrays.found)
    add_scale(arrays, scale)
    return plan_of(arrays)
