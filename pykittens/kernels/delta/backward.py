"""The host function of the gradients of the delta rule."""

from __future__ import annotations

import functools
from typing import Any

from pykittens.kernels.arrays import Arrays
from pykittens.kernels.delta import gradients
from pykittens.kernels.delta.call import DeltaPasses, check_shapes
from pykittens.kernels.delta.config import DeltaConfig
from pykittens.kernels.delta.gradients import chunk_gradients
from pykittens.kernels.delta.outputs import delta_outputs
from pykittens.kernels.delta.reverse import state_gradients
from pykittens.kernels.library import host_function
from pykittens.kernels.linear.call import check_width, checked
from pykittens.kernels.linear.chunk import CHUNK
from pykittens.kernels.linear.config import blocks_for
from pykittens.kernels.linear.gradient import sum_heads, sum_of_head
from pykittens.kernels.plan import Plan, PlanStep

MOST = 2  # blocks of `chunk_gradients` on a multiprocessor, which registers hold


@functools.partial(host_function, numbers={})
def gated_delta_rule_backward(
    q: Any,
    k: Any,
    v: Any,
    beta: Any,
    gradient: Any,
    decay: Any = None,
    *,
    scale: float | None = None,
    initial_state: Any = None,
    state_gradient: Any = None,
    ends: Any = None,
    segments: int | None = None,
    config: DeltaConfig | None = None,
) -> Plan:
    """The gradients of q, k, v and beta, and then those of decay and of initial_state if these are given.

    gradient: that of the result, (batch, heads, n, width); width is at most 256. state_gradient: that of the state
    after the last position, f32 (sequences, heads, d, width), or None. The other arguments are those of
    gated_delta_rule. The gradients have the shapes and dtypes of what they are of; sums are in f32. States are computed
    again. segments: parts of the sequence that have blocks of their own, as of gated_delta_rule. An ArgumentError for
    other arguments.

        >>> x, beta = np.ones((1, 2, 8, 32), np.float16), np.full((1, 2, 8), 1 / 32, np.float32)
        >>> [y.shape for y in gated_delta_rule_backward(x, x, x, beta, x)]
        [(1, 2, 8, 32), (1, 2, 8, 32), (1, 2, 8, 32), (1, 2, 8)]
    """
    given = {"q": q, "k": k, "v": v, "beta": beta, "gradient": gradient, "decay": decay}
    given |= {"initial_state": initial_state, "state_gradient": state_gradient}
    arrays = Arrays("gated_delta_rule_backward", **given, ends=ends)
    check_shapes(arrays)
    check_width(arrays)
    parts = checked(arrays, segments)
    result = arrays.gradients("q", "k", "v", "beta", "decay", "initial_state")
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    arrays.lines(*arrays.found)
    passes = DeltaPasses(arrays, scale, parts, config, backward=True)
    add_gradients(passes, arrays)
    return Plan(arrays, passes.steps, passes.scratch, result)


def add_gradients(passes: DeltaPasses, arrays: Arrays) -> None:
    """All launches: states again, their gradients in reverse, those of chunks, and sums of what heads share."""
    passes.add_pairs()
    steps, gates, how = passes.steps, passes.gates, {"config": passes.config}
    n, d, width, dtype = passes.n, *passes.sizes, passes.dtype
    rows = passes.chunks * CHUNK if passes.ends else n
    values = [passes.memory(x, rows, width, dtype=dtype) for x in ("u", "de")]
    sides = passes.chunks, width, d
    states, afters = (passes.memory(x, *sides, dtype=dtype) for x in ("states", "afters"))
    first, last, of_first = (
        name if name in arrays or name in arrays.made else None
        for name in ("initial_state", "state_gradient", "d_initial_state")
    )
    if passes.count > 1:
        first = passes.add_states(first, all_of_them=True)
    of_u = (None, "k", "v", "u", *gates, "inverses", None, first, None, states, "scale")
    steps.append(PlanStep(delta_outputs, (*of_u, passes.ends), how))
    of_chunks, size = (*gates, "inverses", "pairs"), ("scale", passes.ends)
    if passes.count > 1:
        changes, at_ends = (
            passes.memory(name, count, width, d, of_sequences=True)
            for name, count in (("changes", passes.count - 1), ("at_ends", passes.count))
        )
        given = ("q", "k", "gradient", None, *of_chunks, None, None, changes, None, *size)
        steps.append(PlanStep(state_gradients, given, how))
        passes.add_scan(changes, last, at_ends, reverse=True)
        last = at_ends
    of_afters = ("q", "k", "gradient", "de", *of_chunks, last, of_first, None, afters, *size)
    steps.append(PlanStep(state_gradients, of_afters, how))

    dims = arrays.dims
    is_shared = dims["groups"] != dims["heads"]
    to = {x: f"{x}_of_heads" if is_shared else x for x in ("dq", "dk")}
    if is_shared:
        for name in to.values():
            passes.memory(name, n, d)
    of_head = "decay" in arrays and len(arrays.found["decay"].shape) == 1
    sums = passes.memory("sums", rows) if of_head else gates[1] and "d_decay"
    given = ("q", "k", "v", "gradient", *values, *gates, states, afters)
    made = (*to.values(), "dv", "d_beta", sums)
    taken = gradients.shared_bytes(d, width)
    resident = blocks_for("gated_delta_rule_backward", taken, MOST, passes.limits)
    steps.append(
        PlanStep(chunk_gradients, (*given, *made, "scale", passes.ends), {"resident": resident})
    )
    if is_shared:
        steps += [PlanStep(sum_heads, (part, name)) for name, part in to.items()]
    if of_head:
        steps.append(PlanStep(sum_of_head, ("sums", "d_decay")))
