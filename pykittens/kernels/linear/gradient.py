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
from pykittens.kernels.linear.call import Passes, check_shapes, check_width, checked
from pykittens.kernels.linear.chunk import CHUNK
from pykittens.kernels.linear.config import LinearConfig
from pykittens.kernels.linear.sequences import slots_of, unit_at
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.kernels.workspace import Scratch

COLUMNS = 64  # that a block takes at a time
RUN = 512  # positions that are summed at a time


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


@pk.function
def of_run(parts: Any, part: int, sequence: Any, h: Any, run: Any) -> Any:
    """The positions of a run, of one of the parts of columns."""
    return pk.load(sequence.heads(parts, part)[h, run], cols=RUN)


@pk.function
def from_run(of_queries: Any, of_values: Any, sequence: Any, h: Any, run: Any) -> Any:
    """What values have with the states after their positions, less what queries have with those before."""
    found: Any = pk.zeros(pk.f32, RUN)
    for part in range(pk.static(of_values.shape[0])):
        found = found + of_run(of_values, part, sequence, h, run)
    for part in range(pk.static(of_queries.shape[0])):
        found = found - of_run(of_queries, part, sequence, h, run)
    return found


@pk.kernel
def sum_runs(of_queries, of_values, state, of_state, sums, ends):  # type: ignore[no-untyped-def]
    """The sum of each run of positions, after that of the first state, at the slots of the sequence."""
    pk.overlap()
    b, h, i = pk.grid(*sums.shape)
    slot, (sequence, i) = i, unit_at(ends, b, i, of_values.shape[3], RUN, 2)
    found: Any = 0.0
    if i > 0:
        found = pk.sum(from_run(of_queries, of_values, sequence, h, i - 1))
    elif state is not None:
        for r in pk.range(pk.cdiv(state.shape[2], CHUNK)):
            for c in pk.range(pk.cdiv(state.shape[3], COLUMNS)):
                x, y = (
                    pk.load(z[sequence.number, h, r, c], rows=CHUNK, cols=COLUMNS)
                    for z in (state, of_state)
                )
                found = found + pk.sum(x * y)
    pk.store(sums[b, h, slot], found)


@pk.function
def of_logarithms(
    inside: Any, of_queries: Any, of_values: Any, sums: Any, sequence: Any, h: Any, run: Any
) -> Any:
    """The gradient of the logarithm of the decay at each position of a run, of pairs in one chunk and of all others.

    inside, of_queries, of_values: parts of columns, which are added up.
    """
    before: Any = 0.0
    earlier = sequence.slots(sums, RUN, 2)
    for i in pk.range(pk.cdiv(run + 1, RUN)):
        some = pk.load(earlier[h, i], cols=RUN)
        before = before + pk.sum(pk.where(pk.iota(RUN) <= run - i * RUN, some, 0.0))
    own = from_run(of_queries, of_values, sequence, h, run)
    own = pk.cumsum(own) - own + before
    for part in range(pk.static(inside.shape[0])):
        own = own + of_run(inside, part, sequence, h, run)
    return own


@pk.kernel
def decay_gradient(inside, of_queries, of_values, sums, gradient, totals, ends):  # type: ignore[no-untyped-def]
    """The gradient of the decay at each position, or its sum in each run."""
    batch, heads, n = inside.shape[1:]
    pk.overlap()
    b, h, run = pk.grid(batch, heads, slots_of(n, ends, RUN))
    slot, (sequence, run) = run, unit_at(ends, b, run, n, RUN)
    own = of_logarithms(inside, of_queries, of_values, sums, sequence, h, run)
    if gradient is not None:
        pk.store(sequence.heads(gradient)[h, run], own)
    if totals is not None:
        pk.store(
            totals[b, h, slot],
            pk.sum(pk.where(pk.iota(RUN) < sequence.n - run * RUN, own, 0.0)),
        )


@pk.kernel
def sum_of_head(sums, total):  # type: ignore[no-untyped-def]
    """The sum of all batches and runs of a head."""
    batch, _, runs = sums.shape
    pk.overlap()
    (h,) = pk.grid(total.shape[0])
    found: Any = 0.0
    for b in pk.range(batch):
        for i in pk.range(pk.cdiv(runs, RUN)):
            found = found + pk.sum(pk.load(sums[b, h, i], cols=RUN))
    pk.store(total[h], found)


