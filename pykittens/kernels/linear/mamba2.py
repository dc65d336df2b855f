"""Mamba-2: linear attention whose gates are steps, S = exp(A dt) S + B (dt x)^T and y = S^T C + D x at each position.

The logarithm of a step is added to the exponents of a chunk, so that values need no pass of their own. Source: Dao and
Gu, "Transformers are SSMs", 2024.
"""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens.kernels.arrays import FLOATS, NARROW, Arrays, gradient_of
from pykittens.kernels.library import entry, host_function
from pykittens.kernels.linear import reference as recurrence
from pykittens.kernels.linear.call import (
    OF_QK,
    OF_STATE,
    OF_V,
    Passes,
    check_heads,
    check_width,
    checked,
    make_outputs,
)
from pykittens.kernels.linear.chunk import step_of
from pykittens.kernels.linear.config import LinearConfig
from pykittens.kernels.linear.gradient import RUN, add_passes, of_logarithms, of_run, sum_of_head
from pykittens.kernels.linear.sequences import slots_of, unit_at
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.kernels.sequences import count_sequences
from pykittens.kernels.workspace import Scratch

GATES = ("dt", "A", "dt_bias")
GIVEN = "x", "dt", "A", "B", "C", "D", "dt_bias", "initial_state"


def reference(
    x: Any,
    dt: Any,
    A: Any,
    B: Any,
    C: Any,
    D: Any = None,
    dt_bias: Any = None,
    *,
    softplus: bool = False,
    initial_state: Any = None,
    ends: Any = None,
    return_state: bool = False,
) -> Any:
    """The same in float64, one position after another."""
    x, step = x.astype(np.float64), dt.astype(np.float64)
    step = step if dt_bias is None else step + dt_bias[:, None]
    step = np.logaddexp(0, step) if softplus else step
    weighted = x * step[..., None]
    words = {"scale": 1.0, "initial_state": initial_state, "ends": ends, "return_state": True}
    y, state = recurrence.reference(C, B, weighted, step * A[:, None], **words)
    y = y if D is None else y + D[:, None, None] * x
    return (y, state) if return_state else y


@pk.kernel
def step_gradient(  # type: ignore[no-untyped-def]
    inside,
    of_queries,
    of_values,
    sums,
    whole,
    skipped,
    dt,
    rate,
    bias,
    d_dt,
    of_rate,
    of_bias,
    of_skip,
    ends,
    *,
    softplus,
):
    """The gradient of the steps of a run, and what the run adds to those of the rate, the bias and the skip of a head.

    whole, skipped: parts of columns of the products of values with their gradients for a step of 1, and with those of
    outputs.
    """
    batch, heads, n = dt.shape
    pk.overlap()
    b, h, run = pk.grid(batch, heads, slots_of(n, ends, RUN))
    slot, (sequence, run) = run, unit_at(ends, b, run, n, RUN)
    of_log = of_logarithms(inside, of_queries, of_values, sums, sequence, h, run)
    of_value: Any = pk.zeros(pk.f32, RUN)
    for part in range(pk.static(whole.shape[0])):
        of_value = of_value + of_run(whole, part, sequence, h, run)
    raw = pk.load(sequence.heads(dt)[h, run], cols=RUN)
    own_rate, own_bias = pk.load(rate[h]), None if bias is None else pk.load(bias[h])
    step = step_of(raw, own_bias, softplus)
    found = of_value + of_log * own_rate
    if softplus:
        found = found * pk.sigmoid(step_of(raw, own_bias, False))
    pk.store(sequence.heads(d_dt)[h, run], found.to(d_dt.dtype))
    is_inside = pk.iota(RUN) < sequence.n - run * RUN
    pk.store(of_rate[b, h, slot], pk.sum(pk.where(is_inside, of_log * step, 0.0)))
    if of_bias is not None:
        pk.store(of_bias[b, h, slot], pk.sum(pk.where(is_inside, found, 0.0)))
    if of_skip is not None:
        total: Any = 0.0
        for part in range(pk.static(skipped.shape[0])):
            total = total + pk.sum(of_run(skipped, part, sequence, h, run))
        pk.store(of_skip[b, h, slot], total)


