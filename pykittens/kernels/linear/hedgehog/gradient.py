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
from pykittens.kernels.limits import Limits, first_that_fits
from pykittens.kernels.linear.based.backward import sum_columns
from pykittens.kernels.linear.call import checked
from pykittens.kernels.linear.chunk import CHUNK, ROWS
from pykittens.kernels.linear.config import Cut, LinearConfig
from pykittens.kernels.linear.gradient import sum_of_head
from pykittens.kernels.linear.hedgehog.call import VECTORS, HedgehogPasses, check, configs_for
from pykittens.kernels.linear.hedgehog.features import PARTS, wide
from pykittens.kernels.linear.hedgehog.keys import hedgehog_key_gradients, hedgehog_state_gradients
from pykittens.kernels.linear.hedgehog.queries import hedgehog_dots, hedgehog_query_gradients
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
    ends: Any = None,
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
    given |= {"initial_state": initial_state, "state_gradient": state_gradient, "ends": ends}
    arrays = Arrays("hedgehog_attention_backward", **given)
    check(arrays)
    dims, count = arrays.dims, checked(arrays, segments)
    result = arrays.gradients("q", "k", "v", "query_map", "key_map", "factors", "initial_state")
    if not arrays.have_memory:
        return Plan(arrays, [], result=result)
    arrays.lines(*arrays.found)
    passes = HedgehogPasses(arrays, scale, count)
    config = gradient_config(*passes.sizes, passes.limits)
    parts = -(-dims["width"] // (config.columns * PARTS))
    cut = passes.cut_by_time("starts", TIMES, config, dims["both"])
    add_memory(passes, parts, cut.segments)
    add_queries(passes, config, parts, cut)
    add_keys(passes, config, parts, cut)
    add_sums(passes, parts)
    return Plan(arrays, passes.steps, passes.scratch, result)


def add_memory(passes: HedgehogPasses, parts: int, segments: int) -> None:
    """Add the memory that launches exchange, of blocks for parts of the columns of values and for segments."""
    (batch, heads), d, runs = passes.heads, passes.sizes[0], segments * parts
    rows = passes.n if passes.ends else passes.chunks * CHUNK
    of_maps = Scratch((passes.sequences, heads, runs, ROWS, wide(d)))
    of_positions = Scratch((parts, batch, heads, rows))
    passes.scratch |= dict.fromkeys(("query_maps", "key_maps"), of_maps)
    passes.scratch |= dict.fromkeys(("dots", "of_largest"), of_positions)
    passes.scratch["features"] = Scratch((batch, heads, rows, PARTS * ROWS), dtype=passes.dtype)
    if "factors" in passes.arrays:
        passes.scratch["of_factors"] = Scratch((passes.sequences, PARTS * heads, runs))
        passes.arrays.alias("sums_of_factors", "d_factors", (PARTS * heads,))
    if parts > 1:
        of_columns = Scratch((parts, batch, heads, passes.n, d))
        passes.scratch |= dict.fromkeys(("dq_of_columns", "dk_of_columns"), of_columns)


def add_queries(passes: HedgehogPasses, config: LinearConfig, parts: int, cut: Cut) -> None:
    """Add the launches of the gradients of queries."""
    before, factors = passes.arrays.present("initial_state", "factors")
    columns = {"columns": config.columns * PARTS}
    passes.steps.append(PlanStep(hedgehog_dots, ("out", "gradient", "dots"), columns))
    before = passes.starts(cut, parts, (before, None))[0]
    of_heads = "query_map", "key_map", factors, "dq_of_columns" if parts > 1 else "dq", before
    sums = "query_maps", "of_factors" if factors else None, "scale", passes.ends
    args = (*OF_PASSES, *of_heads, *OF_CHUNKS, *sums)
    passes.steps.append(PlanStep(hedgehog_query_gradients, args, {"config": config}))


def add_keys(passes: HedgehogPasses, config: LinearConfig, parts: int, cut: Cut) -> None:
    """Add the launches of the gradients of keys, values and the state before all."""
    arrays, how = passes.arrays, {"config": config}
    before, end, factors = arrays.present("initial_state", "state_gradient", "factors")
    first, sides = before and "d_initial_state", passes.sides(parts)
    if before and parts > 1:
        first, passes.scratch["first"] = (
            "first",
            Scratch((passes.sequences, passes.heads[1], *sides)),
        )
    states: tuple[str | None, ...] = None, end, first
    if cut.segments > 1:
        more = {"count": arrays.dims["features"], "to_start": before is not None}
        args = "features", "gradient", "dots", end, "state_gradients", passes.ends
        step = PlanStep(hedgehog_state_gradients, args, how | more)
        of_all = cut, sides, (None, first)
        states = (
            "state_gradients",
            end,
            passes.add_starts("state_gradients", step, *of_all, reverse=True)[1],
        )
    of_states = (
        "dk_of_columns" if parts > 1 else "dk",
        "dv",
        *states,
        "key_maps",
        "scale",
        passes.ends,
    )
    all_args = (*OF_PASSES, "key_map", factors, *OF_CHUNKS, *of_states)
    passes.steps.append(PlanStep(hedgehog_key_gradients, all_args, how))


def add_sums(passes: HedgehogPasses, parts: int) -> None:
    """Add the launches that add what blocks have left."""
    steps = passes.steps
    steps.append(PlanStep(sum_maps, ("query_maps", "key_maps", "d_query_map", "d_key_map")))
    if "of_factors" in passes.scratch:
        steps.append(PlanStep(sum_of_head, ("of_factors", "sums_of_factors")))
    if parts > 1:
        steps += [PlanStep(sum_columns, (f"{x}_of_columns", x)) for x in ("dq", "dk")]
    if "first" in passes.scratch:
        steps.append(PlanStep(sum_ends, ("first", "d_initial_state"), {"count": parts}))
