"""Tiles whose sums several blocks split: they exchange sums, and several of them finish columns of the tile each.

Partial sums are added in a fixed order, so results do not depend on timing. Blocks of a cluster send them to each
other's shared memory. Others store them in memory, and a block waits for the others for some microseconds only, because
they may not start before it has ended. Then it leaves its columns to the block that stores its partial sums last.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.gemm.tiles import Task, Tiling, complete, send


@pk.function
def finish_part(
    tiles: Tiling, outputs: Any, task: Task, w: Any, part: Any, products: list[Any]
) -> None:
    """Do the epilogue of a part of the columns and store it."""
    at, x = complete(tiles, task, w, part, products)
    if "row_sums" in tiles.given:
        total = pk.row_sum(at.inside(x))
        pk.store(tiles.given["row_sums"][(*at.lead, at.col, at.row)], total)
    send(tiles, tiles.outgoing(outputs, w), x, tiles.target(at))


# -- in clusters -----------------------------------------------------------------------------------


class Exchange:
    """The places in shared memory to which the blocks of a cluster send their sums of a tile.

    A unit of a tile is a part of the columns of a warpgroup's rows; block u % splits finishes unit u.
    """

    def __init__(self, tiles: Tiling) -> None:
        config = tiles.config
        self.tiles, self.splits, self.others = tiles, config.splits, config.splits - 1
        count = config.places * tiles.products
        self.places = pk.shared(pk.st(pk.f32, tiles.group_rows, config.out_cols), count=count)
        self.arrived = pk.semaphore(1, count=config.consumers)

    def finisher(self, w: Any, part: int) -> Any:
        """The block that finishes a part of a warpgroup's rows."""
        return (w * self.tiles.parts + part) % self.splits

    def place(self, w: Any, part: int, of: int, sender: Any) -> Any:
        """Where a block has the sums of another one for a unit; the senders count from the block on."""
        unit = w * -(-self.tiles.parts // self.splits) + part // self.splits
        return self.places[(unit * self.tiles.products + of) * self.others + sender]

    def expect(self, task: Task, w: Any) -> None:
        """Expect the sums of all others for the units that this block finishes."""
        units: Any = 0
        for part in range(self.tiles.parts):
            units = units + (self.finisher(w, part) == task.split).to(pk.int32)
        each = self.tiles.group_rows * self.tiles.config.out_cols * 4 * self.tiles.products
        self.arrived[w].expect(units * (each * self.others))

    def total(self, w: Any, part: int, of: int, own: Any) -> Any:
        """The sums of all blocks for a unit, the own ones first."""
        others = (self.place(w, part, of, i) for i in range(self.others))
        return sum((pk.load(x) for x in others), own)


@pk.function
def finish_in_cluster(
    tiles: Tiling, exchange: Exchange, outputs: Any, task: Task, w: Any, sums: list[Any]
) -> None:
    """Send the sums of each unit to the block that finishes it, and finish the own ones."""
    splits = exchange.splits
    for part in range(tiles.parts):
        finisher = exchange.finisher(w, part)
        if finisher != task.split:
            sender = (task.split + splits - finisher) % splits - 1
            for of in range(tiles.products):
                to = exchange.place(w, part, of, sender)
                sent = tiles.summed(sums, of, part)
                pk.send(to, sent, block=finisher, signal=exchange.arrived[w])
    exchange.arrived[w].wait(0)
    for part in range(tiles.parts):
        if exchange.finisher(w, part) == task.split:
            own = [tiles.summed(sums, of, part) for of in range(tiles.products)]
            products = [exchange.total(w, part, of, x) for of, x in enumerate(own)]
            finish_part(tiles, outputs, task, w, part, products)


# -- through memory --------------------------------------------------------------------------------

# The state of a warpgroup's rows of a split tile is an int32 that is 0 before a launch and after it. Bits 0 to 15: the
# finishers that have left their shares to the block that stores last. From bit 16: the number of blocks that have
# stored their partial sums. From bit 24: the number of shares that blocks have begun to finish. The first share takes
# back what all others add, so the state is below 0 until the last share is begun, and nobody waits to set it to 0.
STORED, BEGUN = 2**16, 2**24
POLLS = 48  # about 30 microseconds: longer than blocks that run at once are apart


@pk.function
def store_partials(tiles: Tiling, task: Task, w: Any, sums: list[Any]) -> Any:
    """Store this block's partial sums, and count the block in the tile's state; returns the state before."""
    for i in range(tiles.products):
        for part in range(tiles.parts):
            pk.store(tiles.partial(task, task.split, w, i, part), tiles.summed(sums, i, part))
    return pk.atomic_add(tiles.state(task, w), STORED)


@pk.function
def finish_split(tiles: Tiling, outputs: Any, task: Task, w: Any, before: Any) -> None:
    """Finish the parts of the columns that are this block's, or that others have left to it; `before` is the state.

    A single part is left to the last block.
    """
    state, finishers, last = tiles.state(task, w), tiles.finishers, tiles.config.splits - 1
    if finishers == 1:
        if before >> 16 == last:
            pk.signal(state, 0)
            finish_part(tiles, outputs, task, w, 0, added_up(tiles, task, w, 0))
    else:
        shares, left = shares_to_finish(tiles, task, w, before)
        for finisher in pk.range(finishers):
            if (shares >> finisher) & 1 == 1:
                begin_share(tiles, state, finisher, (left >> finisher) & 1)
                for part in pk.range(finisher, tiles.parts, finishers):
                    products = added_up(tiles, task, w, part)
                    finish_part(tiles, outputs, task, w, part, products)


@pk.function
def shares_to_finish(tiles: Tiling, task: Task, w: Any, before: Any) -> tuple[Any, Any]:
    """The shares of a tile that this block finishes, and those of them that had been left: bit i for finisher i.

    The blocks of the last splits are the finishers: if not all blocks run at once, those start last.
    """
    state, splits, finishers = tiles.state(task, w), tiles.config.splits, tiles.finishers
    own = (1 << (splits - 1 - task.split)) & (2**finishers - 1)
    shares, left = own, 0
    if before >> 16 == splits - 1:
        left = before & (STORED - 1)
        shares = own | left
    elif own != 0:
        found, polls = before, 0
        while 0 <= found < splits * STORED and polls < POLLS:
            found, polls = pk.atomic_load(state), polls + 1
        if 0 <= found < splits * STORED:
            found, left = pk.atomic_or(state, own), own
        if 0 <= found < splits * STORED:
            shares = 0  # the block that stores last finds the bit
    return shares, left


@pk.function
def begin_share(tiles: Tiling, state: Any, finisher: Any, left: Any) -> None:
    """Count a share as begun, and take its bit back if it had been left to the block that stored last."""
    others, first = tiles.finishers - 1, 0
    if finisher == 0:
        first = (others + 1) * BEGUN + tiles.config.splits * STORED
    pk.signal(state, BEGUN - first - (left << finisher), op="add")


@pk.function
def added_up(tiles: Tiling, task: Task, w: Any, part: Any) -> list[Any]:
    """The sums of all blocks for a part, of each product."""
    return [_added_up(tiles, task, w, of, part) for of in range(tiles.products)]


@pk.function
def _added_up(tiles: Tiling, task: Task, w: Any, of: int, part: Any) -> Any:
    """The partial sums of all blocks for a part, added in the order of the blocks; several are loaded at once."""
    rows, cols, splits = tiles.group_rows, tiles.config.out_cols, tiles.config.splits
    total, at_once = pk.zeros(pk.f32, rows, cols), tiles.loads_at_once
    whole = splits // at_once * at_once

    def add(total: Any, first: Any, count: int) -> Any:
        froms = [tiles.partial(task, first + i, w, of, part) for i in range(count)]
        return sum([pk.load(x, rows=rows, cols=cols) for x in froms], total)

    for first in pk.range(0, whole, at_once):
        total = add(total, first, at_once)
    return add(total, whole, splits - whole)