CASES = (
    {"batch": 16, "heads": 16, "length": 1024, "d": 64, "width": 64},
    {"batch": 1, "heads": 64, "length": 12288, "d": 128, "width": 64},
    {"batch": 1, "heads": 2, "length": 100, "d": 16, "width": 24},
    {"batch": 2, "heads": 3, "length": 65, "d": 48, "width": 40},
)


def inputs(
    rng: np.random.Generator, batch: int, heads: int, length: int, d: int, width: int
) -> dict[str, Any]:
    """Random normal x, B and C in bf16, one group; steps from 0.001 to 0.1; A from -1 to -16."""
    shapes = {"x": (heads, width), "B": (1, d), "C": (1, d)}
    found: dict[str, Any] = {
        name: rng.standard_normal((batch, own, length, size)).astype(ml_dtypes.bfloat16)
        for name, (own, size) in shapes.items()
    }
    found["dt"] = 10 ** rng.uniform(-3, -1, (batch, heads, length)).astype(np.float32)
    found["A"] = -rng.uniform(1, 16, heads).astype(np.float32)
    found["D"] = rng.standard_normal(heads).astype(np.float32)
    return {name: found[name] for name in ("x", "dt", "A", "B", "C", "D")}


def check_mamba2(arrays: Arrays) -> None:
    """Raise an ArgumentError unless the arrays of a call fit one another, and their dtypes are right."""
    arrays.shapes(x=OF_V, B=OF_QK, C=OF_QK, dt="batch heads n", gradient=OF_V, out=OF_V)
    arrays.shapes(**dict.fromkeys(("A", "D", "dt_bias"), "heads"))
    count_sequences(arrays, "x")
    arrays.shapes(**dict.fromkeys(("initial_state", "state_gradient"), OF_STATE))
    arrays.dtypes("x", "B", "C", "gradient", "out", among=NARROW)
    arrays.dtypes("dt", among=FLOATS)
    arrays.dtypes("A", "D", "dt_bias", among=("f32",))
    check_heads(arrays, "x", "B and C")
    arrays.positive("batch", "heads", "n", "width")


@entry(reference=reference, cases=CASES, inputs=inputs)
def mamba2(
    x: Any,
    dt: Any,
    A: Any,
    B: Any,
    C: Any,
    D: Any = None,
    dt_bias: Any = None,
    out: Any = None,
    *,
    softplus: bool = False,
    initial_state: Any = None,
    ends: Any = None,
    return_state: bool = False,
    segments: int | None = None,
    config: LinearConfig | None = None,
) -> Plan:
    """y = S^T C + D x at each position, with the state S = exp(A dt) S + B (dt x)^T, which begins with 0.

    x: (batch, heads, n, width), B, C: (batch, groups, n, d), all bf16 or all f16, NumPy or PyTorch, in any strides; d
    is at most 256. Head h goes with group h // (heads / groups). dt: (batch, heads, n), bf16, f16 or f32; `dt_bias`
    (heads,) is added to it, and the softplus of that is taken if `softplus`; the result must be at least 0. A, at most
    0, and D: (heads,), all f32. The result has the shape and dtype of x; it is written to `out` if that is given.

    initial_state: f32 (batch, heads, d, width) in place of 0. With return_state the result is (out, state), the state
    after the last position, with the accuracy of f32. ends: int32 (sequences + 1,), where packed sequences start and
    where the last one ends, as of linear_attention, like segments and config. An ArgumentError for other arguments.

        >>> x, dt = np.ones((1, 1, 3, 16), np.float16), np.ones((1, 1, 3), np.float32)
        >>> mamba2(x, dt, np.zeros(1, np.float32), x, x)[0, 0, :, 0]
        array([16., 32., 48.], dtype=float16)
    """
    given = {"x": x, "dt": dt, "A": A, "B": B, "C": C, "D": D, "dt_bias": dt_bias}
    arrays = Arrays("mamba2", **given, initial_state=initial_state, ends=ends, out=out)
    check_mamba2(arrays)
    dims, parts = arrays.dims, checked(arrays, segments)
    result = make_outputs(arrays, return_state, "x")
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    arrays.lines(*arrays.found)
    (skip,) = arrays.present("D")
    passes = Passes(arrays, 1.0, parts, config, GATES, softplus, skip)
    (before,) = arrays.present("initial_state")
    states = before, "state" if return_state else None
    sizes = dims["d"], dims["width"]
    how: dict[str, Any] = {"exact": return_state, "skips": True, "alone": True}
    passes.add("C", "B", "x", "out", sizes, states=states, **how)
    return Plan(arrays, passes.steps, passes.scratch, result)


