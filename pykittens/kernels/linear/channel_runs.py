"""Gradients of pairs of positions of linear attention with a gate for each channel, by the runs of `channel_weights`.

A tile has queries with the gates from the start of their run where that is the second of two, and keys with the gates
to the end of theirs where it is the first. With D where the row is in the second run and its column in the first, and
the transpose of D where it is the other way round, the product of D and the tile is what the gradient of a query has of
the keys before it, but for the gates from the start of its run to it; and that of a key, but for those past it to the
end of its run. Operands are in two parts, the second of which is what rounding leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.kernels.linear.channel_weights import BLOCK, BLOCKS, rest_of

AT_ONCE = 8  # rows that are loaded before they are stored


def parts_of(x: Any, dtype: Any) -> tuple[Any, Any]:
    """f32, rounded, and what that leaves."""
    return x.to(dtype), rest_of(x, dtype)


@pk.function
def meet(all_are_here: Any, turn: Any) -> Any:
    """Wait for the other warps; returns the number of the next turn."""
    all_are_here.arrive()
    all_are_here.wait(turn)
    return turn + 1


@pk.function
def publish(x: Any, memory: Any) -> None:
    """Store a tile of which other lanes read rows."""
    pk.sync()
    pk.store(memory, x)
    pk.sync()


@dataclass
class Rows:
    """Rows of the positions of a block: the gates from the start of a run up to each position, and past it to the end;
    and gradients of queries and keys, None until there are some.
    """

    before: list[Any]
    after: list[Any]
    dq: list[Any]
    dk: list[Any]


def seconds(length: int) -> list[bool]:
    """Whether each position of a block is in the second of two runs of so many positions."""
    return [j // length % 2 == 1 for j in range(BLOCK)]


@pk.function
def store_rows(memory: list[Any], tiles: list[Any], factors: list[Any], more: Any) -> None:
    """Fill tiles with rows of others times factors, in two parts. more: another factor of each channel, or None."""
    for first in range(0, BLOCK, AT_ONCE):
        rows = [pk.load(tiles[j].row(j)) for j in range(first, first + AT_ONCE)]
        for j, row in enumerate(rows, first):
            x = row.to(pk.f32) * factors[j]
            x = x if more is None else x * more
            for tile, part in zip(memory, parts_of(x, memory[0].dtype), strict=True):
                pk.store(tile.row(j), part)


def added(x: Any, y: Any) -> Any:
    """The sum, or what is added if there is nothing yet."""
    return y if x is None else x + y


@pk.function
def runs_in_block(
    rows: Rows, gates: list[Any], own: list[Any], weights: list[Any], memory: list[Any], result: Any
) -> Any:
    """Add to gradients what pairs of positions of a block are; returns the product of all gates.

    own: tiles of queries and of keys. weights: D, and its transpose above, in two parts. memory: for operands. result:
    for results.
    """
    row, col = pk.row_index(BLOCK), pk.col_index(BLOCK)
    for length in (1, 2, 4, 8):
        is_second = seconds(length)
        pk.sync()
        tiles = [own[0 if x else 1] for x in is_second]
        factors = [
            x if second else y
            for x, y, second in zip(rows.before, rows.after, is_second, strict=True)
        ]
        store_rows(memory, tiles, factors, None)
        pk.sync()
        is_pair = (row // length != col // length) & (row // (2 * length) == col // (2 * length))
        weight, rest = (pk.where(is_pair, pk.load(x), 0.0) for x in weights)
        publish(with_parts(rest, memory[:1], with_parts(weight, memory)), result)
        for j in range(BLOCK):
            beside, found = gates[j // length ^ 1], pk.load(result.row(j))
            if is_second[j]:
                rows.dq[j] = added(rows.dq[j], rows.before[j] * found)
                rows.before[j] = rows.before[j] * beside
            else:
                rows.dk[j] = added(rows.dk[j], rows.after[j] * found)
                rows.after[j] = rows.after[j] * beside
        gates = [x * y for x, y in zip(gates[::2], gates[1::2], strict=True)]
    for some, other in ((rows.dq, 0), (rows.dk, BLOCK - 1)):
        some[other] = pk.zeros(pk.f32, result.cols)
    pk.sync()
    return gates[0]


@pk.function
def with_parts(a: Any, memory: list[Any], found: Any = None) -> Any:
    """The sum and the products with a tile in two parts."""
    for x in memory:
        found = pk.mma_AB(a, x) if found is None else pk.mma_AB(a, x, found)
    return found


@pk.function
def runs_of_blocks(
    rows: Rows, given: Any, pairs: Any, memory: list[Any], result: Any, at: tuple[Any, ...]
) -> Any:
    """Add to gradients what pairs of positions of different blocks are: runs are first one block, and then two.

    given: the queries of all blocks, and then the keys. pairs: D, and its transpose above. memory: for operands of all
    blocks. at: the block, the gates of the block beside it in a run of two, the semaphore of all warps and the number
    of their turn. Returns the next turn.
    """
    w, in_half, all_are_here, turn = at
    size, dq, dk = result.cols, rows.dq, rows.dk
    one, part = pk.full(pk.f32, 1.0, size), pairs.tiles(BLOCK, BLOCK)
    for level in pk.range(2):
        is_second = w // (1 + level) % 2 == 1
        factor = pk.where(level == 0, one, in_half)
        own = given[pk.where(is_second, w, BLOCKS + w)]
        factors = [pk.where(is_second, x, y) for x, y in zip(rows.before, rows.after, strict=True)]
        operands = [x.tiles(BLOCK, size)[w, 0] for x in memory]
        store_rows(operands, [own] * BLOCK, factors, factor)
        turn = meet(all_are_here, turn)
        product = pk.zeros(pk.f32, BLOCK, size)
        for x in pk.range(1 + level):
            beside = pk.where(level == 0, w + 1 - w % 2 * 2, 2 - w // 2 * 2 + x)
            others = [y.tiles(BLOCK, size)[beside, 0] for y in memory]
            product = with_parts(part[w, beside], others, product)
        turn = meet(all_are_here, turn)
        publish(product, result)
        for j in range(BLOCK):
            x = pk.load(result.row(j)) * factor
            dq[j] = dq[j] + rows.before[j] * pk.where(is_second, x, 0.0)
            dk[j] = dk[j] + rows.after[j] * pk.where(is_second, 0.0, x)
    return turn
