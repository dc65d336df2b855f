"""The gradients of linear attention: three passes of the same form, one forward and two in reverse.

With M_ij = exp(c_i - c_j) for j <= i, else 0, and dO the gradient of O = scale (M * Q K^T) V,

    dQ = scale (M * dO V^T) K        dV = scale (M * Q K^T)^T dO        dK = scale (M * dO V^T)^T Q

so dQ is linear attention of dO, V and K, and dV and dK are those of K, Q and dO, and of V, dO and Q, in reverse. The
gradient of the logarithm of a decay is the sum of scale M_ij (q_i k_j) (dO_i v_j) over all pairs with j before its
position, and i not. Those of pairs in one chunk are summed as they are. Of the others let A_i be those with i, which is
q_i times what comes of the state in dQ_i, and B_j those with j, which is v_j times what comes of the state in dV_j: a
decay is between B_j - A_j of all positions before it. So nothing cancels that the decay itself makes small.
"""

from __future__ import annotations

import functools
from typing import Any

import pykittens as pk
from pykittens.kernels.arrays import Arrays
from pykittens.kernels.library import host_function
from pykittens.kernels.linear.call import (
    OF_QK,
    OF_STATE,
    OF_V,
    WIDEST,
    Passes,
    check_shapes,
    checked,
)
from pykittens.kernels.linear.chunk import (
    CHUNK,
)
from pykittens.kernels.linear.config import LinearConfig
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.kernels.workspace import Scratch

COLUMNS = 64  # that a block takes at a time
RUN = 2048  # positions that are summed at a time


@pk.kernel
def sum_heads(parts, total):  # type: ignore[no-untyped-def]
    """The sums of the heads that share a head of `total`."""
    batch, groups, n, d = total.shape
    pk.overlap()
    b, g, i, c = pk.grid(batch, groups, pk.cdiv(n, CHUNK), pk.cdiv(d, COLUMNS))
    shared, x = parts.shape[1] // groups, pk.zeros(pk.f32, CHUNK, COLUMNS)
    for h in pk.range(g * shared, (g + 1) * shared):
        x = x + pk.load(parts[b, h, i, c], rows=CHUNK, cols=COLUMNS)
    pk.store(total[b, g, i, c], x.to(total.dtype))


@pk.kernel
def decay_between(inside, of_queries, of_values, state, of_state, gradient):  # type: ignore[no-untyped-def]
    """The gradient of the decay at each position, of pairs in one chunk, of all others, and of the first state.

    of_queries, of_values: what queries and values have with the state; these and `inside` are parts to be added up.
    """
    batch, heads, n = gradient.shape
    pk.overlap()
    b, h = pk.grid(batch, heads)
    before: Any = 0.0
    if state is not None:
        for r in pk.range(pk.cdiv(state.shape[2], CHUNK)):
            for c in pk.range(pk.cdiv(state.shape[3], COLUMNS)):
                x, y = (pk.load(z[b, h, r, c], rows=CHUNK, cols=COLUMNS) for z in (state, of_state))
                before = before + pk.sum(x * y)
    for i in pk.range(pk.cdiv(n, RUN)):
        run = pk.zeros(pk.f32, RUN)
        for part in range(pk.static(of_values.shape[0])):
            run = run + pk.load(of_values[part, b, h, i], cols=RUN)
        for part in range(pk.static(of_queries.shape[0])):
            run = run - pk.load(of_queries[part, b, h, i], cols=RUN)
        own = before + (pk.cumsum(run) - run)
        for part in range(pk.static(inside.shape[0])):
            own = own + pk.load(inside[part, b, h, i], cols=RUN)
        pk.store(gradient[b, h, i], own)
        before = before + pk.sum(run)


@pk.kernel
def sum_of_head(sums, total):  # type: ignore[no-untyped-def]
    """The sum of all batches and positions of a head."""
    batch, _, n = sums.shape
    pk.overlap()
    (h,) = pk.grid(total.shape[0])
    found: Any = 0.0
    for b in pk.range(batch):
        for i in pk.range(pk.cdiv(n, RUN)):
            found = found + pk.sum(pk.load(sums[b, h, i], cols=RUN))
    pk.store(total[h], found)