@functools.partial(host_function, numbers={})
def mamba2_backward(
    x: Any,
    dt: Any,
    A: Any,
    B: Any,
    C: Any,
    gradient: Any,
    D: Any = None,
    dt_bias: Any = None,
    *,
    softplus: bool = False,
    initial_state: Any = None,
    state_gradient: Any = None,
    ends: Any = None,
    segments: int | None = None,
    config: LinearConfig | None = None,
) -> Plan:
    """The gradients of x, dt, A, B and C, and then those of D, dt_bias and initial_state if these are given.

    gradient: that of the result, (batch, heads, n, width); width is at most 256. state_gradient: that of the state
    after the last position, f32 (sequences, heads, d, width), or None. The other arguments are those of mamba2. The
    gradients have the shapes and dtypes of what they are of; sums are in f32. An ArgumentError for other arguments.

        >>> x, dt = np.ones((1, 2, 8, 32), np.float16), np.ones((1, 2, 8), np.float32)
        >>> [y.shape for y in mamba2_backward(x, dt, -dt[0, :, 0], x, x, x)]
        [(1, 2, 8, 32), (1, 2, 8), (2,), (1, 2, 8, 32), (1, 2, 8, 32)]
    """
    given = {"x": x, "dt": dt, "A": A, "B": B, "C": C, "gradient": gradient, "D": D}
    given |= {"dt_bias": dt_bias, "initial_state": initial_state, "state_gradient": state_gradient}
    arrays = Arrays("mamba2_backward", **given, ends=ends)
    check_mamba2(arrays)
    dims, parts = arrays.dims, checked(arrays, segments)
    check_width(arrays)
    result = arrays.gradients(*GIVEN)
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    arrays.lines(*arrays.found)
    skip, bias = arrays.present("D", "dt_bias")
    passes = Passes(arrays, 1.0, parts, config, GATES, softplus, skip)
    kept = ("whole", "skipped") if skip else ("whole",)
    of_q, of_v = add_passes(passes, "C", "B", "x", (dims["d"], dims["width"]), kept)
    sums = f"inside_{of_q}", f"dots_{of_q}", f"dots_{of_v}", "sums"
    skipped = f"skipped_{of_v}" if skip else None
    totals = {name: f"totals_{name}" for name in ("A", bias, skip) if name}
    runs = Scratch((*passes.heads, passes.slots(RUN, 1)))
    passes.scratch |= dict.fromkeys(totals.values(), runs)
    of_heads = (totals.get(name) if name else None for name in ("A", bias, skip))
    args = (*sums, f"whole_{of_v}", skipped, "dt", "A", bias, "ddt", *of_heads, passes.ends)
    passes.steps.append(PlanStep(step_gradient, args, {"softplus": softplus}))
    passes.steps += [
        PlanStep(sum_of_head, (own, gradient_of(name))) for name, own in totals.items()
    ]
    return Plan(arrays, passes.steps, passes.scratch, result)
