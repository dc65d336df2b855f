"""The gradients of Hedgehog attention: a pass forward in time of queries, and one in reverse of keys and values.

Both maps' gradients are sums over batches and positions: each segment of a sequence leaves its own, which a launch
adds in one order, as it does those of the factors.
"""

from __future__ import annotations

import functools
from typing import Any

import pykittens as pk
from pykittens.kernels.arrays import Arrays
from pykittens.kernels.library import host_function
from pykittens.kernels.limits import Limits, first_that_fits, limits_of
from pykittens.kernels.linear.based.backward import sum_columns
from pykittens.kernels.linear.call import add_scale, checked
from pykittens.kernels.linear.chunk import CHUNK, ROWS
from pykittens.kernels.linear.config import LinearConfig, segments_for
from pykittens.kernels.linear.gradient import sum_of_head
from pykittens.kernels.linear.hedgehog.features import PARTS, wide
from pykittens.kernels.linear.hedgehog.forward import hedgehog_states
from pykittens.kernels.linear.hedgehog.function import (
    VECTORS,
    check,
    config_for,
    configs_for,
)
from pykittens.kernels.linear.hedgehog.keys import hedgehog_key_gradients, hedgehog_states_behind
from pykittens.kernels.linear.hedgehog.queries import hedgehog_dots, hedgehog_query_gradients
from pykittens.kernels.linear.states import scan_states
from pykittens.kernels.plan import Plan, PlanStep
from pykittens.kernels.workspace import Scratch

# Of both passes: what each has, and what one leaves to the other.
OF_PASSES, OF_CHUNKS = ("q", "k", "v", "gradient", "rows"), ("dots", "features", "of_largest")
COLUMNS = 16  # of the transposed gradient of a map that a block adds up
# Microseconds of an H200 for a chunk: of all its gradients, and of both states alone.
TIMES = 15.0, 3.0


@pk.kernel
def sum_maps(of_queries, of_keys, d_query_map, d_key_map):  # type: ignore[no-untyped-def]
    """The sums of the transposed gradients of both maps over batches and runs, (batch, heads, runs, 64, d)."""
    heads, d, _ = d_query_map.shape
    pk.overlap()
    which, h, c = pk.grid(PARTS, heads, pk.cdiv(d, COLUMNS))
    for i, (parts, to) in enumerate(((of_queries, d_query_map), (of_keys, d_key_map))):
        if which == i:
            total = pk.zeros(pk.f32, ROWS, COLUMNS)
            for b in pk.range(parts.shape[0]):
                for run in pk.range(parts.shape[2]):
                    total = total + pk.load(parts[b, h, run, 0, c], rows=ROWS, cols=COLUMNS)
            pk.store(to[h, c, 0], total.to(to.dtype), transposed=True)


@pk.kernel
def sum_ends(parts, total, *, count):  # type: ignore[no-untyped-def]
    """A state whose last column is the sum of `count` ones, which follow its others."""
    batch, heads, rows, columns = total.shape
    pk.overlap()
    b, h, r, c = pk.grid(batch, heads, pk.cdiv(rows, ROWS), pk.cdiv(columns, ROWS))
    x = pk.load(parts[b, h, r, c], rows=ROWS, cols=ROWS)
    is_last = pk.col_index(ROWS) == columns - 1 - c * ROWS
    for i in range(1, count):
        more = pk.load(parts.at(b, h)[:, columns - 1 + i][r], cols=ROWS, spread=pk.per_row)
        x = x + pk.where(is_last, more, 0.0)
    pk.store(total[b, h, r, c], x)


def gradient_config(d: int, width: int, limits: Limits) -> LinearConfig:
    """The configuration of both passes for heads of d queries and `width` values."""

    def shared_bytes(c: LinearConfig) -> int:
        """The larger number of both kernels."""
        own, pair = c.columns * PARTS, 2 * PARTS * CHUNK * ROWS
        stage, of_map = 2 * CHUNK * 3 * (wide(d) + own), 2 * wide(d) * ROWS
        once = 2 * PARTS * ROWS * own + of_map + 3 * pair + VECTORS
        return once + max(c.stages * stage + of_map, c.stages * (stage + pair))

    return first_that_fits("hedgehog_attention_backward", configs_for(width), shared_bytes, limits)


