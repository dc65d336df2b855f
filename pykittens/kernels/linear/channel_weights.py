"""The weights of a chunk of linear attention with a gate for each channel, and its queries and keys with gates.

Let a_i be the gates of position i, a vector with one of each channel, and a_j..i the product of those from j to i. A
value weighs, for a query i and a key j <= i, the sum over channels of q_i k_j a_j+1..i. Quotients of products of gates
would overflow, so there are only products.

Positions are cut in runs of 1, 2, 4, 8, 16 and 32. For any two of them there is one length for which they are in two
runs that are beside each other. With s the start of the run of i, the weight is the product of q_i a_s..i and
k_j a_j+1..s-1, and tensor cores find it: a tile has queries with the gates from the start of their run where that is
the second of two, and keys with the gates to the end of theirs where it is the first, and is multiplied by itself.
From one length to the next a row is multiplied by the gates of the run beside its own, if these are between. Rows are
vectors of channels, of which a lane has the same in each row, so nothing moves between lanes but through those tiles. A
warp has the runs up to 16, and meets the others for those of 16 and 32.

Source: Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training", 2024, section 4.3, with two
levels of blocks.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import pykittens as pk
from pykittens.kernels.linear.chunk import CHUNK
from pykittens.kernels.linear.sequences import is_there, slots_of, unit_at

BLOCK = 16  # positions
BLOCKS = CHUNK // BLOCK
LEAST = 1024  # bytes of shared memory that a tile takes
MOST = 3  # blocks on a multiprocessor, which registers hold


def piece_of(d: int) -> int:
    """The channels that a warp takes at a time."""
    return min(-(-d // 16) * 16, 64)


def channels_of(d: int) -> int:
    """The channels of queries and keys with d of them in scratch memory: those past the last are 0."""
    return -(-d // piece_of(d)) * piece_of(d)


def shared_bytes(d: int, has_wide_gates: bool, exact: Sized) -> int:
    """Bytes of shared memory of a block; has_wide_gates: whether gates are f32. exact: as of `weigh_channels`."""
    sizes = [2, 2, 4 if has_wide_gates else 2, *[2] * max(2, 1 + len(exact))]
    tiles = BLOCKS * sum(max(BLOCK * piece_of(d) * x, LEAST) for x in sizes)
    sums = 4 * 2 * BLOCK * BLOCK * BLOCKS
    return tiles + 2 * CHUNK * CHUNK + 4 * BLOCKS * piece_of(d) + sums + 128


def rest_of(x: Any, dtype: Any) -> Any:
    """What rounding leaves of f32, rounded."""
    return (x - x.to(dtype).to(pk.f32)).to(dtype)


@pk.function
def rows_in(tile: Any) -> list[Any]:
    """The rows of a block in f32, each a vector: of two rows no lane needs elements of another lane."""
    return [pk.load(tile.row(j)).to(pk.f32) for j in range(BLOCK)]


@pk.function
def pairs_in_block(own: list[Any], tile: Any) -> tuple[Any, ...]:
    """The weights of the positions of a block for those up to them.

    own: tiles of queries, keys and logarithms of gates. tile: that is written. Returns the weights, rows of
    queries with the gates up to theirs, rows of keys with those after theirs, and the product of all gates.
    """
    row, col = pk.row_index(BLOCK), pk.col_index(BLOCK)
    found = pk.where(row == col, pk.mma_ABt(own[0], own[1]), 0.0)
    gates = [pk.exp2(x * pk.log2e) for x in rows_in(own[2])]
    seen = [x * gate for x, gate in zip(rows_in(own[0]), gates, strict=True)]
    left: list[Any] = []
    for length in (1, 2, 4, 8):
        is_second = [j // length % 2 for j in range(BLOCK)]
        pk.sync()
        for j in range(BLOCK):
            if is_second[j]:
                pk.store(tile.row(j), seen[j].to(tile.dtype))
            elif left:
                pk.store(tile.row(j), left[j].to(tile.dtype))
        pk.sync()
        # Keys that no gate follows in a run are where they were loaded.
        run, product = row // length, pk.mma_ABt(tile, tile if left else own[1])
        found = pk.where((run % 2 == 1) & (run - 1 == col // length), product, found)
        left = left or rows_in(own[1])
        beside = [gates[j // length ^ 1] for j in range(BLOCK)]
        seen = [x * y if z else x for x, y, z in zip(seen, beside, is_second, strict=True)]
        left = [x if z else x * y for x, y, z in zip(left, beside, is_second, strict=True)]
        gates = [x * y for x, y in zip(gates[::2], gates[1::2], strict=True)]
    pk.sync()
    return found, seen, left, gates[0]


@pk.function
def add(memory: Any, tile: Any) -> None:
    """Add a tile to a vector in the order of lanes."""
    pk.store(memory, pk.load(memory, spread=pk.lane_order) + pk.in_lane_order(tile))


@pk.function
def store_rows(tile: Any, is_first: Any, rows: tuple[list[Any], list[Any]], factor: Any) -> None:
    """Fill a tile with some rows if `is_first`, or else with others, times a factor of each column."""
    for some, is_wanted in zip(rows, (is_first, pk.logical_not(is_first)), strict=True):
        if is_wanted:
            for j in range(BLOCK):
                x = some[j] if factor is None else some[j] * factor
                pk.store(tile.row(j), x.to(tile.dtype))


@pk.function
def publish_rows(memory: list[Any], rows: list[Any], factor: Any) -> None:
    """Fill tiles with rows times a factor of each column, and perhaps with what rounding leaves of them."""
    dtype = memory[0].dtype
    for j in range(BLOCK):
        x = rows[j] * factor
        for tile, part in zip(memory, (x.to(dtype), rest_of(x, dtype)), strict=False):
            pk.store(tile.row(j), part)
    pk.fence_async()
    pk.sync()


@pk.function
def around(gates: Any, w: Any, size: int) -> tuple[Any, ...]:
    """Products of the gates of blocks: those before a block, those after it, those of its half, and all."""
    own = [pk.load(gates.parts(size)[x]) for x in range(BLOCKS)]
    one = pk.full(pk.f32, 1.0, size)
    before, after, whole = one, one, one
    for x, gate in enumerate(own):
        before = before * pk.where(w > x, gate, 1.0)
        after = after * pk.where(w < x, gate, 1.0)
        whole = whole * gate
    in_half = pk.where(w == 0, own[1], pk.where(w == 3, own[2], one))
    return before, after, in_half, whole


@pk.kernel
def weigh_channels(  # type: ignore[no-untyped-def]
    Q, K, decay, queries, keys, pairs, kept, ends, *, shared, resident, exact=()
):
    """Chunks of queries with the gates up to theirs, and of keys with those after theirs; `pairs`, what values weigh;
    and `kept`, the products of all gates of a chunk, each at its slot. A warp takes a block.

    ends: where packed sequences start, and where the last ends. exact: which of "queries" and "keys" have, past all
    chunks, what rounding leaves of them.
    """
    batch, heads, n, d = decay.shape
    size, dtype = piece_of(pk.static(d)), Q.dtype
    pieces = channels_of(pk.static(d)) // size
    pk.resident(resident)
    pk.overlap()
    b, h, i = pk.grid(batch, heads, slots_of(n, ends))
    given: Any = [pk.shared(pk.st(x.dtype, BLOCK, size), count=BLOCKS) for x in (Q, K, decay)]
    # Of runs up to a block, and of runs of two blocks.
    of_runs, of_halves, *more = (
        pk.shared(pk.st(dtype, BLOCK, size), count=BLOCKS) for _ in range(max(2, 1 + len(exact)))
    )
    rests: Any = dict(zip(exact, (of_runs, *more), strict=False))
    weights: Any = pk.shared(pk.st(dtype, CHUNK, CHUNK))
    gates: Any = pk.shared(pk.sv(pk.f32, BLOCKS * size))
    # Registers are few.
    sums: Any = pk.shared(pk.sv(pk.f32, 2 * BLOCK * BLOCK), count=BLOCKS)
    is_loaded: Any = pk.semaphore(1, count=BLOCKS)
    all_are_here: Any = pk.semaphore(BLOCKS)

    with pk.warps(BLOCKS) as w:
        slot, (here, i) = i, unit_at(ends, b, i, n)
        if is_there(ends, here, i):
            q, k = (here.heads(x).at(h // shared) for x in (Q, K))
            own, logs = [x[w] for x in given], here.heads(decay).at(h)
            rest, to_block = slots_of(n, ends) * BLOCKS, slot * BLOCKS + w
            of_half, nothing = (pk.zeros(pk.f32, BLOCK, BLOCK) for _ in range(2))
            found, of_block = (sums[w].parts(BLOCK * BLOCK)[x] for x in range(2))
            pk.store(of_runs[w], pk.zeros(dtype, BLOCK, size))
            for x in (found, of_block):
                pk.store(x, pk.in_lane_order(nothing))
            for p in pk.range(pieces):
                pk.store_wait(read=True)
                pk.sync()
                is_loaded[w].expect(*own)
                for to, x in zip(own, (q, k, logs), strict=True):
                    pk.load_async(to, x[i * BLOCKS + w, p], signal=is_loaded[w])
                is_loaded[w].wait(p)
                weight, seen, left, whole = pairs_in_block(own, of_runs[w])
                add(found, weight)
                pk.store(gates.parts(size)[w], whole)
                store_rows(of_runs[w], w % 2 == 1, (seen, left), None)
                all_are_here.arrive()
                all_are_here.wait(2 * p)
                up_to, after, in_half, whole = around(gates, w, size)
                if w == 0:
                    pk.store(kept[b, h, slot, p], whole)
                add(of_block, pk.mma_ABt(of_runs[w], of_runs[w - w % 2]))
                store_rows(of_halves[w], w >= 2, (seen, left), in_half)
                all_are_here.arrive()
                all_are_here.wait(2 * p + 1)
                of_half = pk.mma_ABt(of_halves[2 + w // 2], of_halves[w % 2], of_half)
                results = {"queries": (queries, seen, up_to), "keys": (keys, left, after)}
                for tile, (name, (to, rows, factor)) in zip(own[:2], results.items(), strict=True):
                    memory = [tile, rests[name][w]] if name in exact else [tile]
                    publish_rows(memory, rows, factor)
                    for part, x in enumerate(memory):
                        pk.store_async(to[b, h, to_block + part * rest, p], x)
            parts = weights.tiles(BLOCK, BLOCK)
            own_weights, others = (
                pk.from_lane_order(pk.load(x, spread=pk.lane_order), BLOCK, BLOCK)
                for x in (found, of_block)
            )
            pk.store(parts[w, w], own_weights.to(dtype))
            pk.store(parts[w, w + 1 - w % 2 * 2], pk.where(w % 2 == 1, others, 0.0).to(dtype))
            pk.store(parts[2 + w // 2, w % 2], of_half.to(dtype))
            pk.store(parts[w // 2, 2 + w % 2], nothing.to(dtype))
            pk.fence_async()
            all_are_here.arrive()
            all_are_here.wait(2 * pieces)
            if w == 0:
                pk.store_async(pairs[b, h, slot, 0], weights)