@functools.partial(host_function, numbers={})
def linear_attention_backward(
    q: Any,
    k: Any,
    v: Any,
    gradient: Any,
    decay: Any = None,
    *,
    scale: float | None = None,
    initial_state: Any = None,
    state_gradient: Any = None,
    segments: int | None = None,
    config: LinearConfig | None = None,
) -> Plan:
    """The gradients of q, k and v, and then those of decay and of initial_state if these are given.

    gradient: that of the result, (batch, heads, n, width); width is at most 256. state_gradient: that of the state
    after the last position, f32 (batch, heads, d, width), or None. The other arguments are those of linear_attention.
    The gradients have the shapes and dtypes of what they are of; sums are in f32. An ArgumentError for other arguments.

        >>> x = np.ones((1, 2, 8, 32), np.float16)
        >>> [y.shape for y in linear_attention_backward(x, x, x, x)]
        [(1, 2, 8, 32), (1, 2, 8, 32), (1, 2, 8, 32)]
    """
    given = {"q": q, "k": k, "v": v, "gradient": gradient, "decay": decay}
    given |= {"initial_state": initial_state, "state_gradient": state_gradient}
    arrays = Arrays("linear_attention_backward", **given)
    check_shapes(arrays)
    dims, parts = arrays.dims, checked(arrays, segments)
    if dims["width"] > WIDEST:
        raise arrays.fail(f"width must be at most {WIDEST}, not {dims['width']}")
    dtype, result = arrays.found["v"].dtype, ["dq", "dk", "dv"]
    for name, shape in (("dq", OF_QK), ("dk", OF_QK), ("dv", OF_V)):
        arrays.make(name, shape, dtype)
    if "decay" in arrays:
        rank = len(arrays.found["decay"].shape)
        arrays.make("d_decay", "heads" if rank == 1 else "batch heads n", "f32")
        result.append("d_decay")
    if "initial_state" in arrays:
        arrays.make("d_initial_state", OF_STATE, "f32")
        result.append("d_initial_state")
    if not arrays.have_memory:
        return Plan(arrays, [], result=tuple(result))
    arrays.lines(*arrays.found)
    before, behind = (_turned(arrays, name) for name in ("initial_state", "state_gradient"))
    n, d, width = (dims[x] for x in ("n", "d", "width"))
    passes, is_shared = Passes(arrays, scale, parts, config), dims["groups"] != dims["heads"]
    lead = passes.heads
    to = {x: f"{x}_of_heads" if is_shared else x for x in ("dq", "dk")}
    last = "state_gradient" if behind else None, "d_initial_state" if before else None
    back: dict[str, Any] = {"numbers": ("scale", "scale"), "reverse": True}
    size = 4 if is_shared else 2
    of_q, of_v = ("q", "v") if "decay" in arrays else (None, None)
    here: dict[str, Any] = {"states": (before, None), "result_bytes": size, "with_state": of_q}
    here["inside"] = True
    last_of: dict[str, Any] = {"states": last, "with_state": of_v, "exact": before is not None}
    passes.add("gradient", "v", "k", to["dq"], (width, d), **here)
    passes.add("k", "q", "gradient", "dv", (d, width), **last_of, **back)
    back["result_bytes"] = size
    passes.add("v", "gradient", "q", to["dk"], (width, d), states=(behind, None), **back)
    steps, scratch = passes.steps, passes.scratch
    if is_shared:
        scratch |= {name: Scratch((*lead, n, d)) for name in to.values()}
        steps += [PlanStep(sum_heads, (part, name)) for name, part in to.items()]
    if "decay" in arrays:
        sums = "d_decay" if rank == 3 else "sums"
        scratch |= {} if rank == 3 else {"sums": Scratch((*lead, n))}
        states = ("initial_state", "d_initial_state") if before else (None, None)
        of_pairs = (f"dots_{to['dq']}", "dots_dv")
        steps += [
            PlanStep(decay_between, (f"inside_{to['dq']}", *of_pairs, *states, sums)),
        ]
        steps += [PlanStep(sum_of_head, ("sums", "d_decay"))] if rank == 1 else []
    return Plan(arrays, steps, scratch, tuple(result))


def _turned(arrays: Arrays, name: str) -> str | None:
    """The name of a state with rows and columns in each other's place, a copy; None if it is not given."""
    if name not in arrays:
        return None
    turned = arrays.views[name].swapaxes(2, 3)
    arrays.views[f"{name}_turned"] = turned
    arrays.copies[f"{name}_turned"] = tuple(turned.shape)
    return f"{name}_turned"