@functools.partial(host_function, numbers={})
def hedgehog_attention_backward(
    q: Any,
    k: Any,
    v: Any,
    query_map: Any,
    key_map: Any,
    out: Any,
    rows: Any,
    gradient: Any,
    *,
    factors: Any = None,
    scale: float | None = None,
    initial_state: Any = None,
    state_gradient: Any = None,
    segments: int | None = None,
) -> Plan:
    """The gradients of q, k, v and both maps, and then those of factors and of initial_state if these are given.

    out, rows: the results of hedgehog_attention with return_rows. gradient: that of the result, (batch, heads, n,
    width). state_gradient: that of the state that position n would see, f32, or None. The other arguments are those of
    hedgehog_attention. The gradients have the shapes and dtypes of what they are of; sums are in f32 and have one
    order.

    The largest score of a position is subtracted from the others, and not from the weights of features, so a gradient
    goes through it, to its query and key; of equal scores, to the first. An ArgumentError for other arguments.

        >>> x, to = np.ones((1, 2, 200, 16), np.float16), np.ones((2, 16, 32), np.float16)
        >>> rows = np.ones((1, 2, 3, 200), np.float32)
        >>> [y.shape for y in hedgehog_attention_backward(x, x, x, to, to, x, rows, x)]
        [(1, 2, 200, 16), (1, 2, 200, 16), (1, 2, 200, 16), (2, 16, 32), (2, 16, 32)]
    """
    given = {"q": q, "k": k, "v": v, "query_map": query_map, "key_map": key_map}
    given |= {"out": out, "rows": rows, "gradient": gradient, "factors": factors}
    given |= {"initial_state": initial_state, "state_gradient": state_gradient}
    arrays = Arrays("hedgehog_attention_backward", **given)
    check(arrays)
    dims, count = arrays.dims, checked(arrays, segments)
    result = arrays.gradients("q", "k", "v", "query_map", "key_map", "factors", "initial_state")
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    arrays.lines(*arrays.found)
    add_scale(arrays, scale)
    arrays.number("one", 1.0)
    limits, width, chunks = limits_of(q), dims["width"], -(-dims["n"] // CHUNK)
    config = gradient_config(dims["d"], width, limits)
    parts = -(-width // (config.columns * PARTS))
    tasks = dims["batch"] * dims["heads"] * parts
    count = count or segments_for(tasks, chunks, limits, config.resident, TIMES, 2)
    scratch = scratch_of(arrays, chunks, parts, count)
    steps = [
        *query_steps(arrays, scratch, config, config_for(dims["d"], width, limits)),
        *key_steps(arrays, scratch, config),
        *sum_steps(arrays, scratch),
    ]
    return Plan(arrays, steps, scratch, result)


def scratch_of(arrays: Arrays, chunks: int, parts: int, segments: int) -> dict[str, Scratch]:
    """The memory that launches exchange, of blocks for parts of the columns of values and for segments."""
    dims, dtype = arrays.dims, arrays.found["v"].dtype
    (batch, heads), n, d = (dims["batch"], dims["heads"]), dims["n"], dims["d"]
    columns = -(-(dims["width"] + parts) // 4) * 4  # of states, in units of 16 bytes
    found = {
        "dots": Scratch((parts, batch, heads, chunks * CHUNK)),
        "of_largest": Scratch((parts, batch, heads, chunks * CHUNK)),
        "query_maps": Scratch((batch, heads, segments * parts, ROWS, wide(d))),
        "key_maps": Scratch((batch, heads, segments * parts, ROWS, wide(d))),
        "features": Scratch((batch, heads, chunks * CHUNK, PARTS * ROWS), dtype=dtype),
    }
    if segments > 1:
        shape = batch, heads, segments, dims["both"], columns
        found |= {"starts": Scratch(shape), "behind": Scratch(shape)}
    if "factors" in arrays:
        found["of_factors"] = Scratch((batch, PARTS * heads, segments * parts))
        arrays.alias("sums_of_factors", "d_factors", (PARTS * heads,))
    if parts > 1:
        found |= {f"{x}_of_columns": Scratch((parts, batch, heads, n, d)) for x in ("dq", "dk")}
    if parts > 1 and "initial_state" in arrays:
        found["first"] = Scratch((batch, heads, dims["both"], columns))
    return found


def query_steps(
    arrays: Arrays, scratch: dict[str, Scratch], config: LinearConfig, of_states: LinearConfig
) -> list[PlanStep]:
    """The launches of the gradients of queries; of_states: the configuration of states of segments."""
    before, factors = arrays.present("initial_state", "factors")
    columns = {"columns": config.columns * PARTS}
    steps = [PlanStep(hedgehog_dots, ("out", "gradient", "dots"), columns)]
    if "starts" in scratch:
        args, how = ("k", "v", "key_map", "starts"), {"config": of_states}
        steps += [
            PlanStep(hedgehog_states, args, how),
            PlanStep(scan_states, ("starts", None, before, None, "one")),
        ]
        before = "starts"
    to = "dq_of_columns" if "dq_of_columns" in scratch else "dq"
    of_heads = "query_map", "key_map", factors, to, before
    sums = "query_maps", "of_factors" if factors else None, "scale"
    all_args = (*OF_PASSES, *of_heads, *OF_CHUNKS, *sums)
    return [*steps, PlanStep(hedgehog_query_gradients, all_args, {"config": config})]


def key_steps(arrays: Arrays, scratch: dict[str, Scratch], config: LinearConfig) -> list[PlanStep]:
    """The launches of the gradients of keys, values and the state before all."""
    end, factors = arrays.present("state_gradient", "factors")
    first = "first" if "first" in scratch else None
    if first is None and "initial_state" in arrays:
        first = "d_initial_state"
    how: dict[str, Any] = {"config": config}
    states: tuple[str | None, ...] = None, end, first
    steps = []
    if "behind" in scratch:
        args = "features", "gradient", "dots", end, "behind"
        more = {"count": arrays.dims["features"], "to_start": first is not None}
        steps = [
            PlanStep(hedgehog_states_behind, args, how | more),
            PlanStep(scan_states, ("behind", None, None, first, "one"), {"reverse": True}),
        ]
        states = "behind", end, None
    to = "dk_of_columns" if "dk_of_columns" in scratch else "dk"
    of_states = to, "dv", *states, "key_maps", "scale"
    all_args = (*OF_PASSES, "key_map", factors, *OF_CHUNKS, *of_states)
    return [*steps, PlanStep(hedgehog_key_gradients, all_args, how)]


def sum_steps(arrays: Arrays, scratch: dict[str, Scratch]) -> list[PlanStep]:
    """The launches that add what blocks have left."""
    steps = [PlanStep(sum_maps, ("query_maps", "key_maps", "d_query_map", "d_key_map"))]
    if "of_factors" in scratch:
        steps.append(PlanStep(sum_of_head, ("of_factors", "sums_of_factors")))
    if "dq_of_columns" in scratch:
        steps += [PlanStep(sum_columns, (f"{x}_of_columns", x)) for x in ("dq", "dk")]
    if "first" in scratch:
        count = {"count": scratch["dots"].shape[0]}
        steps.append(PlanStep(sum_ends, ("first", "d_initial_state"), count))
    return steps
