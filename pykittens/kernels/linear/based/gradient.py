"""The gradients of Based linear attention.

Let g_i be the gradient of the sum of w_ij v_j, and e_i that of the sum of w_ij, 0 without a division. Then

    dv_j = sum over i >= j of w_ij g_i
    dq_i = scale times the sum over j <= i of (1 + s_ij) (g_i v_j + e_i) k_j
    dk_j = scale times the sum over i >= j of (1 + s_ij) (g_i v_j + e_i) q_i

so dv is a pass for outputs in reverse, of keys, queries and g. The others are passes of another form, of which the last
is in reverse: of a state S the features of q_i have the gradient S g_i, which the matrices that select elements bring
to q_i by the rule of products.
"""

from __future__ import annotations

import functools
from typing import Any

import pykittens as pk
from pykittens.kernels.arrays import Arrays
from pykittens.kernels.library import host_function
from pykittens.kernels.linear.based.call import OF_V, BasedPasses, check
from pykittens.kernels.linear.based.features import factor_of
from pykittens.kernels.linear.call import checked
from pykittens.kernels.linear.chunk import CHUNK, ROWS
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.kernels.workspace import Scratch

COLUMNS = 64  # that a block takes at a time


@pk.kernel
def gradients_of_sums(out, gradient, weights, g, e):  # type: ignore[no-untyped-def]
    """g and e of outputs that are divided by `weights`."""
    batch, heads, n, width = out.shape
    b, h, i = pk.grid(batch, heads, pk.cdiv(n, CHUNK))
    divisor = pk.load(weights[b, h, i], cols=CHUNK, spread=pk.per_row)
    is_row = pk.row_index(CHUNK) < n - i * CHUNK
    factor = pk.where(is_row, 1.0 / pk.where(is_row, divisor, 1.0), 0.0)
    found = pk.zeros(pk.f32, CHUNK, spread=pk.per_row)
    for c in pk.range(pk.cdiv(width, COLUMNS)):
        x, y = (
            pk.load(t[b, h, i, c], rows=CHUNK, cols=COLUMNS).to(pk.f32) for t in (gradient, out)
        )
        rounded = (x * factor).to(g.dtype)
        pk.store(g[b, h, i, c], rounded)
        found = found - pk.row_sum(rounded.to(pk.f32) * y)
    pk.store(e[b, h, i], found)


@pk.kernel
def weigh_rows(x, y, scale, *, d, is_inverse):  # type: ignore[no-untyped-def]
    """The rows of states times the factors of queries, or divided by them."""
    batch, heads, rows, width = y.shape
    b, h, r, c = pk.grid(batch, heads, pk.cdiv(rows, ROWS), pk.cdiv(width, COLUMNS))
    factor = factor_of(pk.row_index(ROWS) + r * ROWS, d, scale)
    factor = 1.0 / factor if is_inverse else factor
    pk.store(y[b, h, r, c], pk.load(x[b, h, r, c], rows=ROWS, cols=COLUMNS) * factor)


@functools.partial(host_function, numbers={})
def based_attention_backward(
    q: Any,
    k: Any,
    v: Any,
    gradient: Any,
    out: Any = None,
    weights: Any = None,
    *,
    scale: float | None = None,
    initial_state: Any = None,
    state_gradient: Any = None,
    ends: Any = None,
    segments: int | None = None,
) -> Plan:
    """The gradients of q, k and v, and then that of initial_state if that is given.

    gradient: that of the result, (batch, heads, n, width). out, weights: the result and the sums of a call with
    `normalize`, None of one without. state_gradient: that of the state after the last position, f32, or None. The other
    arguments are those of based_attention. The gradients have the shapes and dtypes of what they are of; sums are in
    f32. An ArgumentError for other arguments.

        >>> x = np.ones((1, 2, 8, 16), np.float16)
        >>> [y.shape for y in based_attention_backward(x, x, x, x)]
        [(1, 2, 8, 16), (1, 2, 8, 16), (1, 2, 8, 16)]
    """
    given = {"q": q, "k": k, "v": v, "gradient": gradient, "out": out, "weights": weights}
    given |= {"initial_state": initial_state, "state_gradient": state_gradient, "ends": ends}
    arrays = Arrays("based_attention_backward", **given)
    is_divided = weights is not None
    check(arrays, is_divided)
    arrays.needs("weights", "out")
    arrays.needs("out", "weights")
    dims, parts = arrays.dims, checked(arrays, segments)
    result = arrays.gradients("q", "k", "v", "initial_state")
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    arrays.lines(*arrays.found)
    arrays.number("eps", 0.0)
    passes = BasedPasses(arrays, scale, parts, is_divided)
    steps, scratch = passes.steps, passes.scratch
    g, e = ("g", "e") if is_divided else ("gradient", None)
    if is_divided:
        arrays.make("g", OF_V, passes.dtype)
        scratch["e"] = Scratch((*passes.heads, passes.n))
        steps.append(PlanStep(gradients_of_sums, ("out", "gradient", "weights", "g", "e")))
    of_state = passes.sequences, dims["heads"], dims["features"], dims["columns"]
    other, unit = passes.unless_0("q")  # of the passes in reverse
    of_last = "of_last" if "state_gradient" in arrays else None
    if of_last:
        scratch["of_last"] = Scratch(of_state)
        how: dict[str, Any] = {"d": dims["d"], "is_inverse": True}
        steps.append(PlanStep(weigh_rows, ("state_gradient", "of_last", unit), how))
    before, first = None, None
    if "initial_state" in arrays:
        before, first = "initial_state", "first"
        scratch["first"] = Scratch(of_state)
    passes.gradients(("q", "k", "v", g, "dq"), e, (before, None), name="states")
    back: dict[str, Any] = {"name": "state_gradients", "reverse": True, "scale": unit}
    passes.gradients(("k", other, g, "v", "dk"), e, (of_last, first), **back)
    passes.outputs(("k", other, g, "dv"), None, (of_last, None), factors=e, **back)
    if first:
        how = {"d": dims["d"], "is_inverse": False}
        steps.append(PlanStep(weigh_rows, ("first", "d_initial_state", unit), how))
    return Plan(arrays, steps, scratch, result)
