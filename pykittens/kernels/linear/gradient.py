"""The gradients of linear attention: three passes of the same form, one forward and two in reverse.

With M_ij = exp(c_i - c_j) for j <= i, else 0, and dO the gradient of O = scale (M * Q K^T) V,

    dQ = scale (M * dO V^T) K        dV = scale (M * Q K^T)^T dO        dK = scale (M * dO V^T)^T Q

so dQ is linear attention of dO, V and K, and dV and dK are those of K, Q and dO, and of V, dO and Q, in reverse. As O
is linear in each of Q, K and V, the gradient of c_i is dO_i O_i - V_i dV_i, and that of a decay the sum of those from
its position on. Source of that: Yang et al., "Gated Linear Attention Transformers", 2024, appendix C.
"""

from __future__ import annotations

import functools
from typing import Any

import pykittens as pk
from pykittens.ir.numbers import number
from pykittens.kernels.arrays import Arrays
from pykittens.kernels.library import host_function
from pykittens.kernels.linear.call import (
    OF_QK,
    OF_STATE,
    OF_V,
    WIDEST,
    Passes,
    add_number,
    check_shapes,
    scale_of,
)
from pykittens.kernels.linear.chunk import CHUNK
from pykittens.kernels.linear.config import LinearConfig
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.kernels.workspace import Scratch

COLUMNS = 64  # that a block takes at a time
RUN = 1024  # positions that are summed at a time


@pk.kernel
def sum_heads(parts, total):  # type: ignore[no-untyped-def]
    """The sums of the heads that share a head of `total`."""
    batch, groups, n, d = total.shape
    b, g, i, c = pk.grid(batch, groups, pk.cdiv(n, CHUNK), pk.cdiv(d, COLUMNS))
    shared, x = parts.shape[1] // groups, pk.zeros(pk.f32, CHUNK, COLUMNS)
    for h in pk.range(g * shared, (g + 1) * shared):
        x = x + pk.load(parts[b, h, i, c], rows=CHUNK, cols=COLUMNS)
    pk.store(total[b, g, i, c], x.to(total.dtype))


@pk.kernel
def products_of_positions(O, dO, V, dV, products):  # type: ignore[no-untyped-def]
    """dO O - V dV at each position."""
    batch, heads, n, width = V.shape
    b, h, i = pk.grid(batch, heads, pk.cdiv(n, CHUNK))
    x = pk.zeros(pk.f32, CHUNK, COLUMNS)
    for c in pk.range(pk.cdiv(width, COLUMNS)):
        o, do, v, dv = (
            pk.load(y[b, h, i, c], rows=CHUNK, cols=COLUMNS).to(pk.f32) for y in (O, dO, V, dV)
        )
        x = x + do * o - v * dv
    pk.store(products[b, h, i], pk.row_sum(x))


@pk.kernel
def sums_from_positions(products, state, state_gradient, sums):  # type: ignore[no-untyped-def]
    """The sums from each position on, and the product of the last state with its gradient."""
    batch, heads, n = products.shape
    b, h = pk.grid(batch, heads)
    behind: Any = 0.0
    if state is not None:
        for r in pk.range(pk.cdiv(state.shape[2], CHUNK)):
            for c in pk.range(pk.cdiv(state.shape[3], COLUMNS)):
                x, y = (
                    pk.load(z[b, h, r, c], rows=CHUNK, cols=COLUMNS)
                    for z in (state, state_gradient)
                )
                behind = behind + pk.sum(x * y)
    for i in pk.range(pk.cdiv(n, RUN) - 1, -1, -1):
        run = pk.load(products[b, h, i], cols=RUN)
        total = pk.sum(run)
        pk.store(sums[b, h, i], behind + (total - pk.cumsum(run)) + run)
        behind = behind + total


@pk.kernel
def sum_of_head(sums, total):  # type: ignore[no-untyped-def]
    """The sum of all batches and positions of a head."""
    batch, _, n = sums.shape
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
    out: Any,
    gradient: Any,
    decay: Any = None,
    *,
    scale: float | None = None,
    initial_state: Any = None,
    state: Any = None,
    state_gradient: Any = None,
    segments: int | None = None,
    config: LinearConfig | None = None,
) -> Plan:
    """The gradients of q, k and v, and then those of decay and of initial_state if these are given.

    out: what linear_attention returned for the same arguments, and gradient: its gradient, both (batch, heads, n,
    width); width is at most 256. state_gradient: that of the state after the last position, f32 (batch, heads, d,
    width), and state: that state, needed with a decay. The gradients have the shapes and dtypes of what they are of;
    sums are in f32. segments, config: as of linear_attention. An ArgumentError for other arguments.

        >>> x = np.ones((1, 2, 8, 32), np.float16)
        >>> [y.shape for y in linear_attention_backward(x, x, x, x, x)]
        [(1, 2, 8, 32), (1, 2, 8, 32), (1, 2, 8, 32)]
    """
    given = {"q": q, "k": k, "v": v, "out": out, "gradient": gradient, "decay": decay}
    given |= {"initial_state": initial_state, "state": state, "state_gradient": state_gradient}
    arrays = Arrays("linear_attention_backward", **given)
    check_shapes(arrays)
    dims, parts = arrays.dims, number(segments)
    if dims["width"] > WIDEST:
        raise arrays.fail(f"width must be at most {WIDEST}, not {dims['width']}")
    if "decay" in arrays:
        arrays.needs("state_gradient", "state")
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
    add_number(arrays, "scale", scale_of(arrays, scale))
    add_number(arrays, "one", 1.0)
    before, behind = (_turned(arrays, name) for name in ("initial_state", "state_gradient"))
    lead, n, d, width = (dims["batch"], dims["heads"]), dims["n"], dims["d"], dims["width"]
    passes, is_shared = Passes(arrays, lead, n, parts, config), dims["groups"] != dims["heads"]
    to = {x: f"{x}_of_heads" if is_shared else x for x in ("dq", "dk")}
    last = "state_gradient" if behind else None, "d_initial_state" if before else None
    back: dict[str, Any] = {"numbers": ("scale", "scale"), "reverse": True}
    size = 4 if is_shared else 2
    passes.add("gradient", "v", "k", to["dq"], (width, d), states=(before, None), result_bytes=size)
    passes.add("k", "q", "gradient", "dv", (d, width), states=last, **back)
    back["result_bytes"] = size
    passes.add("v", "gradient", "q", to["dk"], (width, d), states=(behind, None), **back)
    steps, scratch = passes.steps, passes.scratch
    if is_shared:
        scratch |= {name: Scratch((*lead, n, d)) for name in to.values()}
        steps += [PlanStep(sum_heads, (part, name)) for name, part in to.items()]
    if "decay" in arrays:
        scratch["products"] = Scratch((*lead, n))
        sums = "d_decay" if rank == 3 else "sums"
        if rank == 1:
            scratch["sums"] = Scratch((*lead, n))
        states = ("state", "state_gradient") if behind else (None, None)
        args = ("out", "gradient", "v", "dv", "products")
        steps += [
            PlanStep(products_of_positions, args),
            PlanStep(sums_from_positions, ("products", *states, sums)),
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
