"""The host function of linear attention, and its cases."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from pykittens.kernels.arrays import Arrays
from pykittens.kernels.library import entry
from pykittens.kernels.linear.call import Passes, check_shapes, checked, make_outputs
from pykittens.kernels.linear.config import LinearConfig
from pykittens.kernels.linear.reference import reference
from pykittens.kernels.plan import Plan

CASES = (
    {"batch": 16, "heads": 16, "length": 1024, "d": 128, "width": 128, "decay": "position"},
    {"batch": 16, "heads": 16, "length": 12288, "d": 128, "width": 128, "decay": "position"},
    {"batch": 1, "heads": 16, "length": 12288, "d": 128, "width": 128, "decay": "position"},
    {"batch": 1, "heads": 16, "length": 12288, "d": 64, "width": 64, "decay": "head"},
    {"batch": 1, "heads": 2, "length": 100, "d": 16, "width": 24, "decay": "position"},
    {"batch": 1, "heads": 1, "length": 65, "d": 32, "width": 32, "decay": "none"},
    {"batch": 1, "heads": 1, "length": 17, "d": 48, "width": 80, "decay": "head"},
)


def inputs(
    rng: np.random.Generator, batch: int, heads: int, length: int, d: int, width: int, decay: str
) -> dict[str, Any]:
    """Random normal q, k and v in bf16, and logarithms of decay from 0 to -0.1, or none."""
    sizes = {"q": d, "k": d, "v": width}
    found: dict[str, Any] = {
        name: rng.standard_normal((batch, heads, length, size)).astype(ml_dtypes.bfloat16)
        for name, size in sizes.items()
    }
    shapes = {"position": (batch, heads, length), "head": (heads,)}
    if decay in shapes:
        found["decay"] = (-0.1 * rng.random(shapes[decay])).astype(np.float32)
    return found


@entry(reference=reference, cases=CASES, inputs=inputs)
def linear_attention(
    q: Any,
    k: Any,
    v: Any,
    decay: Any = None,
    out: Any = None,
    *,
    scale: float | None = None,
    initial_state: Any = None,
    ends: Any = None,
    return_state: bool = False,
    segments: int | None = None,
    config: LinearConfig | None = None,
) -> Plan:
    """scale S^T q at each position, with the state S = exp(decay) S + k v^T, which begins with `initial_state` or 0.

    q, k: (batch, groups, n, d), v: (batch, heads, n, width), all bf16 or all f16, NumPy or PyTorch, in any strides; d
    is at most 256. Head h of v goes with group h // (heads / groups). The result (batch, heads, n, width) has their
    dtype; it is written to `out` if that is given. decay: the logarithm of what is kept of the state at each position,
    f32 (batch, heads, n), or that of each head, (heads,); at most 0. Without it all is kept. With one of each head this
    is RetNet and Lightning attention, with one of each position simple gated linear attention, and the recurrence of
    Mamba-2.

    scale: 1 / sqrt(d) if None. initial_state: f32 (batch, heads, d, width). With return_state the result is (out,
    state), the state after the last position, with the accuracy of f32. States are summed in f32, and rounded to the
    dtype where q meets them.

    ends: int32 (sequences + 1,), on the device: where each of several sequences starts that lie one after another in a
    batch of 1, and where the last one ends. Each begins with a state of its own, so `initial_state` and the state that
    is returned are (sequences, heads, d, width). No position outside of them is written.

    segments: parts of the sequence that have blocks of their own; the states before these are found first, from k and
    v. If None, it is chosen so that few heads keep the GPU busy. config: how the work of a block is cut. An
    ArgumentError for other arguments.

        >>> x = np.ones((1, 2, 8, 32), np.float16)
        >>> linear_attention(x, x, x, scale=1.0)[0, 0, :3, 0]
        array([32., 64., 96.], dtype=float16)
    """
    given = {"q": q, "k": k, "v": v, "decay": decay, "initial_state": initial_state, "out": out}
    arrays = Arrays("linear_attention", **given, ends=ends)
    check_shapes(arrays)
    dims, parts = arrays.dims, checked(arrays, segments)
    result = make_outputs(arrays, return_state)
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    arrays.lines("q", "k", "v", "decay", "initial_state", "ends", "out")
    passes = Passes(arrays, scale, parts, config)
    (before,) = arrays.present("initial_state")
    states = before, "state" if return_state else None
    sizes = dims["d"], dims["width"]
    passes.add("q", "k", "v", "out", sizes, states=states, exact=return_state, alone=True)
    return Plan(arrays, passes.steps, passes.scratch, result)
