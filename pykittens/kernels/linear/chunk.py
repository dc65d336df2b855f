"""Parts of the kernels of linear attention: the decay inside of a chunk of positions, and the state after it.

Let c_i be the sum of the logarithms of the decay up to position i of a chunk, c the sum of all, and S the state before
the chunk. Then

    o_i = exp(c_i) q_i S + sum over j <= i of exp(c_i - c_j) (q_i k_j) v_j
    S' = exp(c) S + sum over j of k_j (exp(c - c_j) v_j)^T

In reverse the state comes from behind, and with S the state behind the chunk

    o_i = exp(c - c_i) q_i S + sum over j >= i of exp(c_j - c_i) (q_i k_j) v_j
    S' = exp(c) S + sum over j of k_j (exp(c_j) v_j)^T

No factor is above 1 if no decay is, so none overflows, however strong the decay is. Logarithms are to base 2.
Source: Sun et al., "Retentive Network", 2023; Yang et al., "Gated Linear Attention Transformers", 2024, section 4.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk

CHUNK = 64  # positions
ROWS = 64  # rows of a state that a warpgroup multiplies at a time
# The least logarithm of a decay: its exponential is 0 in f32, and sums of a chunk lose little beside it.
LEAST = -150.0


def rows_of(d: int) -> int:
    """The rows of a state with d of them: those past the last are 0."""
    return -(-d // ROWS) * ROWS


def gates_ring(stages: int) -> Any:
    """The ring of the sums of decay of a chunk: up to each position, from there to the end, and of all."""
    return pk.pipeline(
        stages,
        before=pk.sv(pk.f32, CHUNK),
        behind=pk.sv(pk.f32, CHUNK),
        total=pk.sv(pk.f32, CHUNK),
    )


def chunks_of(chunks: Any, segments: Any, segment: Any, reverse: bool) -> Any:
    """The chunks of a segment, one after another; of all if `segments` is None."""
    if segments is None:
        return pk.range(chunks - 1, -1, -1) if reverse else pk.range(chunks)
    first, stop = chunks * segment // segments, chunks * (segment + 1) // segments
    return pk.range(stop - 1, first - 1, -1) if reverse else pk.range(first, stop)


def matrix_of(x: Any, b: Any, h: Any, heads: Any) -> Any:
    """The matrix of a head of a tensor, whose heads may be shared by several of all heads."""
    return x.at(b, h // (heads // x.shape[1]))


@pk.function
def log_decay(decay: Any, b: Any, h: Any, chunk: Any, n: Any) -> Any:
    """The logarithms of the decay of a chunk, 0 past the last of n positions: one for each position or for the head."""
    if len(decay.shape) == 1:
        log = pk.where(pk.iota(CHUNK) < n - chunk * CHUNK, pk.load(decay[h]), 0.0)
    else:
        log = pk.load(decay[b, h, chunk], cols=CHUNK)
    return pk.maximum(log * pk.log2e, LEAST)


@pk.function
def fill_gates(ring: Any, log: Any) -> Any:
    """Fill a stage with the sums of a chunk's decay; returns the sum of all."""
    total, before = pk.sum(log), pk.cumsum(log)
    with ring.fill() as t:
        pk.store(t.before, before)
        pk.store(t.behind, total - before)
        pk.store(t.total, pk.zeros(pk.f32, CHUNK) + total)
    return total


@pk.function
def drained_gates(ring: Any, reverse: bool) -> tuple[Any, Any, Any, Any]:
    """Sums of the decay of a chunk, None without decay: along rows those between a position and the state that it sees,
    between it and the state that it is part of, and of all; and those between two positions, of which one sees the
    other.
    """
    if ring is None:
        return None, None, None, None
    with ring.drain() as t:
        before, behind, total = (
            pk.load(x, spread=pk.per_row) for x in (t.before, t.behind, t.total)
        )
        across = pk.load(t.before, spread=pk.per_column)
    if reverse:
        return behind, before, total, across - before
    return before, behind, total, before - across


@pk.function
def store_operand(memory: Any, tiles: list[Any]) -> None:
    """Store tiles, one below another, with which warps of the group multiply, once its products before are done."""
    pk.mma_wait()
    pk.sync()
    for r, x in enumerate(tiles):
        pk.store(memory.tiles(x.rows, memory.cols)[r, 0], x)
    pk.fence_async()
    pk.sync()


@pk.function
def next_state(
    state: list[Any], k: Any, v: Any, log: Any, total: Any, scaled: Any, exact: bool
) -> list[Any]:
    """The state after a chunk, 64 rows at a time.

    Values that decay by `log` until then are rounded to the dtype, in memory of their own; if `exact`, what that leaves
    is multiplied, too.
    """
    if log is None:
        return with_products(state, k, v)
    values = pk.load(v).to(pk.f32) * pk.exp2(log)
    high = values.to(scaled.dtype)
    store_operand(scaled, [high])
    state = with_products([x * pk.exp2(total) for x in state], k, scaled)
    if exact:
        store_operand(scaled, [(values - high.to(pk.f32)).to(scaled.dtype)])
        state = with_products(state, k, scaled)
    return state


@pk.function
def with_products(state: list[Any], k: Any, v: Any) -> list[Any]:
    """The state and the products of the keys and the values of a chunk."""
    parts = k.tiles(CHUNK, ROWS)
    return [pk.mma_AtB(parts[0, i], v, x) for i, x in enumerate(state)]


@pk.function
def of_state(q: Any, state: list[Any], memory: Any, exact: bool) -> Any:
    """The products of queries with a state, which is rounded to the dtype; if `exact`, with what that leaves, too."""
    dtype = memory.dtype
    store_operand(memory, [x.to(dtype) for x in state])
    o = pk.mma_AB(q, memory)
    if exact:
        store_operand(memory, [(x - x.to(dtype).to(pk.f32)).to(dtype) for x in state])
        o = pk.mma_AB(q, memory, o)
    return o


def of_part(state: Any, p: int, rows: int) -> tuple[Any, Any]:
    """Part p of the rows of a state in memory, and the coordinate of its ROWS rows there, of which `rows` are in it."""
    return (state, p) if rows == ROWS else (state.window(0, p * rows, (p + 1) * rows), 0)


@pk.function
def zeros(count: int, columns: int) -> list[Any]:
    """A state of 0."""
    return [pk.zeros(pk.f32, ROWS, columns) for _ in range(count)]


@pk.function
def loaded(src: Any, column: Any, count: int, columns: int, rows: int = ROWS) -> list[Any]:
    """Some columns of a state, ROWS rows at a time, of which `rows` are in memory."""
    parts = [of_part(src, p, rows) for p in range(count)]
    return [pk.load(part[i, column], rows=ROWS, cols=columns) for part, i in parts]


@pk.function
def keep(state: list[Any], dst: Any, column: Any, rows: int = ROWS) -> None:
    """Store some columns of a state."""
    for p, x in enumerate(state):
        part, i = of_part(dst, p, rows)
        pk.store(part[i, column], x)


@pk.function
def with_keys(state: list[Any], keys: Any, v: Any) -> list[Any]:
    """A state and the products of a chunk's features of keys, in a tile for each ROWS of them, and its values."""
    return [pk.mma_AtB(keys[p], v, x) for p, x in enumerate(state)]
