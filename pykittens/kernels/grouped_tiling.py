"""Groups of rows cut into tiles: how many there are, which one a task has, and how stages are loaded for it.

Where the groups end is known on the device only, so all of this is worked out there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.kernels.gemm_config import SCALED, Config
from pykittens.kernels.gemm_tiling import Form, Task, Tiling


@dataclass(frozen=True)
class Part(Task):
    """A tile of a group, which `lead` names, and whose rows are from `begin` to before `end`."""

    begin: Any = None
    end: Any = None


class Groups(Tiling):
    """The tiles of groups of rows, in the order of the groups: a walk through them finds the tile of a task."""

    def __init__(
        self,
        offsets: Any,
        a: Any,
        b: Any,
        c: Any,
        given: dict[str, Any],
        form: Form,
        config: Config,
    ) -> None:
        self.offsets, self.count = offsets, offsets.shape[0]
        super().__init__(a, b, c, given, form, config)
        self.stages_scales = False  # the rows of a group begin at any of them
        pk.require(self.count == self.b.shape[0], "there must be an offset for each matrix of b")
        self.total = count_tiles(self)

    def _deal_out(self) -> None:
        """As many tasks as there can be tiles: every group may end inside one."""
        self.turns = pk.persistent(((self.tiles[0] + self.count) * self.tiles[1],))

    def offset(self, group: Any) -> Any:
        """Where a group ends, as the offsets say; of one behind the last, where the last one does."""
        return pk.load(self.offsets[pk.minimum(group, self.count - 1)])

    def clamped(self, offset: Any, begin: Any) -> Any:
        """The row behind the last of a group that begins at a row, whatever the offsets say."""
        return pk.minimum(pk.maximum(offset, begin), self.rows)

    def height(self, begin: Any, end: Any) -> Any:
        """Rows of tiles of a group."""
        return pk.cdiv(end - begin, self.config.rows)

    def outset(self) -> tuple[Any, ...]:
        """Where a walk begins: a group, the tasks before it, its first row, the row behind its last."""
        return 0, 0, 0, self.clamped(self.offset(0), 0)

    def part(self, at: tuple[Any, ...], number: Any) -> Part:
        """The tile of a task in the group where a walk stands: down the columns of a band of rows of tiles."""
        group, before, begin, end = at
        band, width, number = self.config.band, self.tiles[1], number - before
        first = number // (band * width) * band
        place = number - first * width
        tall = pk.minimum(self.height(begin, end) - first, band)
        row, col = first + place % tall, place // tall
        return Part((group,), row, col, 0, self.steps, begin=begin, end=end)

    def load(self, s: Any, task: Any, k: Any) -> None:
        """Fill a stage. Rows of A behind the group do no harm, and so the copy engine need not know its end."""
        a = self.a.window(0, task.begin, self.a.rows)
        pk.load_async(s.a, a[task.row, k])
        at = (task.col, k) if self.form.b_is_transposed else (k, task.col)
        for i, b in enumerate(self.rights):
            pk.load_async(getattr(s, f"b{i or ''}"), b.at(*task.lead)[at])

    def scales(self, task: Any, w: Any, k: Any) -> list[Any]:
        """What the products of a step are multiplied by: numbers of the rows, and one of the columns."""
        if self.row_blocks is None:
            return []
        rows = self.given["row_blocks"].window(1, task.begin, task.end)
        row = task.row * self.config.consumers + w
        step = pk.minimum(self._scaled_step(k), rows.shape[0] - 1)
        by_row = pk.load(rows[step, row], cols=self.own, spread=pk.per_row)
        at = task.col * self.config.cols // SCALED, step
        names = [name for name in ("column_blocks", "gate_blocks") if name in self.given]
        return [by_row, *(pk.load(self.given[name].at(*task.lead)[at]) for name in names)]

    def operands(self, task: Any) -> dict[str, Any]:
        """The operands of the epilogue as those of a group."""
        if "row_scale" not in self.given:
            return self.given
        scale = self.given["row_scale"].window(0, task.begin, task.end)
        return self.given | {"row_scale": scale, "gate_row_scale": scale}


@pk.function
def count_tiles(groups: Groups) -> Any:
    """How many tiles there are; offsets are loaded some at a time, as each load takes as long as several sums."""
    at_once = 8
    rows, begin = 0, 0
    for first in pk.range(0, groups.count, at_once):
        offsets = [groups.offset(first + i) for i in range(at_once)]
        for offset in offsets:
            end = groups.clamped(offset, begin)
            rows = rows + groups.height(begin, end)
            begin = end
    return rows * groups.tiles[1]


@pk.function
def advance(groups: Groups, at: tuple[Any, ...], number: Any) -> tuple[Any, ...]:
    """Walk on to the group of a task, or behind the last group if there is none."""
    group, before, begin, end = at
    tasks = groups.height(begin, end) * groups.tiles[1]
    while group < groups.count and number >= before + tasks:
        group = group + 1
        before = before + tasks
        begin = end
        end = groups.clamped(groups.offset(group), begin)
        tasks = groups.height(begin, end) * groups.tiles[1]
    return group, before, begin, end


def send(tiles: Tiling, outputs: Any, w: Any, part: int, x: Any, to: Any) -> None:
    """Store a part of the columns of a warpgroup's rows by the copy engine, when its buffer is free."""
    buffers = tiles.config.out_stages
    buffer = outputs[w * buffers + part % buffers]
    pk.store_wait(tiles.stores_behind(part), read=True)
    pk.sync()
    pk.store(buffer, x)
    pk.fence_async()
    pk.sync()
    pk.store_async(to, buffer)
