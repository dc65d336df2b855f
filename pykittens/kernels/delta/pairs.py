"""What the positions of a chunk are to one another, of all chunks at once: an inverse, and weights of queries.

Let c_i be the sum of the logarithms of the decay up to position i of a chunk, and A the matrix below the diagonal of

    A_ij = beta_i exp(c_i - c_j) (k_i k_j)        j < i

Then (I + A) U = diag(beta) (V - exp(c_i) K S) holds of the values U that the chunk adds to a state S before it. So
X = (I + A)^-1 is found once for each chunk, and with it the recurrence is a few products, in `chunk`. Source: Yang et
al., "Parallelizing Linear Transformers with the Delta Rule over Sequence Length", 2024; "Gated Delta Networks", 2025,
section 3.3.

Powers of A would overflow where keys are alike, so X is substituted forward, in f32. Of its transpose Y = X^T, column j
follows from those before it,

    Y_j = e_j - sum over i < j of Y_i A_ji

16 columns at a time: what earlier blocks are to a block is a product, whose operands are bf16 and what rounding leaves.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.linear.chunk import CHUNK, log_decay, rows_of
from pykittens.kernels.linear.sequences import is_there, slots_of, unit_at

SIDE = 16  # columns that are substituted one after another
BLOCKS = CHUNK // SIDE


def split(x: Any) -> tuple[Any, Any]:
    """A tile in bf16, and what that leaves of it."""
    high = x.to(pk.bf16)
    return high, (x - high.to(pk.f32)).to(pk.bf16)


def shared_bytes(d: int) -> int:
    """Bytes of shared memory of a block of `chunk_pairs`."""
    return 2 * CHUNK * (2 * rows_of(d) + 2 * CHUNK) + 4 * CHUNK * SIDE + 512


@pk.function
def store_blocks(blocks: Any, a: Any) -> None:
    """Store the blocks of a tile on its diagonal, one beside another, column after column."""
    row, own = pk.row_index(CHUNK), a[:, :SIDE]
    for r in range(1, BLOCKS):
        own = pk.where(row >= SIDE * r, a[:, SIDE * r : SIDE * (r + 1)], own)
    at = pk.col_index(SIDE) * CHUNK + row
    pk.scatter(blocks, at, own)


@pk.function
def inverse(blocks: Any, high: Any, low: Any) -> list[Any]:
    """The transpose of (I + A)^-1, 16 columns a tile; A is given by its blocks on the diagonal, and in two parts."""
    row, col, found = pk.row_index(CHUNK), pk.col_index(SIDE), list[Any]()
    parts = list[tuple[Any, Any]]()
    for r in range(BLOCKS):
        y = pk.where(row == col + SIDE * r, 1.0, pk.zeros(pk.f32, CHUNK, SIDE))
        if r:
            seen: Any = None
            for s, (of_high, of_low) in enumerate(parts):
                at = (r, s)
                a, b = (x.tiles(SIDE, SIDE)[at] for x in (high, low))
                seen = pk.mma_ABt(of_high, a, seen)
                seen = pk.mma_ABt(of_high, b, seen)
                seen = pk.mma_ABt(of_low, a, seen)
            y = y - seen
        for i in range(SIDE - 1):
            below = pk.load(blocks.parts(SIDE)[BLOCKS * i + r], spread=pk.per_column)
            y = y - pk.column(y, i) * below
        found.append(y)
        parts.append(split(y))
    return found


@pk.kernel
def chunk_pairs(Q, K, beta, decay, inverses, pairs, scale, ends, *, resident):  # type: ignore[no-untyped-def]
    """The transpose of (I + A)^-1, and scale exp(c_i - c_j) (q_i k_j) for j <= i, of each chunk at its slot."""
    batch, heads, n = beta.shape
    rows, dtype = rows_of(pk.static(K.shape[3])), K.dtype
    pk.resident(resident)
    q, k = (pk.shared(pk.st(dtype, CHUNK, rows)) for _ in range(2))
    high, low = (pk.shared(pk.st(pk.bf16, CHUNK, CHUNK)) for _ in range(2))
    # Results take the memory of what was multiplied, so that more blocks share a multiprocessor.
    of_pairs, of_inverse = (x.tiles(CHUNK, CHUNK)[0, 0] for x in (q, k))
    blocks, full = pk.shared(pk.sv(pk.f32, CHUNK * SIDE)), pk.semaphore(1)
    b, h, i = pk.grid(batch, heads, slots_of(n, ends))
    slot, (here, i) = i, unit_at(ends, b, i, n)

    if is_there(ends, here, i):
        full.expect(q, k)
        pk.load_async(k, here.matrix(K, h, heads)[i, 0], signal=full)
        pk.load_async(q, here.matrix(Q, h, heads)[i, 0], signal=full)
        row, col = pk.row_index(CHUNK), pk.col_index(CHUNK)
        kept: Any = pk.where(row >= col, 1.0, pk.zeros(pk.f32, CHUNK, CHUNK))
        if decay is not None:
            sums = pk.cumsum(log_decay(decay, here, h, i))
            between = pk.spread(sums, pk.per_row) - pk.spread(sums, pk.per_column)
            kept = pk.exp2(pk.where(row >= col, between, -pk.inf))
        rate = pk.load(here.heads(beta)[h, i], cols=CHUNK, spread=pk.per_row).to(pk.f32)
        full.wait(0)
        alike, seen = pk.mma_ABt(k, k), pk.mma_ABt(q, k)
        a = pk.where(row > col, alike * kept, 0.0) * rate
        of_high, of_low = split(a)
        pk.store(high, of_high)
        pk.store(low, of_low)
        store_blocks(blocks, a)
        pk.mma_wait()
        pk.sync()
        pk.store(of_pairs, (seen * kept * scale).to(dtype))
        pk.fence_async()
        pk.sync()
        pk.store_async(pairs[b, h, slot, 0], of_pairs)
        found = inverse(blocks, high, low)
        for r, y in enumerate(found):
            pk.store(of_inverse.tiles(CHUNK, SIDE)[0, r], y.to(dtype))
        pk.fence_async()
        pk.sync()
        pk.store_async(inverses[b, h, slot, 0], of_inverse)
