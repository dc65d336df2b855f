"""Parts of the kernels of linear attention: the decay inside of a chunk of positions, and the state after it.

Let c_i be the sum of the logarithms of the decay up to position i of a chunk, c the sum of all, and S the state before
the chunk. Then

    o_i = exp(c_i) q_i S + sum over j <= i of exp(c_i - c_j) (q_i k_j) v_j
    S' = exp(c) S + sum over j of k_j (exp(c - c_j) v_j)^T

In reverse the state comes from later positions, and with S the state after the chunk

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
LEAST_LOG = -150.0
# The least logarithm of a step: that of a step of 0 is added to others.
LEAST_LOG_STEP = -125.0


def rows_of(d: int) -> int:
    """The rows of a state with d of them: those past the last are 0."""
    return -(-d // ROWS) * ROWS


def values_in(decay: Any, exact: bool) -> int:
    """The tiles of the dtype that hold values that decay: what the first leaves is in the second."""
    return 0 if decay is None else 2 if exact else 1


def gates_ring(stages: int, weighted: bool) -> Any:
    """The ring of the sums of decay of a chunk: up to each position, from there to the end, and of all; and weights."""
    names = ("prefix", "suffix", "total", *(("weight",) if weighted else ()))
    stage: dict[str, Any] = {name: pk.sv(pk.f32, CHUNK) for name in names}
    return pk.pipeline(stages, **stage)


def bounds_of(chunks: Any, segments: Any, segment: Any) -> tuple[Any, Any]:
    """The first chunk of a segment, and that after its last; of all if `segments` is None."""
    if segments is None:
        return 0, chunks
    return chunks * segment // segments, chunks * (segment + 1) // segments


def segments_in(*states: Any) -> Any:
    """How many segments states have, on an axis of their own; None without one."""
    return next((x.shape[2] for x in states if x is not None and len(x.shape) == 5), None)


def state_at(states: Any, b: Any, h: Any, segment: Any) -> Any:
    """The state of a head, or of one of its segments if it has some; None without states."""
    if states is None:
        return None
    return states.at(b, h, segment) if len(states.shape) == 5 else states.at(b, h)


def chunks_of(chunks: Any, segments: Any, segment: Any, reverse: bool) -> Any:
    """The chunks of a segment, one after another; of all if `segments` is None."""
    first, stop = bounds_of(chunks, segments, segment)
    return pk.range(stop - 1, first - 1, -1) if reverse else pk.range(first, stop)


def matrix_of(x: Any, b: Any, h: Any, heads: Any) -> Any:
    """The matrix of a head of a tensor, whose heads may be shared by several of all heads."""
    return x.at(b, h // (heads // x.shape[1]))


@pk.function
def log_decay(decay: Any, sequence: Any, h: Any, chunk: Any) -> Any:
    """The logarithms of the decay of a chunk, 0 past the last position: one for each position or for the head."""
    if len(decay.shape) == 1:
        log = pk.where(pk.iota(CHUNK) < sequence.n - chunk * CHUNK, pk.load(decay[h]), 0.0)
    else:
        log = pk.load(sequence.heads(decay)[h, chunk], cols=CHUNK)
    return pk.maximum(log * pk.log2e, LEAST_LOG)


@pk.function
def step_of(x: Any, bias: Any, softplus: bool) -> Any:
    """The step of positions in f32: with a bias, and softplus, if that is wanted."""
    wide = x.to(pk.f32) if bias is None else x.to(pk.f32) + bias
    return pk.softplus(wide) if softplus else wide


@pk.function
def fill_gates(
    ring: Any, gates: Any, softplus: bool, sequence: Any, h: Any, chunks: Any, reverse: bool
) -> Any:
    """Fill a stage with the sums of the decay of each chunk, from the first to before the last; returns the sum of all.

    gates: the logarithms of positions or of heads, None, None; or steps of positions, what the logarithms are for a
    step of 1, and a bias of the steps or None. They are 0 past the last position. Weights are logarithms of steps, in
    reverse the steps. What the next chunk has is loaded before a chunk is done, as memory takes long to answer.
    """
    (decay, rate, bias), (first, stop) = gates, chunks
    is_constant = len(decay.shape) == 1
    of_head: Any = pk.load(decay[h]) if is_constant else 0.0 if rate is None else pk.load(rate[h])
    own_bias = None if bias is None else pk.load(bias[h])
    lines: Any = None if is_constant else sequence.heads(decay)
    whole: Any = 0.0
    ahead: Any = None
    if not is_constant:
        ahead = pk.load(lines[h, stop - 1 if reverse else first], cols=CHUNK)
    for i in pk.range(stop - 1, first - 1, -1) if reverse else pk.range(first, stop):
        x: Any = of_head
        weight: Any = None
        if not is_constant:
            x, ahead = ahead, pk.load(lines[h, i - 1 if reverse else i + 1], cols=CHUNK)
        if rate is not None:
            x = step_of(x, own_bias, softplus)
            weight = x if reverse else pk.maximum(pk.log2(x), LEAST_LOG_STEP)
            x = x * of_head
        if is_constant or rate is not None:
            x = pk.where(pk.iota(CHUNK) < sequence.n - i * CHUNK, x, 0.0)
        log = pk.maximum(x * pk.log2e, LEAST_LOG)
        total, prefix = pk.sum(log), pk.cumsum(log)
        with ring.fill() as t:
            pk.store(t.prefix, prefix)
            pk.store(t.suffix, total - prefix)
            pk.store(t.total, pk.zeros(pk.f32, CHUNK) + total)
            if weight is not None:
                pk.store(t.weight, weight)
        whole = whole + total
    return whole


@pk.function
def drained_gates(
    ring: Any, reverse: bool, weighted: bool
) -> tuple[Any, Any, Any, tuple[Any, Any], Any]:
    """Sums of the decay of a chunk, None without decay: along rows those between a position and the state that it sees,
    between it and the state that it is part of, and of all; and two whose difference is that between two positions, of
    which that of the row sees the other. The weights of positions are part of them, forward, and last in reverse, of
    the positions that see: what these see has no weight, so that gradients of weights need no division.
    """
    if ring is None:
        return None, None, None, (None, None), None
    with ring.drain() as t:
        prefix, suffix, total = (
            pk.load(x, spread=pk.per_row) for x in (t.prefix, t.suffix, t.total)
        )
        across = pk.load(t.prefix, spread=pk.per_column)
        own: Any = None
        if weighted and reverse:
            own = pk.load(t.weight, spread=pk.per_row)
        elif weighted:
            weight = pk.load(t.weight, spread=pk.per_row)
            suffix = suffix + weight
            across = across - pk.load(t.weight, spread=pk.per_column)
    if reverse:
        return suffix, prefix, total, (across, prefix), own
    return prefix, suffix, total, (prefix, across), own


@pk.function
def publish(operands: list[tuple[Any, Any]]) -> None:
    """Store tiles to memory, from where warps of the group multiply, once its products before are done."""
    if operands:
        pk.sync()
        for memory, x in operands:
            pk.store(memory, x)
        pk.fence_async()
        pk.sync()


@pk.function
def chunk_products(
    q: Any,
    k: Any,
    v: Any,
    state: list[Any],
    decay: tuple[Any, Any],
    memory: tuple[Any, list[Any]],
    exact: bool,
) -> tuple[Any, Any, list[Any]]:
    """The products of the queries of a chunk with the state and with keys, in flight, and the state after the chunk.

    Without q the state alone. decay: the logarithms for values and for the state, or None. memory: of the state, 64
    rows at a time, which is rounded to the dtype there; if `exact`, what that leaves is multiplied, too. And of values
    that decay, which are rounded, in one tile, or without a loss that matters, in two.
    """
    (log, total), (states, scaled), dtype = decay, memory, v.dtype
    operands: list[tuple[Any, Any]] = []
    values = [v] if log is None else scaled
    if log is not None:
        x = pk.load(v).to(pk.f32) * pk.exp2(log)
        for tile in scaled:
            operands.append((tile, x.to(dtype)))
            x = x - x.to(dtype).to(pk.f32)
    o, s, left, rounds = None, None, state, 2 if exact else 1
    for i in range(rounds):
        if i > 0:  # registers that products add to must not move while others are in flight
            pk.mma_wait()
        if q is not None:
            rounded = [x.to(dtype) for x in left]
            operands += [(states.tiles(ROWS, x.cols)[r, 0], x) for r, x in enumerate(rounded)]
            left = [x - y.to(pk.f32) for x, y in zip(left, rounded, strict=True)]
        if i == rounds - 1 and log is not None:
            state = [x * pk.exp2(total) for x in state]
        if i == 0 and q is not None:
            s = pk.mma_ABt(q, k)
        publish(operands)
        o, operands = None if q is None else pk.mma_AB(q, states, o), []
    for tile in values:
        state = with_products(state, k, tile)
    return o, s, state


@pk.function
def with_products(state: list[Any], k: Any, v: Any) -> list[Any]:
    """The state and the products of the keys and the values of a chunk."""
    parts = k.tiles(CHUNK, ROWS)
    return [pk.mma_AtB(parts[0, i], v, x) for i, x in enumerate(state)]


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
