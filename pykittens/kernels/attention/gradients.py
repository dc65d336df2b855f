"""The host function of the backward pass."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pykittens.kernels.attention.backward import (
    LEAST_STEP,
    finish_gradients,
    gradient_blocks,
    prepare_gradients,
    sink_gradients,
)
from pykittens.kernels.attention.balance import FIXED, section_of, steps_of
from pykittens.kernels.attention.call import SHAPES, Call, zeros
from pykittens.kernels.attention.config import GradientConfig, gradient_config_for
from pykittens.kernels.library import host_function
from pykittens.kernels.limits import limits_of
from pykittens.kernels.plan import Plan, PlanStep


@functools.partial(host_function, numbers={"tensors": ()})
def attention_backward(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    gradient: Any,
    *,
    causal: bool | str = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    key_start: Any = None,
    key_stop: Any = None,
    query_start: Any = None,
    query_stop: Any = None,
    score: Callable[..., Any] | None = None,
    score_gradient: Callable[..., Any] | None = None,
    tensors: tuple[Any, ...] = (),
    sinks: Any = None,
    dropout: float | None = None,
    seed: Any = None,
    deterministic: bool = True,
    config: GradientConfig | None = None,
) -> Plan:
    """The gradients of q, k and v for that of `out`, and of `sinks` if they are given.

    out, lse: what attention(..., return_lse=True) returned for the same arguments. gradient: like out. The gradients
    have the shapes and dtypes of q, k and v; that of `sinks` is f32. Sums are in f32. score_gradient: a @pk.function
    (s, place, *tensors), the derivative of `score` by s; if None, it follows from the operations of `score`.
    query_start, query_stop: int32 (batch, keys), the queries that see each key. They are needed with key_start and
    key_stop, both of them; pykittens.kernels.attention.visible.turned makes them. If they contradict key_start and
    key_stop, the launch may never end, because blocks wait for others that the bounds promise.

    deterministic: the sums of the gradient of q are added in one order, so that equal calls have equal results on GPUs
    with equally many multiprocessors. If False, they are added as they come. config: how the work is cut; if None, it
    is chosen for the widths and the GPU. An ArgumentError for other shapes and dtypes.

        >>> from pykittens.kernels.attention import attention
        >>> q = np.ones((1, 4, 50, 32), pk.bf16.numpy)
        >>> out, lse = attention(q, q, q, return_lse=True)
        >>> [x.shape for x in attention_backward(q, q, q, out, lse, np.ones_like(out))]
        [(1, 4, 50, 32), (1, 4, 50, 32), (1, 4, 50, 32)]
    """
    given = {"q": q, "k": k, "v": v, "out": out, "lse": lse, "gradient": gradient}
    given |= {"key_start": key_start, "key_stop": key_stop}
    given |= {"query_start": query_start, "query_stop": query_stop}
    given |= {"sinks": sinks, "seed": seed}
    how: dict[str, Any] = {"causal": causal, "window": window, "scale": scale, "dropout": dropout}
    how |= {"score": score, "gradient": score_gradient}
    call = Call("attention_backward", given, tensors, **how)
    arrays, dims = call.arrays, call.arrays.dims
    arrays.shapes(out=SHAPES["out"], gradient=SHAPES["out"], lse=SHAPES["lse"])
    arrays.dtypes("lse", among=("f32",))
    bounds = ("key_start", "key_stop", "query_start", "query_stop")
    for name in bounds:
        arrays.needs(name, *bounds)
    if score is None and score_gradient is not None:
        raise arrays.fail("`score_gradient` goes with `score`, which is missing")
    result = arrays.gradients("q", "k", "v", "sinks")
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    arrays.lines(*arrays.found)
    if not (dims["heads"] and dims["queries"] and dims["keys"]):
        empty = [PlanStep(zeros, (name,)) for name in result if 0 not in arrays.made[name].shape]
        return Plan(arrays, empty, result=result)
    limits = limits_of(q)
    config = config or gradient_config_for(dims["d"], dims["width"], limits)
    dims["steps"] = -(-dims["queries"] // config.queries)
    dims["whole"] = dims["steps"] * config.queries  # vectors of whole steps
    d = config.widths(dims["d"], dims["width"])[0]
    dims["sums"] = dims["whole"] * d
    dims["all_heads"] = dims["batch"] * dims["heads"]
    arrays.make("sums", "all_heads sums", "f32")
    for name in ("lse2", "delta"):
        arrays.make(name, "batch heads whole", "f32")
    dims["flags"] = -(-dims["whole"] // LEAST_STEP)
    flags = ("flags",) * bool(deterministic)
    for name in flags:
        arrays.make(name, "batch heads flags", "int32")
    if call.seen != (None, None) or "key_start" in arrays:
        by_key = steps_of(
            call.seen.turned(), config.keys, dims["keys"], config.queries, dims["queries"]
        )
        head_bytes = dims["queries"] * (6 * dims["d"] + 2 * dims["width"]) * call.group
        heads = dims["batch"] * dims["kv_heads"]
        costs = by_key * call.group + FIXED
        call.add("section", section_of(costs, heads, head_bytes, limits, bool(deterministic))[1])
    scale = arrays.given.get("scale", dims["d"] ** -0.5)
    arrays.number("to_q", scale)
    names = tuple(x for x in call.names if x not in ("lse", "sinks"))
    main = ("q", "k", "v", "gradient", "lse2", "delta", "sums", "dk", "dv", *names)
    steps = [
        PlanStep(
            prepare_gradients, ("out", "gradient", "lse", "lse2", "delta", "sums", *flags), {"d": d}
        ),
        PlanStep(gradient_blocks, main, {"config": config, "form": call.form(names)}),
        PlanStep(finish_gradients, ("sums", "dq", "to_q"), {"config": config, "d": d}),
    ]
    if "sinks" in arrays:
        steps.append(PlanStep(sink_gradients, ("lse", "delta", "sinks", "d_sinks")))
    return Plan(arrays, steps, result=result)
