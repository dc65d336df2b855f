"""One position of linear attention for each of many sequences: the state is read and written once."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens.kernels.arrays import Arrays
from pykittens.kernels.library import entry
from pykittens.kernels.linear.call import check_gates, check_heads
from pykittens.kernels.linear.chunk import LEAST_LOG
from pykittens.kernels.linear.launches import add_scale
from pykittens.kernels.plan import Plan, PlanStep

SIDE = 64  # rows and columns of a state that a block takes at a time


def reference(
    q: Any,
    k: Any,
    v: Any,
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
    if kept.ndim == 3:
        kept = np.repeat(kept, v.shape[1] // kept.shape[1], axis=1)[..., None]
    else:
        kept = np.broadcast_to(kept, v.shape[:2])[..., None, None]
    new = kept * state + k[..., None] * v.astype(np.float64)[..., None, :]
    scale = q.shape[2] ** -0.5 if scale is None else scale
    return scale * np.einsum("bhd,bhdw->bhw", q, new)


@pk.function
def kept_of(decay: Any, b: Any, h: Any, heads: Any, r: Any) -> Any:
    """What is kept of the state of a head, or of each row of part r of it."""
    if len(decay.shape) == 1:
        log = pk.load(decay[h])
    elif len(decay.shape) == 2:
        log = pk.load(decay[b, h])
    else:
        row = decay[b, h // (heads // decay.shape[1]), r]
        log = pk.load(row, cols=SIDE, spread=pk.per_row).to(pk.f32)
    return pk.exp2(pk.maximum(log * pk.log2e, LEAST_LOG))


@pk.kernel(inplace=True)
def state_step(Q, K, V, O, state, following, decay, scale):  # type: ignore[no-untyped-def]
    """O, and the next state, some columns of a head a block."""
    batch, heads, width = V.shape
    shared = heads // Q.shape[1]
    b, h, c = pk.grid(batch, heads, pk.cdiv(width, SIDE))
    v = pk.load(V[b, h, c], cols=SIDE, spread=pk.per_column).to(pk.f32)
    of_channels = decay is not None and len(decay.shape) == 3
    kept = 1.0 if decay is None or of_channels else kept_of(decay, b, h, heads, 0)
    found = pk.zeros(pk.f32, SIDE, spread=pk.per_column)
    for r in range(-(-pk.static(Q.shape[2]) // SIDE)):
        q, k = (
            pk.load(x[b, h // shared, r], cols=SIDE, spread=pk.per_row).to(pk.f32) for x in (Q, K)
        )
        if of_channels:
            kept = kept_of(decay, b, h, heads, r)
        s = pk.load(state[b, h, r, c], rows=SIDE, cols=SIDE) * kept + k * v
        pk.store(following[b, h, r, c], s)
        found = found + pk.col_sum(s * q)
    pk.store(O[b, h, c], (found * scale).to(O.dtype))


CASES = (
    {"batch": 64, "heads": 32, "d": 128, "width": 128},
    {"batch": 256, "heads": 16, "d": 64, "width": 64},
    {"batch": 3, "heads": 2, "d": 24, "width": 72},
)


def inputs(rng: np.random.Generator, batch: int, heads: int, d: int, width: int) -> dict[str, Any]:
    """Random normal q, k and v in bf16, a state in f32, and logarithms of decay from 0 to -0.1."""
    found: dict[str, Any] = {
        name: rng.standard_normal((batch, heads, n)).astype(ml_dtypes.bfloat16)
        for name, n in {"q": d, "k": d, "v": width}.items()
    }
    found["state"] = rng.standard_normal((batch, heads, d, width)).astype(np.float32)
    found["decay"] = (-0.1 * rng.random((batch, heads))).astype(np.float32)
    return found | {"next_state": np.empty_like(found["state"])}


@entry(reference=reference, cases=CASES, inputs=inputs)
def linear_attention_step(
    q: Any,
    k: Any,
    v: Any,
    state: Any,
    decay: Any = None,
    out: Any = None,
    *,
    next_state: Any = None,
    scale: float | None = None,
) -> Plan:
    """One position of linear_attention: S = exp(decay) S + k v^T, and scale S^T q is returned.

    q, k: (batch, groups, d), v: (batch, heads, width), all bf16 or all f16, NumPy or PyTorch; d is at most 256. Head h
    of v goes with group h // (heads / groups). The result (batch, heads, width) has their dtype; it is written to `out`
    if that is given. state: f32 (batch, heads, d, width); it is replaced by the state after the position, which is
    written to `next_state` instead if that is given. decay: f32 (batch, heads) or (heads,), the logarithm of what is
    kept; or that of each channel, as of gated_linear_attention, (batch, gates, d) in f32, bf16 or f16. scale:
    1 / sqrt(d) if None. An ArgumentError for other arguments.

        >>> x, state = np.ones((1, 1, 16), np.float16), np.zeros((1, 1, 16, 16), np.float32)
        >>> [linear_attention_step(x, x, x, state, scale=1.0)[0, 0, 0] for _ in range(3)]
        [np.float16(16.0), np.float16(32.0), np.float16(48.0)]
    """
    given = {"q": q, "k": k, "v": v, "state": state, "decay": decay, "out": out}
    arrays = Arrays("linear_attention_step", **given, next_state=next_state)
    arrays.shapes(q="batch groups d", k="batch groups d", v="batch heads width")
    of_state = "batch heads d width"
    of_decay = "heads|batch heads|batch gates d"
    arrays.shapes(state=of_state, next_state=of_state, decay=of_decay)
    check_heads(arrays)
    if "gates" in arrays.dims:
        check_gates(arrays)
    arrays.result("batch heads width", arrays.found["v"].dtype)
    if not arrays.have_memory:
        return Plan(arrays, [])
    arrays.lines("q", "k", "v", "state", "next_state", "decay", "out")
    add_scale(arrays, scale)
    following = "next_state" if "next_state" in arrays else "state"
    args = ("q", "k", "v", "out", "state", following, *arrays.present("decay"))
    return Plan(arrays, [PlanStep(state_step, (*args, "scale"))])
