"""The tiles of a product: how kernels cut it, load and multiply stages, and store results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.kernels.epilogue import Epilogue, OutputRegion
from pykittens.kernels.gemm.config import Config, loading_registers, registers_beside
from pykittens.kernels.gemm.scales import Scales

MULTIPLY = {
    (False, False): pk.mma_AB,
    (False, True): pk.mma_ABt,
    (True, False): pk.mma_AtB,
    (True, True): pk.mma_AtBt,
}


@dataclass(frozen=True)
class Form:
    """The product that a kernel computes, apart from its size: a constant of the kernel.

    a_is_transposed: a is k x m in memory. b_is_transposed: b is n x k in memory, as the weights of a linear layer.
    accumulate: the dtype of sums. The epilogue names the operands after the three matrices.
    """

    a_is_transposed: bool = False
    b_is_transposed: bool = True
    accumulate: Any = pk.f32
    epilogue: Epilogue = Epilogue()

    def named(self, operands: tuple[Any, ...]) -> dict[str, Any]:
        """The operands of the epilogue by their names."""
        return dict(zip(self.epilogue.names, operands, strict=True))


@dataclass(frozen=True)
class Task:
    """A tile of the product, and the steps along k that a block does for it: every `splits`-th step from `first` on.

    split: the index of the block among the blocks of the tile.
    """

    lead: tuple[Any, ...]
    row: Any
    col: Any
    first: Any
    stop: Any
    split: Any = 0


class Tiling:
    """The tiles of a kernel: their sides, the loads and products of a stage, and the steps of a task."""

    def __init__(
        self, a: Any, b: Any, c: Any, given: dict[str, Any], form: Form, config: Config
    ) -> None:
        self.a, self.b, self.c, self.given, self.form, self.config = a, b, c, given, form, config
        self.depth = config.depth // a.dtype.bytes
        self.group_rows = config.rows // config.consumers
        self.parts = config.parts
        gate = [given["gate"]] if "gate" in given else []
        self.lefts = [a, *(gate if config.swap else [])]
        self.rights = [b, *([] if config.swap else gate)]
        self.products = 1 + len(gate)
        rows, inner = a.shape[-2:] if not form.a_is_transposed else a.shape[:-3:-1]
        cols, again = b.shape[-2:] if form.b_is_transposed else b.shape[:-3:-1]
        pk.require(inner == again, "the inner extents of a and b must be equal")
        pk.require(
            c.shape[-2:] == ((cols, rows) if config.swap else (rows, cols)), "c does not fit"
        )
        self.rows, self.cols = rows, cols
        # A product over nothing has one step, which reads zeros.
        self.steps = pk.maximum(pk.cdiv(inner, self.depth), 1)
        self.scaling = Scales(given, config, self.depth) if "row_blocks" in given else None
        self.tiles = pk.cdiv(rows, config.rows), pk.cdiv(cols, config.cols)
        self.clusters = tuple(map(pk.cdiv, self.tiles, config.spread))
        self.lead = c.shape[:-2]
        self.schedule = self._split_tiles() if config.splits > 1 else self._whole_tiles()

    def _whole_tiles(self) -> Any:
        """The indices of a block's tiles, in bands of rows; in clusters, its number and those of its clusters."""
        cluster = self.config.cluster
        extents = *([cluster] if cluster > 1 else []), *self.lead, *self.clusters
        return pk.persistent(extents, order=pk.supergroup(self.config.band), cluster=cluster)

    def _split_tiles(self) -> Any:
        """The same of a block's tile, and its split; one task per block.

        Each split takes every `splits`-th step, so that all blocks read neighbouring memory at the same time.
        Neighbours in the grid do the same steps: data that several blocks read at once comes faster from the L2 cache.
        """
        config, splits = self.config, self.config.splits
        turned = config.cluster_axis == 1 if config.sharing > 1 else config.band == 1
        first, second = self.clusters if turned else self.clusters[::-1]
        if config.exchanges:
            *lead, x, y, split = pk.grid(*self.lead, first, second, splits, cluster=splits)
        else:
            extents = splits, *self.lead, first, second * config.cluster
            split, *lead, x, y = pk.grid(*extents, cluster=config.cluster)
        if config.sharing > 1:
            lead, y = [y % config.cluster, *lead], y // config.cluster
        at_row, at_col = (x, y) if turned else (y, x)
        return [(*lead, at_row, at_col, split)]

    def task(self, index: Any) -> Task:
        """The tile with these indices, and the steps of it that this block does."""
        *at, split = index if self.config.splits > 1 else (*index, 0)
        *lead, row, col = at
        if self.config.sharing > 1:
            (rank, *lead), (rows, cols) = lead, self.config.spread
            row, col = row * rows + rank // cols, col * cols + rank % cols
        return Task(tuple(lead), row, col, split, self.steps, split)

    def stage(self) -> dict[str, Any]:
        """The shared tiles of a stage, by name."""
        rows, cols, depth = self.config.rows, self.config.cols, self.depth
        a = (depth, rows) if self.form.a_is_transposed else (rows, depth)
        b = (cols, depth) if self.form.b_is_transposed else (depth, cols)
        tiles = {f"a{i or ''}": pk.st(x.dtype, *a) for i, x in enumerate(self.lefts)}
        tiles |= {f"b{i or ''}": pk.st(x.dtype, *b) for i, x in enumerate(self.rights)}
        return tiles if self.scaling is None else tiles | self.scaling.stage()

    def load(self, s: Any, task: Task, k: Any) -> None:
        """Fill a stage. Blocks of a cluster that work on the same row, or the same column, share its copies."""
        rows, cols = self.config.spread
        peers = {"a": pk.peers(cols), "b": pk.peers(rows, step=cols)}
        for name, tensors in (("a", self.lefts), ("b", self.rights)):
            for i, tensor in enumerate(tensors):
                tile, part = getattr(s, f"{name}{i or ''}"), self._part(name, tensor, task, k)
                pk.load_async(tile, part, multicast=peers[name])
        if self.scaling is not None:
            self.scaling.load(s, task, k)

    def _part(self, name: str, tensor: Any, task: Task, k: Any) -> Any:
        """The tile of an `a`, or of a `b`, that a task multiplies in step k."""
        axis, side, by_columns = 0, task.row, self.form.a_is_transposed
        if name == "b":
            axis, side, by_columns = 1, task.col, not self.form.b_is_transposed
        if self.config.spread[axis] > 1:
            # The last cluster may have blocks without tiles: rows outside of a tensor would take them longer.
            side = pk.minimum(side, self.tiles[axis] - 1)
        return of_batch(tensor, task.lead)[(k, side) if by_columns else (side, k)]

    @property
    def producer_registers(self) -> int | None:
        """Registers of a lane that loads: more for loads in flight where sums leave them, else None."""
        by_lanes = any(not x.type.aligned for x in (*self.lefts, *self.rights))
        return loading_registers(self.config, self.products) if by_lanes else None

    @property
    def streamed(self) -> list[Any]:
        """Tensors that the epilogue reads and whose parts fit a stage; the stages bring them."""
        config = self.config
        fits = not (config.swap or self.form.a_is_transposed) and config.out_cols == self.depth
        given = [self.c] if "beta" in self.given else []
        given += [self.given["residual"]] if "residual" in self.given else []
        given = [x for x in given if fits and config.splits == 1 and x.dtype == self.a.dtype]
        # A warpgroup that stores keeps its stages until the other one has had its turn.
        return [] if config.turns and len(given) * self.parts >= config.stages else given

    def stream(self, s: Any, tensor: Any, task: Task, part: int) -> None:
        """Fill a stage with a part of a streamed tensor."""
        at = task.row, task.col * self.parts + part
        pk.load_async(s.a, of_batch(tensor, task.lead)[at])

    def arrived(self, s: Any, w: Any) -> Any:
        """A warpgroup's rows of a streamed part, in f32."""
        return pk.load(s.a.tiles(self.group_rows, self.depth)[w]).to(pk.f32)

    def zeros(self) -> list[Any]:
        """The sums of a task before its first step; in grains if the products have scales."""
        cols = self.config.cols
        grain = cols if self.scaling is None else self.config.grain
        count = self.products * (cols // grain)
        return [pk.zeros(self.form.accumulate, self.group_rows, grain) for _ in range(count)]

    def summed(self, sums: list[Any], product: int, part: int) -> Any:
        """A part of the columns of a product, in f32."""
        each = len(sums) // self.products
        width, at = self.config.out_cols, part * self.config.out_cols
        piece = self.config.cols // each
        x = sums[product * each + at // piece][:, at % piece : at % piece + width]
        return x if x.dtype == pk.f32 else x.to(pk.f32)

    def multiply(
        self, s: Any, w: Any, sums: list[Any], k: Any = 0, scales: list[Any] | None = None
    ) -> tuple[list[Any], list[Any]]:
        """The sums with the products of a stage, and the products with scales that are not added yet."""
        product = MULTIPLY[self.form.a_is_transposed, self.form.b_is_transposed]
        pairs = self._pairs(s, w)
        if self.scaling is None:
            return [product(a, b, x) for (a, b), x in zip(pairs, sums, strict=True)], []
        pending: list[Any] = []
        for number, (a, b) in enumerate(pairs):
            if self.config.warpgroups:  # else each warp loads its operands to registers
                sums, pending = self.added(sums, pending), []
            made = product(a, b)
            if number == 0:  # those of the stage arrive while it multiplies
                scales = self.scaling.of_step(s, w, k, scales or [])
            pending.append((number, made, scales))
        return sums, pending

    def _pairs(self, s: Any, w: Any) -> list[tuple[Any, Any]]:
        """The tiles of a stage that a warpgroup multiplies."""
        lefts = [getattr(s, f"a{i or ''}") for i in range(len(self.lefts))]
        if self.form.a_is_transposed:
            lefts = [x.tiles(self.depth, self.group_rows)[0, w] for x in lefts]
        else:
            lefts = [x.tiles(self.group_rows, self.depth)[w] for x in lefts]
        rights = [getattr(s, f"b{i or ''}") for i in range(len(self.rights))]
        if self.scaling is not None:
            pieces = range(self.config.cols // self.config.scaled_cols)
            rights = [self._columns(x, i) for x in rights for i in pieces]
        return list(zip(lefts * len(rights), rights * len(lefts), strict=True))

    def _columns(self, tile: Any, part: int) -> Any:
        """The columns of a tile of b that are scaled together."""
        if self.form.b_is_transposed:
            return tile.tiles(self.config.scaled_cols, self.depth)[part]
        return tile.tiles(self.depth, self.config.scaled_cols)[0, part]

    @property
    def ahead(self) -> int:
        """Steps before its own at which a scale is loaded that no stage contains; single warps have few registers."""
        return 2 if self.config.warpgroups else 1

    def scales(self, task: Task, w: Any, k: Any) -> list[Any]:
        """The scales of a step's products, unless a stage has them."""
        return [] if self.scaling is None else self.scaling.in_memory(task, w, k)

    def added(self, sums: list[Any], pending: list[Any]) -> list[Any]:
        """The sums with the pending products, which are scaled one grain of the columns at a time."""
        config, sums = self.config, list(sums)
        each, grain = self.config.scaled_cols // config.grain, config.grain
        for number, product, (by_row, *by_block) in pending:
            for i in range(each):
                at, piece = number * each + i, product[:, i * grain : (i + 1) * grain]
                sums[at] = sums[at] + piece * (by_row * by_block[at])
        return sums

    def region(self, task: Task, w: Any, part: int, arrived: Any = ()) -> OutputRegion:
        """The region of a part of a warpgroup's rows; `arrived` has the same part of each streamed tensor."""
        return OutputRegion(
            arrived=tuple(zip(self.streamed, arrived, strict=True)) if arrived else (),
            lead=task.lead,
            row=task.row * self.config.consumers + w,
            col=task.col * self.parts + part,
            rows=self.group_rows,
            cols=self.config.out_cols,
            swapped=self.config.swap,
            height=self.rows,
            width=self.cols,
        )

    def target(self, at: OutputRegion) -> Any:
        """The part of the result at a region."""
        to = (at.col, at.row) if self.config.swap else (at.row, at.col)
        return of_batch(self.c, at.lead)[to]

    @property
    def loads_at_once(self) -> int:
        """The number of partial sums that a warpgroup loads before it adds them: a part of its registers, at most 8."""
        are_few = self.producer_registers and registers_beside(self.config) < 128
        held = 128 * (32 if are_few else 64)
        return max(min(8, held // (self.group_rows * self.config.out_cols)), 1)

    def outgoing(self, outputs: Any, w: Any, part: int | None = None) -> tuple[Any, int]:
        """A warpgroup's buffer for a part, and the number of its stores that may still read other buffers.

        Parts whose numbers are not known take one buffer.
        """
        buffers = self.config.out_stages
        if part is None:
            return outputs[w * buffers], 0
        pending = buffers - 1
        if part < buffers:
            last = part + (self.parts - 1 - part) // buffers * buffers  # of the task before
            pending = self.parts - 1 - last + part
        return outputs[w * buffers + part % buffers], pending

    @property
    def finishers(self) -> int:
        """The number of blocks that finish parts of a split tile."""
        return min(self.config.splits, self.parts, 16)

    def state(self, task: Task, w: Any) -> Any:
        """How far the blocks of a split tile are with a warpgroup's rows."""
        return self.given["flags"][self._number(task) * self.config.consumers + w]

    def partial(self, task: Task, split: Any, w: Any, of: int, part: Any) -> Any:
        """The memory of a part of a block's partial sums, contiguous; `of` is the index of the product."""
        slot = (self._number(task) * self.config.splits + split) * self.config.consumers + w
        return self.given["partials"][(slot * self.products + of) * self.parts + part, 0]

    def _number(self, task: Task) -> Any:
        number: Any = 0
        tiles = [x * blocks for x, blocks in zip(self.clusters, self.config.spread, strict=True)]
        for extent, at in zip((*self.lead, *tiles), (*task.lead, task.row, task.col), strict=True):
            number = number * extent + at
        return number


@pk.function
def complete(
    tiles: Tiling, task: Task, w: Any, part: Any, products: list[Any], arrived: Any = ()
) -> tuple[OutputRegion, Any]:
    """The region of a part of the columns, and the result of the epilogue for it."""
    at = tiles.region(task, w, part, arrived)
    x = tiles.form.epilogue(products, at, tiles.given, tiles.c)
    if "column_sums" in tiles.given:
        to = tiles.given["column_sums"][(*at.lead, at.row, at.col)]
        pk.store(to, pk.col_sum(at.inside(x)))
    return at, x


@pk.function
def send(tiles: Tiling, outgoing: tuple[Any, int], x: Any, to: Any) -> None:
    """Store a part of a product by the copy engine, as soon as its buffer is free."""
    buffer, pending = outgoing
    pk.store_wait(pending, read=True)
    pk.sync()
    pk.publish(buffer, x.to(tiles.c.dtype), transposed=tiles.config.swap)
    pk.store_async(to, buffer)


def of_batch(tensor: Any, lead: tuple[Any, ...]) -> Any:
    """The matrix of a task; a tensor of rank 2 serves all tasks."""
    return tensor if tensor.rank == 2 else tensor.at(*lead)
