"""The host function of Hedgehog attention, and its cases."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from pykittens.kernels.arrays import Arrays
from pykittens.kernels.library import entry
from pykittens.kernels.linear.call import checked
from pykittens.kernels.linear.hedgehog.call import HedgehogPasses, check, config_for, make_outputs
from pykittens.kernels.linear.hedgehog.forward import hedgehog_outputs
from pykittens.kernels.linear.hedgehog.reference import reference
from pykittens.kernels.plan import Plan, PlanStep

TIMES = 5.0, 1.5  # microseconds of an H200 for a chunk: of its outputs, and of its state alone
CASES = (
    {"batch": 16, "heads": 16, "length": 1024, "d": 128, "width": 128},
    {"batch": 1, "heads": 16, "length": 6144, "d": 128, "width": 128},
    {"batch": 1, "heads": 1, "length": 200, "d": 16, "width": 24},
    {"batch": 1, "heads": 2, "length": 65, "d": 16, "width": 40},
)


def inputs(
    rng: np.random.Generator,
    batch: int,
    heads: int,
    length: int,
    d: int,
    width: int,
    features: int = 64,
) -> dict[str, Any]:
    """Random normal q, k and v in bf16, maps whose results are too, and factors of heads from 0 to 1."""
    found: dict[str, Any] = {
        name: rng.standard_normal((batch, heads, length, size)).astype(ml_dtypes.bfloat16)
        for name, size in {"q": d, "k": d, "v": width}.items()
    }
    for name in ("query_map", "key_map"):
        matrix = rng.standard_normal((heads, d, features)) * d**-0.5
        found[name] = matrix.astype(ml_dtypes.bfloat16)
    return found | {"factors": rng.uniform(0.1, 1, (2, heads)).astype(np.float32)}


@entry(reference=reference, cases=CASES, inputs=inputs)
def hedgehog_attention(
    q: Any,
    k: Any,
    v: Any,
    query_map: Any,
    key_map: Any,
    out: Any = None,
    *,
    factors: Any = None,
    scale: float | None = None,
    initial_state: Any = None,
    ends: Any = None,
    return_state: bool = False,
    return_rows: bool = False,
    segments: int | None = None,
) -> Plan:
    """A softmax of near positions and linear attention of the others, with one sum of weights: Hedgehog, LoLCATs.

    q, k: (batch, heads, n, d), v: (batch, heads, n, width), query_map, key_map: (heads, d, features), all bf16 or all
    f16, NumPy or PyTorch, in any strides; d is at most 128, and features at most 64. The result (batch, heads, n,
    width) has their dtype; it is written to `out` if that is given. Positions are in chunks of 64. Each sees those of
    its chunk up to it and all of the chunk before with the weights a exp(s - m), s = scale q k and m the largest of
    these s, and those of earlier chunks with the weights b phi(q) phi(k), phi(x) = (softmax(x map), softmax(-x map)).
    Its result is the sum of weights times values, divided by the sum of weights.

    factors: f32 (2, heads), a and b of each head, at least 0; 1 if None. With an a of 0 the first positions have no
    weights without an initial state, and are NaN. scale: 1 / sqrt(d) if None. initial_state: f32 (sequences, heads, 2
    features, width + 1), what all positions see by features beside these: sums of phi(k) times v, and of phi(k) in the
    last column. With return_state the result is (out, state), what position n would see so. With return_rows there is
    one more at the end, f32 (batch, heads, 3, n), for gradients: m / ln 2, the sum of weights, and which score m is,
    counted from the first position of the chunk before. Sums are in f32; weights, states and features are rounded to
    the dtype where they are multiplied.

    ends: int32 (sequences + 1,), where packed sequences start and where the last one ends, as of linear_attention;
    without it, each batch is a sequence. Chunks begin anew with each. segments: parts of a sequence that have blocks of
    their own; if None, chosen so that few heads keep the GPU busy. An ArgumentError for other arguments.

    Source: Zhang et al., "The Hedgehog & the Porcupine", 2024; Zhang et al., "LoLCATs", 2024.

        >>> x, to = np.ones((1, 2, 200, 16), np.float16), np.ones((2, 16, 32), np.float16)
        >>> hedgehog_attention(x, x, x, to, to)[0, 0, ::99, 0]
        array([1., 1., 1.], dtype=float16)
    """
    given = {"q": q, "k": k, "v": v, "query_map": query_map, "key_map": key_map, "out": out}
    given |= {"factors": factors, "initial_state": initial_state, "ends": ends}
    arrays = Arrays("hedgehog_attention", **given)
    check(arrays)
    dims, parts = arrays.dims, checked(arrays, segments)
    result = make_outputs(arrays, return_state, return_rows)
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    arrays.lines(*arrays.found)
    passes = HedgehogPasses(arrays, scale, parts)
    config = config_for(*passes.sizes, passes.limits)
    before, factors = arrays.present("initial_state", "factors")
    states = before, "state" if return_state else None
    cut = passes.cut_by_time("starts", TIMES, config, dims["both"], is_fixed=False)
    starts = passes.starts(cut, 1, states)
    rows = "rows" if return_rows else None
    args = (
        "q",
        "k",
        "v",
        "query_map",
        "key_map",
        factors,
        "out",
        rows,
        *starts[:3],
        "scale",
        passes.ends,
    )
    passes.steps.append(PlanStep(hedgehog_outputs, args, {"config": config}))
    return Plan(arrays, passes.steps, passes.scratch, result)
