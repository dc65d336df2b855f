"""The host function of the gated delta rule, and its cases."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.kernels.arrays import Arrays
from pykittens.kernels.delta.call import DeltaPasses, check_shapes
from pykittens.kernels.delta.config import DeltaConfig
from pykittens.kernels.delta.reference import reference
from pykittens.kernels.library import entry
from pykittens.kernels.linear.call import checked, make_outputs
from pykittens.kernels.linear.function import inputs as of_attention
from pykittens.kernels.plan import Plan

CASES = (
    {"batch": 8, "heads": 16, "length": 4096, "d": 128, "width": 128, "decay": "position"},
    {"batch": 1, "heads": 16, "length": 8192, "d": 128, "width": 128, "decay": "position"},
    {"batch": 1, "heads": 32, "length": 8192, "d": 64, "width": 64, "decay": "none"},
    {"batch": 1, "heads": 2, "length": 100, "d": 16, "width": 24, "decay": "position"},
    {"batch": 1, "heads": 1, "length": 65, "d": 32, "width": 32, "decay": "none"},
    {"batch": 1, "heads": 1, "length": 17, "d": 48, "width": 80, "decay": "head"},
)


def inputs(rng: np.random.Generator, **case: Any) -> dict[str, Any]:
    """Those of linear_attention, with keys of length 1, and beta from 0 to 1."""
    found = of_attention(rng, **case)
    found["k"] = of_length_1(found["k"])
    return found | {"beta": rng.random(found["v"].shape[:3]).astype(np.float32)}


def of_length_1(keys: Any) -> Any:
    """Keys divided by their lengths."""
    exact = keys.astype(np.float64)
    return (exact / np.linalg.norm(exact, axis=-1, keepdims=True)).astype(keys.dtype)


@entry(reference=reference, cases=CASES, inputs=inputs)
def gated_delta_rule(
    q: Any,
    k: Any,
    v: Any,
    beta: Any,
    decay: Any = None,
    out: Any = None,
    *,
    scale: float | None = None,
    initial_state: Any = None,
    ends: Any = None,
    return_state: bool = False,
    segments: int | None = None,
    config: DeltaConfig | None = None,
) -> Plan:
    """scale S^T q at each position, with S = a S + beta k (v - a S^T k)^T and a = exp(decay).

    What a state has for a key is replaced by a value, to the part of beta. q, k: (batch, groups, n, d), v: (batch,
    heads, n, width), all bf16 or all f16, NumPy or PyTorch, in any strides; d is at most 256. Head h of v goes with
    group h // (heads / groups). The result (batch, heads, n, width) has their dtype; it is written to `out` if that is
    given. beta: f32 or the dtype of v, (batch, heads, n). decay: the logarithm of what is kept of the state at each
    position, f32 (batch, heads, n), or that of each head, (heads,); at most 0. Without it all is kept. This is DeltaNet
    without decay, and Gated DeltaNet with one of each position. The recurrence is stable if beta times the square of
    the length of k is at most 2; models take keys of length 1, which is left to the caller.

    scale: 1 / sqrt(d) if None. initial_state: f32 (batch, heads, d, width), 0 if None. With return_state the result is
    (out, state), f32, the state after the last position. States are summed in f32, and rounded to the dtype where q and
    k meet them. ends: int32 (sequences + 1,), where packed sequences start and where the last one ends, as of
    linear_attention; states are those of each sequence.

    segments: parts of the sequence that have blocks of their own; the states before these are found first, from k and
    v. If None, it is chosen so that few heads keep the GPU busy. config: how the work of a block is cut. An
    ArgumentError for other arguments.

        >>> x, beta = np.ones((1, 1, 3, 16), np.float16), np.full((1, 1, 3), 1 / 16, np.float32)
        >>> gated_delta_rule(x, x, x, beta, scale=1.0)[0, 0, :, 0]
        array([1., 1., 1.], dtype=float16)
    """
    given = {"q": q, "k": k, "v": v, "beta": beta, "decay": decay, "out": out}
    arrays = Arrays("gated_delta_rule", **given, initial_state=initial_state, ends=ends)
    check_shapes(arrays)
    parts = checked(arrays, segments)
    result = make_outputs(arrays, return_state)
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    arrays.lines(*arrays.found)
    passes = DeltaPasses(arrays, scale, parts, config)
    (before,) = arrays.present("initial_state")
    passes.add_outputs(before, "state" if return_state else None)
    return Plan(arrays, passes.steps, passes.scratch, result)
