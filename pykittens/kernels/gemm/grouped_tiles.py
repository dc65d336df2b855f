"""Groups of rows cut into tiles: the number of tiles, the tile of a task, and the loads of its stages.

Only the device knows where the groups end, so all of this is computed there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.kernels.gemm.config import SCALED, Config
from pykittens.kernels.gemm.scales import Scales
from pykittens.kernels.gemm.tiles import Form, Task, Tiling


@dataclass(frozen=True)
class RowGroupTask(Task):
    """A tile of a group, whose index is `lead` and whose rows are `begin` to `end` - 1."""

    begin: Any = None
    end: Any = None


class GroupScales(Scales):
    """The block scales of groups of rows. No stage has them, since a group may begin at any row."""

    def is_staged(self, scales: Any) -> bool:
        """Never."""
        return False

    def in_memory(self, task: Any, w: Any, k: Any) -> list[Any]:
        """The scales of a step: one per row, and one for the columns of each matrix."""
        rows = self.rows.window(1, task.begin, task.end)
        row = task.row * self.config.consumers + w
        step = pk.minimum(self.step(k), rows.shape[0] - 1)
        by_row = pk.load(rows[step, row], cols=self.group_rows, spread=pk.per_row)
        at = task.col * self.config.cols // SCALED, step
        return [by_row, *(pk.load(blocks.at(*task.lead)[at]) for blocks in self.blocks)]


class RowGroups(Tiling):
    """The tiles of groups of rows, in the order of the groups; a walk through the groups finds the tile of a task."""

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
        if self.scaling is not None:
            self.scaling = GroupScales(given, config, self.depth)
        pk.require(self.count == self.b.shape[0], "there must be an offset for each matrix of b")
        self.total = count_tiles(self)

    def _whole_tiles(self) -> Any:
        """As many tasks as there can be tiles: every group may end inside a tile."""
        return pk.persistent(((self.tiles[0] + self.count) * self.tiles[1],))

    def offset(self, group: Any) -> Any:
        """The end of a group by its offset; past the last group, the end of the last."""
        return pk.load(self.offsets[pk.minimum(group, self.count - 1)])

    def clamped(self, offset: Any, begin: Any) -> Any:
        """The end of a group that begins at `begin`: its offset, kept between `begin` and the number of rows."""
        return pk.minimum(pk.maximum(offset, begin), self.rows)

    def height(self, begin: Any, end: Any) -> Any:
        """The number of rows of tiles of a group."""
        return pk.cdiv(end - begin, self.config.rows)

    def start(self) -> tuple[Any, ...]:
        """The start of a walk: a group, the number of tasks before it, its first row, and its end."""
        return 0, 0, 0, self.clamped(self.offset(0), 0)

    def tile(self, at: tuple[Any, ...], number: Any) -> RowGroupTask:
        """The tile of a task in the walk's group. Within a band of rows of tiles, tasks go down each column."""
        group, before, begin, end = at
        band, width, number = self.config.band, self.tiles[1], number - before
        first = number // (band * width) * band
        within = number - first * width
        tall = pk.minimum(self.height(begin, end) - first, band)
        row, col = first + within % tall, within // tall
        return RowGroupTask((group,), row, col, 0, self.steps, begin=begin, end=end)

    def load(self, s: Any, task: Any, k: Any) -> None:
        """Fill a stage. Rows of A past the group do no harm, so the copy engine need not know the group's end."""
        a = self.a.window(0, task.begin, self.a.rows)
        pk.load_async(s.a, a[task.row, k])
        at = (task.col, k) if self.form.b_is_transposed else (k, task.col)
        for i, b in enumerate(self.rights):
            pk.load_async(getattr(s, f"b{i or ''}"), b.at(*task.lead)[at])

    def operands(self, task: Any) -> dict[str, Any]:
        """The operands of the epilogue for the group of a task."""
        if "row_scale" not in self.given:
            return self.given
        scale = self.given["row_scale"].window(0, task.begin, task.end)
        return self.given | {"row_scale": scale, "gate_row_scale": scale}


@pk.function
def count_tiles(groups: RowGroups) -> Any:
    """The number of tiles. Eight offsets are loaded at once, since a load takes as long as several additions."""
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
def advance(groups: RowGroups, at: tuple[Any, ...], number: Any) -> tuple[Any, ...]:
    """Walk on to the group of a task, or past the last group if no group has it."""
    group, before, begin, end = at
    tasks = groups.height(begin, end) * groups.tiles[1]
    while group < groups.count and number >= before + tasks:
        group = group + 1
        before = before + tasks
        begin = end
        end = groups.clamped(groups.offset(group), begin)
        tasks = groups.height(begin, end) * groups.tiles[1]
    return group, before, begin, end
