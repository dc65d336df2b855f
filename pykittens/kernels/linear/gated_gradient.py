"""The host function of the gradients of linear attention with a gate for each channel."""

from __future__ import annotations

import functools
from typing import Any

from pykittens.kernels.arrays import Arrays
from pykittens.kernels.library import host_function
from pykittens.kernels.limits import Limits, first_that_fits
from pykittens.kernels.linear.call import checked
from pykittens.kernels.linear.channel_gradients import channel_gradients, shared_bytes
from pykittens.kernels.linear.config import RESERVED, LinearConfig
from pykittens.kernels.linear.gated import ChannelPasses, check_gated
from pykittens.kernels.linear.gradient import sum_heads
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.kernels.workspace import Scratch


@functools.partial(host_function, numbers={})
def gated_linear_attention_backward(
    q: Any,
    k: Any,
    v: Any,
    gradient: Any,
    decay: Any,
    *,
    scale: float | None = None,
    initial_state: Any = None,
    state_gradient: Any = None,
    ends: Any = None,
    segments: int | None = None,
    config: LinearConfig | None = None,
) -> Plan:
    """The gradients of q, k, v and decay, and then that of initial_state if it is given.

    gradient: that of the result, (batch, heads, n, width). state_gradient: that of the state after the last position,
    of the shape of initial_state, f32, or None. The other arguments are those of gated_linear_attention. The gradients
    have the shapes and dtypes of what they are of; sums are in f32. States before all chunks, and the gradients of
    those after them, are kept in scratch memory. An ArgumentError for other arguments.

        >>> x, decay = np.ones((1, 2, 8, 32), np.float16), np.zeros((1, 2, 8, 32), np.float32)
        >>> [y.shape for y in gated_linear_attention_backward(x, x, x, x, decay)]
        [(1, 2, 8, 32), (1, 2, 8, 32), (1, 2, 8, 32), (1, 2, 8, 32)]
    """
    given = {"q": q, "k": k, "v": v, "gradient": gradient, "decay": decay}
    given |= {"initial_state": initial_state, "state_gradient": state_gradient}
    arrays = Arrays("gated_linear_attention_backward", **given, ends=ends)
    check_gated(arrays)
    parts = checked(arrays, segments)
    result = arrays.gradients("q", "k", "v", "decay", "initial_state")
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    arrays.lines(*arrays.found)
    passes = ChannelPasses(arrays, scale, parts, config)
    add_gradients(passes)
    return Plan(arrays, passes.steps, passes.scratch, result)


def cut_for(d: int, decay: str, limits: Limits) -> tuple[int, int]:
    """Channels of a block of `channel_gradients`, and blocks of a multiprocessor.

    Registers hold two blocks.
    """
    size = next((x for x in (16, 32) if d <= x), 64)
    cuts = [(size, 2), (min(size, 32), 2), (size, 1), (min(size, 32), 1), (16, 1)]

    def of_all(cut: tuple[int, int]) -> int:
        own, blocks = cut
        return blocks * shared_bytes(own, decay == "f32") + (blocks - 1) * RESERVED

    return first_that_fits("gated_linear_attention_backward", cuts, of_all, limits)


def add_gradients(passes: ChannelPasses) -> None:
    """Add all launches: states, their gradients and those of values in reverse, all others, and sums of heads."""
    arrays = passes.arrays
    before, of_last = arrays.present("initial_state", "state_gradient")
    passes.weigh(("queries", "keys"))
    passes.add(None, "keys", "v", None, (before, None), of_chunks="states")
    of_states = of_last, "d_initial_state" if before else None
    g, scale = passes.unless_0("gradient")
    how: dict[str, Any] = {"of_chunks": "afters", "reverse": True, "scale": scale, "unit": scale}
    passes.add("keys", "queries", g, "dv", of_states, **how)
    is_shared = arrays.dims["groups"] != arrays.dims["gates"]
    to = {x: f"{x}_of_gates" if is_shared else x for x in ("dq", "dk")}
    size, resident = cut_for(arrays.dims["d"], arrays.found["decay"].dtype, passes.limits)
    args = (
        "q",
        "k",
        "v",
        g,
        "decay",
        "states",
        "afters",
        *to.values(),
        "d_decay",
        scale,
        passes.ends,
    )
    dims = arrays.dims
    shared = dims["gates"] // dims["groups"], dims["heads"] // dims["gates"]
    more = {"size": size, "resident": resident, "shared": shared}
    passes.steps.append(PlanStep(channel_gradients, args, more))
    if is_shared:
        shape = (*passes.gates, arrays.dims["n"], arrays.dims["d"])
        passes.scratch |= {name: Scratch(shape) for name in to.values()}
        passes.steps += [PlanStep(sum_heads, (part, name)) for name, part in to.items()]
