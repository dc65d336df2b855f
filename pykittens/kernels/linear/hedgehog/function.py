"""The host function of Hedgehog attention, and its cases."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from pykittens.kernels.arrays import NARROW, Arrays
from pykittens.kernels.library import entry
from pykittens.kernels.limits import Limits, first_that_fits, limits_of
from pykittens.kernels.linear.call import OF_V, add_scale, checked
from pykittens.kernels.linear.chunk import CHUNK, ROWS
from pykittens.kernels.linear.config import LinearConfig, segments_for
from pykittens.kernels.linear.hedgehog.features import PARTS, wide
from pykittens.kernels.linear.hedgehog.forward import (
    OF_ROW,
    hedgehog_outputs,
    hedgehog_states,
)
from pykittens.kernels.linear.hedgehog.reference import reference
from pykittens.kernels.linear.states import scan_states
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.kernels.workspace import Scratch

VECTORS = 7040  # bytes for vectors of rows, sums of features and of several warps, and semaphores
WIDEST, MOST = 128, 64  # elements of a query, and features of a map
OF_QK, OF_MAP, OF_STATE = "batch heads n d", "heads d features", "batch heads both columns"
OF_ROWS = f"batch heads {OF_ROW} n"
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


def configs_for(width: int) -> list[LinearConfig]:
    """The configurations for `width` values, the largest first: warpgroups have half of some columns each."""
    columns = dict.fromkeys(min(wide(width), x) for x in (128, 64, 32))
    return [LinearConfig(x // PARTS, PARTS, stages) for x in columns for stages in (2, 1)]


def config_for(d: int, width: int, limits: Limits) -> LinearConfig:
    """The configuration for heads of d queries and `width` values."""

    def shared_bytes(c: LinearConfig) -> int:
        own, pair = c.columns * PARTS, 2 * PARTS * CHUNK * ROWS
        stage = 2 * CHUNK * (3 * wide(d) + 2 * own)
        once = 2 * ROWS * (2 * wide(d) + PARTS * own) + 2 * CHUNK * own + 2 * pair
        return c.stages * stage + once + VECTORS

    configs = configs_for(width)
    if not limits.warpgroups:  # with little memory, copies in flight are worth more than columns
        configs.sort(key=lambda c: -c.stages)
    return first_that_fits("hedgehog_attention", configs, shared_bytes, limits)


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
    weights without an initial state, and are NaN. scale: 1 / sqrt(d) if None. initial_state: f32 (batch, heads, 2
    features, width + 1), what all positions see by features beside these: sums of phi(k) times v, and of phi(k) in the
    last column. With return_state the result is (out, state), what position n would see so. With return_rows there is
    one more at the end, f32 (batch, heads, 3, n), for gradients: m / ln 2, the sum of weights, and which score m is,
    counted from the first position of the chunk before. Sums are in f32; weights, states and features are rounded to
    the dtype where they are multiplied. segments: parts of the sequence that have blocks of their own; if None, chosen
    so that few heads keep the GPU busy. An ArgumentError for other arguments.

    Source: Zhang et al., "The Hedgehog & the Porcupine", 2024; Zhang et al., "LoLCATs", 2024.

        >>> x, to = np.ones((1, 2, 200, 16), np.float16), np.ones((2, 16, 32), np.float16)
        >>> hedgehog_attention(x, x, x, to, to)[0, 0, ::99, 0]
        array([1., 1., 1.], dtype=float16)
    """
    given = {"q": q, "k": k, "v": v, "query_map": query_map, "key_map": key_map, "out": out}
    given |= {"factors": factors, "initial_state": initial_state}
    arrays = Arrays("hedgehog_attention", **given)
    check(arrays)
    dims, parts = arrays.dims, checked(arrays, segments)
    result = make_outputs(arrays, return_state, return_rows)
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    arrays.lines(*arrays.found)
    add_scale(arrays, scale)
    arrays.number("one", 1.0)
    before, factors = arrays.present("initial_state", "factors")
    states: tuple[str | None, str | None] = before, "state" if return_state else None
    limits, (batch, heads, width) = limits_of(q), (dims[x] for x in ("batch", "heads", "width"))
    config, chunks = config_for(dims["d"], width, limits), -(-dims["n"] // CHUNK)
    tasks = batch * heads * -(-width // (config.columns * config.groups))
    count = parts or segments_for(tasks, chunks, limits, config.resident, TIMES, 2)
    steps, scratch = [], {}
    if count > 1:
        columns = -(-(width + 1) // 4) * 4  # in units of 16 bytes
        scratch["starts"] = Scratch((batch, heads, count, dims["both"], columns))
        steps = [
            PlanStep(hedgehog_states, ("k", "v", "key_map", "starts"), {"config": config}),
            PlanStep(scan_states, ("starts", None, *states, "one")),
        ]
        states = "starts", None
    rows = "rows" if return_rows else None
    args = ("q", "k", "v", "query_map", "key_map", factors, "out", rows, *states, "scale")
    steps.append(PlanStep(hedgehog_outputs, args, {"config": config}))
    return Plan(arrays, steps, scratch, result)


def make_outputs(arrays: Arrays, return_state: Any, return_rows: Any) -> tuple[str, ...]:
    """Add the result, and a state and what gradients take of rows if these are returned; the names of all."""
    arrays.result(OF_V, arrays.found["v"].dtype)
    state = arrays.optional("state", OF_STATE, "f32", return_state)
    return "out", *state, *arrays.optional("rows", OF_ROWS, "f32", return_rows)


def check(arrays: Arrays) -> None:
    """Raise an ArgumentError unless the arrays fit one another, and their dtypes are right."""
    arrays.shapes(q=OF_QK, k=OF_QK, v=OF_V, out=OF_V, query_map=OF_MAP, key_map=OF_MAP)
    arrays.shapes(factors="2 heads", gradient=OF_V, rows=OF_ROWS)
    arrays.dtypes("q", "k", "v", "query_map", "key_map", "out", "gradient", among=NARROW)
    arrays.dtypes("factors", "initial_state", "state_gradient", "rows", among=("f32",))
    dims = arrays.dims
    for name, most in (("d", WIDEST), ("features", MOST)):
        if not 1 <= dims[name] <= most:
            raise arrays.fail(f"{name} must be from 1 to {most}, not {dims[name]}")
    arrays.positive("batch", "heads", "n", "width")
    dims["both"], dims["columns"] = 2 * dims["features"], dims["width"] + 1
    arrays.shapes(initial_state=OF_STATE, state_gradient=OF_STATE)
