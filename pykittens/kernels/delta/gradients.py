"""The gradients of what is given to the delta rule, of all chunks at once.

With the names of `reverse`, S the state before a chunk, M_ij = exp(c_i - c_j) for j <= i, else 0, and N that of j < i,

    dQ = scale (M * dO U^T) K + scale exp(c_i) dO S^T
    dK = scale (M * dO U^T)^T Q + G K + G^T K + exp(c - c_i) U dS'^T - beta exp(c_i) dE S^T,  G = -beta (N * dE U^T)
    dV = beta dE
    d_beta_i = dE_i (V_i - exp(c_i) S^T k_i) - sum over j of (N * dE U^T)_ij (k_i k_j)

The gradient of a logarithm of decay is the sum of all products that have its position between their two, which are of
two positions of a chunk, of the state before it and a position, of a position and the state after it, or of these two
states. Each kind is summed as it is, so nothing cancels that the decay itself makes small.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.delta.chunk import scaled
from pykittens.kernels.linear.chunk import CHUNK, ROWS, log_decay, rows_of
from pykittens.kernels.linear.sequences import is_there, slots_of, unit_at

HALF = 32  # columns


def shared_bytes(d: int, width: int) -> int:
    """Bytes of shared memory of a block of `chunk_gradients`."""
    rows, columns = rows_of(d), rows_of(width)
    return 2 * CHUNK * (2 * rows + 3 * columns) + 2 * 2 * columns * ROWS + 4 * HALF * 4 + 64


@pk.function
def sums_of(decay: Any, sequence: Any, h: Any, chunk: Any) -> tuple[Any, Any, Any]:
    """The sums of the logarithms of decay of a chunk, along rows and along columns, and that of all; None without."""
    if decay is None:
        return None, None, None
    log = log_decay(decay, sequence, h, chunk)
    total, sums = pk.sum(log), pk.cumsum(log)
    return pk.spread(sums, pk.per_row), pk.spread(sums, pk.per_column), total


@pk.function
def kept_between(first: Any, last: Any, is_earlier: Any) -> Any:
    """The factors between positions, 0 where the condition is false."""
    if first is None:
        return pk.where(is_earlier, 1.0, pk.zeros(pk.f32, CHUNK, CHUNK))
    return pk.exp2(pk.where(is_earlier, last - first, -pk.inf))


@pk.function
def dots(a: Any, b: Any) -> Any:
    """The sum of the products of the elements of two tiles of shared memory."""
    total: Any = 0.0
    for r in pk.range(a.rows // CHUNK):
        x, y = (pk.load(z.tiles(CHUNK, ROWS)[r, 0]).to(pk.f32) for z in (a, b))
        total = total + pk.sum(x * y)
    return total


def halves() -> list[tuple[int, Any]]:
    """Parts of the columns of a chunk and their indices; sums of their columns take less shared memory."""
    return [(c, pk.col_index(HALF) + HALF * c) for c in range(CHUNK // HALF)]


@pk.kernel
def chunk_gradients(  # type: ignore[no-untyped-def]
    Q,
    K,
    V,
    dO,
    U,
    dE,
    beta,
    decay,
    states,
    afters,
    dQ,
    dK,
    dV,
    d_beta,
    d_decay,
    scale,
    ends,
    *,
    resident,
):
    """The gradients of q and k of each head, of v and beta, and of a decay of each position.

    states, afters: the transposes of the states before chunks, and of the gradients of those after them. ends: as of
    `delta_outputs`; U, dE, and the gradients of a decay of a head, then have chunks of their own.
    """
    batch, heads, n, width = V.shape
    d, dtype = pk.static(K.shape[3]), V.dtype
    rows, columns = rows_of(d), rows_of(pk.static(width))
    pk.resident(resident)
    q, k = (pk.shared(pk.st(dtype, CHUNK, rows)) for _ in range(2))
    do, u, de = (pk.shared(pk.st(dtype, CHUNK, columns)) for _ in range(3))
    s, ds = (pk.shared(pk.st(dtype, columns, ROWS)) for _ in range(2))
    full, part_full = pk.semaphore(1), pk.semaphore(1)
    b, h, i = pk.grid(batch, heads, slots_of(n, ends))
    slot, (here, i) = i, unit_at(ends, b, i, n)

    if is_there(ends, here, i):
        full.expect(q, k, do, u, de)
        for tile, tensor in ((k, K), (q, Q), (do, dO)):
            pk.load_async(tile, here.matrix(tensor, h, heads)[i, 0], signal=full)
        for tile, tensor in ((u, U), (de, dE)):
            pk.load_async(tile, tensor[b, h, slot, 0], signal=full)
        row, col = pk.row_index(CHUNK), pk.col_index(CHUNK)
        own, other, total = sums_of(decay, here, h, i)
        prefix, suffix = (None, None) if own is None else (pk.exp2(own), pk.exp2(total - own))
        rate = pk.load(here.heads(beta)[h, i], cols=CHUNK, spread=pk.per_row).to(pk.f32)
        full.wait(0)

        kept = kept_between(other, own, row >= col)
        alike, weights = pk.mma_ABt(k, k), pk.mma_ABt(do, u) * kept * scale
        below = pk.where(row > col, pk.mma_ABt(de, u) * kept, 0.0)
        of_rate, below = -pk.row_sum(below * alike), below * -rate
        if decay is not None:
            pairs = weights * pk.mma_ABt(q, k) + below * alike
            earlier = pk.row_cumsum(pairs) - pairs
            inside = [
                pk.col_sum(pk.where(row >= part, earlier[:, HALF * c : HALF * (c + 1)], 0.0))
                for c, part in halves()
            ]
        of_q, kept = weights.to(dtype), kept_between(own, other, row <= col)
        across = pk.load(here.heads(beta)[h, i], cols=CHUNK, spread=pk.per_column).to(pk.f32)
        above = pk.where(row < col, pk.mma_ABt(u, de) * kept, 0.0) * across
        of_both, of_k = (below - above).to(dtype), (pk.mma_ABt(u, do) * kept * scale).to(dtype)

        seen = left = pk.zeros(pk.f32, CHUNK, spread=pk.per_row)
        of_states: Any = 0.0
        for c in pk.range(rows // ROWS):
            part_full.expect(s, ds)
            pk.load_async(s, states[b, h, slot, 0, c], signal=part_full)
            pk.load_async(ds, afters[b, h, slot, 0, c], signal=part_full)
            some_q, some_k = (x.tiles(CHUNK, ROWS)[0, c] for x in (q, k))
            part_full.wait(c)
            x = scaled(pk.mma_AB(do, s) * scale, prefix)
            seen = seen + pk.row_sum(x * pk.load(some_q).to(pk.f32))
            pk.store(here.heads(dQ)[h, i, c], pk.mma_AB(of_q, some_k, x).to(dQ.dtype))
            key = pk.load(some_k).to(pk.f32)
            x, y = scaled(pk.mma_AB(u, ds), suffix), scaled(pk.mma_AB(de, s), prefix)
            known = pk.row_sum(y * key)
            of_rate, seen, left = of_rate - known, seen - known * rate, left + pk.row_sum(x * key)
            x = pk.mma_AB(of_both, some_k, pk.mma_AB(of_k, some_q, x - y * rate))
            if decay is not None:
                of_states = of_states + dots(s, ds)
            pk.store(here.heads(dK)[h, i, c], x.to(dK.dtype))
        for c in pk.range(columns // ROWS):
            own_values = pk.load(de.tiles(CHUNK, ROWS)[0, c]).to(pk.f32)
            value = pk.load(here.heads(V)[h, i, c], rows=CHUNK, cols=ROWS).to(pk.f32)
            of_rate = of_rate + pk.row_sum(own_values * value)
            pk.store(here.heads(dV)[h, i, c], (own_values * rate).to(dtype))
        pk.store(here.heads(d_beta)[h, i], of_rate.to(beta.dtype))
        if decay is not None:
            of_states = of_states * pk.exp2(total)
            for half, part in halves():
                sums = inside[half] + pk.col_sum(pk.where(row >= part, seen, left))
                own_sums, at = sums + of_states, CHUNK // HALF * i + half
                if ends is None or len(decay.shape) > 1:
                    pk.store(here.heads(d_decay)[h, at], own_sums)
                else:
                    is_inside = pk.col_index(HALF) + HALF * at < here.n
                    at = CHUNK // HALF * slot + half
                    pk.store(d_decay[b, h, at], pk.where(is_inside, own_sums, 0.0))
    elif d_decay is not None and len(decay.shape) == 1:
        pk.store(d_decay[b, h, slot], pk.zeros(pk.f32, CHUNK))