def add_passes(
    passes: Passes, q: str, k: str, v: str, sizes: tuple[int, int], of_values: tuple[str, ...] = ()
) -> tuple[str, str]:
    """Add the passes of f"d{q}", f"d{k}" and f"d{v}", and of d_initial_state if there is an initial state.

    of_values: what the pass of values keeps, as of `Passes.add`. If there is decay, returns the names under which the
    passes of queries and of values keep what its gradient is made of, which `sum_runs` has then added up.
    """
    arrays, (d, width), lead = passes.arrays, sizes, passes.heads
    is_shared, decays = arrays.dims["groups"] != arrays.dims["heads"], passes.gates[0] in arrays
    before, of_last = arrays.present("initial_state", "state_gradient")
    after = "d_initial_state" if before else None
    to = {x: f"d{x}_of_heads" if is_shared else f"d{x}" for x in (q, k)}
    of_qk: dict[str, Any] = {"result_bytes": 4 if is_shared else 2, "turned": True}
    g, scale = passes.unless_0("gradient")
    back: dict[str, Any] = {"numbers": (scale, scale), "reverse": True}
    first: dict[str, Any] = {"states": (before, None)}
    last: dict[str, Any] = {"states": (of_last, after), "exact": before is not None, "skips": True}
    if decays:
        first |= {"with_state": q, "found": ("dots", "inside")}
        last |= {"with_state": v, "found": ("dots", *of_values)}
    passes.add(g, v, k, to[q], (width, d), **first, **of_qk)
    passes.add(k, q, g, f"d{v}", (d, width), **last, **back)
    passes.add(v, g, q, to[k], (width, d), states=(of_last, None), **of_qk, **back)
    if is_shared:
        passes.scratch |= {name: Scratch((*lead, passes.n, d)) for name in to.values()}
        passes.steps += [PlanStep(sum_heads, (part, f"d{x}")) for x, part in to.items()]
    if decays:
        passes.scratch["sums"] = Scratch((*lead, passes.slots(RUN, 2)))
        dots = f"dots_{to[q]}", f"dots_d{v}"
        passes.steps.append(PlanStep(sum_runs, (*dots, before, after, "sums", passes.ends)))
    return to[q], f"d{v}"


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
    ends: Any = None,
    segments: int | None = None,
    config: LinearConfig | None = None,
) -> Plan:
    """The gradients of q, k and v, and then those of decay and of initial_state if these are given.

    gradient: that of the result, (batch, heads, n, width); width is at most 256. state_gradient: that of the state
    after the last position, f32 (sequences, heads, d, width), or None. The other arguments are those of
    linear_attention. The gradients have the shapes and dtypes of what they are of; sums are in f32. An ArgumentError
    for other arguments.

        >>> x = np.ones((1, 2, 8, 32), np.float16)
        >>> [y.shape for y in linear_attention_backward(x, x, x, x)]
        [(1, 2, 8, 32), (1, 2, 8, 32), (1, 2, 8, 32)]
    """
    given = {"q": q, "k": k, "v": v, "gradient": gradient, "decay": decay, "ends": ends}
    given |= {"initial_state": initial_state, "state_gradient": state_gradient}
    arrays = Arrays("linear_attention_backward", **given)
    check_shapes(arrays)
    dims, parts = arrays.dims, checked(arrays, segments)
    check_width(arrays)
    result = arrays.gradients("q", "k", "v", "decay", "initial_state")
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    arrays.lines(*arrays.found)
    passes = Passes(arrays, scale, parts, config)
    of_q, of_v = add_passes(passes, "q", "k", "v", (dims["d"], dims["width"]))
    if "decay" in arrays:
        sums = f"inside_{of_q}", f"dots_{of_q}", f"dots_{of_v}", "sums"
        of_head = len(arrays.found["decay"].shape) == 1
        results = (None, "totals") if of_head else ("d_decay", None)
        passes.steps.append(PlanStep(decay_gradient, (*sums, *results, passes.ends)))
        if of_head:
            passes.scratch["totals"] = Scratch((*passes.heads, passes.slots(RUN, 1)))
            passes.steps.append(PlanStep(sum_of_head, ("totals", "d_decay")))
    return Plan(arrays, passes.steps, passes.scratch, result)
