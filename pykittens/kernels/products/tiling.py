"""How a product is cut into tiles, and what a kernel does with a stage of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.kernels.epilogue import Epilogue, Place
from pykittens.kernels.products.config import Config
from pykittens.kernels.products.scales import Scales

MULTIPLY = {
    (False, False): pk.mma_AB,
    (False, True): pk.mma_ABt,
    (True, False): pk.mma_AtB,
    (True, True): pk.mma_AtBt,
}


@dataclass(frozen=True)
class Form:
    """What is multiplied and what becomes of it, apart from its size: a constant of the kernel.

    a_is_transposed: a lies k x m in memory. b_is_transposed: b lies n x k, as the weights of a linear layer.
    accumulate: the dtype of sums. The epilogue names the operands behind the three matrices.
    """

    a_is_transposed: bool = False
    b_is_transposed: bool = True
    accumulate: Any = pk.f32
    epilogue: Epilogue = Epilogue()


@dataclass(frozen=True)
class Task:
    """A tile of the product, and the steps along k that a block does for it: from `first` to before `stop`.

    last: the block that does the last of all steps of the tile.
    """

    lead: tuple[Any, ...]
    row: Any
    col: Any
    first: Any
    stop: Any
    last: Any = None


class Tiling:
    """The tiles of one kernel: their sides, how stages are loaded and multiplied, and which steps a task has."""

    def __init__(
        self, a: Any, b: Any, c: Any, given: dict[str, Any], form: Form, config: Config
    ) -> None:
        self.a, self.b, self.c, self.given, self.form, self.config = a, b, c, given, form, config
        self.depth = config.depth // a.dtype.bytes
        self.own = config.rows // config.consumers
        self.parts = config.cols // config.out_cols
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
        tiles = pk.cdiv(rows, config.rows), pk.cdiv(cols, config.cols)
        self.tiles, self.lead = tiles, c.shape[:-2]
        self.turns: Any
        if config.shares:
            self._share_out()
        else:
            self._deal_out()

    def _deal_out(self) -> None:
        """Hand out whole tiles, in bands of rows."""
        self.turns = pk.persistent(
            (*self.lead, *self.tiles),
            order=pk.supergroup(self.config.band),
            cluster=self.config.cluster,
            cluster_axis=len(self.lead) + self.config.cluster_axis,
        )

    def _share_out(self) -> None:
        """Cut the work in equal shares: each block has some whole tiles, then as many steps of the rest as any other.

        Source: Osama et al., "Stream-K: Work-Centric Parallel Decomposition for Dense Matrix-Matrix Multiplication on
        the GPU", 2023. A tile that is cut is finished by the block that has its first step: it comes there at its end,
        when the blocks behind, which have the other steps, have done these at their beginning.
        """
        self.blocks, self.whole, self.share = (self.given[n] for n in ("blocks", "whole", "share"))
        (self.block,) = pk.grid(self.blocks)
        count = self.tiles[0] * self.tiles[1]
        for extent in self.lead:
            count = count * extent
        self.cut = self.whole * self.blocks  # the first tile that may be cut
        end = (count - self.cut) * self.steps
        self.begin = pk.minimum(self.block * self.share, end)
        self.end = pk.minimum(self.begin + self.share, end)
        touched = pk.cdiv(self.end, self.steps) - self.begin // self.steps
        self.turns = pk.range(self.whole + pk.where(self.end > self.begin, touched, 0))

    def task(self, turn: Any) -> Task:
        """The tile of a turn, and which of its steps this block does."""
        if not self.config.shares:
            return Task(turn[:-2], turn[-2], turn[-1], 0, self.steps)
        place = self.begin // self.steps + turn - self.whole  # among the tiles that may be cut
        is_whole = turn < self.whole
        first = pk.maximum(self.begin - place * self.steps, 0)
        stop = pk.minimum(self.end - place * self.steps, self.steps)
        last = (place * self.steps + self.steps - 1) // self.share
        number = pk.where(is_whole, turn * self.blocks + self.block, self.cut + place)
        return Task(
            *self._coordinates(number),
            first=pk.where(is_whole, 0, first),
            stop=pk.where(is_whole, self.steps, stop),
            last=pk.where(is_whole, self.block, last),
        )

    def _coordinates(self, number: Any) -> tuple[tuple[Any, ...], Any, Any]:
        """Where the tile of a number lies: in bands of rows, as pk.supergroup has them."""
        (rows, cols), band = self.tiles, self.config.band
        inner = number % (rows * cols)
        first = inner // (band * cols) * band
        height, place = pk.minimum(band, rows - first), inner - first * cols
        lead: list[Any] = []
        number = number // (rows * cols)
        for extent in reversed(self.lead):
            lead.insert(0, number % extent)
            number = number // extent
        return tuple(lead), first + place % height, place // height

    def stage(self) -> dict[str, Any]:
        """The shared tiles of a stage, by name."""
        rows, cols, depth = self.config.rows, self.config.cols, self.depth
        a = (depth, rows) if self.form.a_is_transposed else (rows, depth)
        b = (cols, depth) if self.form.b_is_transposed else (depth, cols)
        tiles = {f"a{i or ''}": pk.st(x.dtype, *a) for i, x in enumerate(self.lefts)}
        tiles |= {f"b{i or ''}": pk.st(x.dtype, *b) for i, x in enumerate(self.rights)}
        return tiles if self.scaling is None else tiles | self.scaling.stage()

    def load(self, s: Any, task: Task, k: Any) -> None:
        """Fill a stage. Blocks of a cluster that work on one row, or one column, share its copies."""
        lead, row, col, form = task.lead, task.row, task.col, self.form
        lefts = (k, row) if form.a_is_transposed else (row, k)
        rights = (col, k) if form.b_is_transposed else (k, col)
        for name, tensors, at, axis in (("a", self.lefts, lefts, 1), ("b", self.rights, rights, 0)):
            shared = self.config.cluster > 1 and self.config.cluster_axis == axis
            for i, tensor in enumerate(tensors):
                tile = getattr(s, f"{name}{i or ''}")
                pk.load_async(tile, of_batch(tensor, lead)[at], multicast=shared)
        if self.scaling is not None:
            self.scaling.load(s, task, k)

    @property
    def streamed(self) -> list[Any]:
        """Tensors of which the epilogue needs the tile of a task and which fit the stages: they come through these."""
        config = self.config
        fits = not (config.swap or self.form.a_is_transposed) and config.out_cols == self.depth
        given = [self.c] if "beta" in self.given else []
        given += [self.given["residual"]] if "residual" in self.given else []
        given = [x for x in given if fits and x.dtype == self.a.dtype]
        # A group that stores keeps its stages until the other one has had its turn.
        return [] if config.turns and len(given) * self.parts >= config.stages else given

    def stream(self, s: Any, tensor: Any, task: Task, part: int) -> None:
        """Fill a stage with a part of a tensor that the epilogue needs."""
        at = task.row, task.col * self.parts + part
        pk.load_async(s.a, of_batch(tensor, task.lead)[at])

    def arrived(self, s: Any, w: Any) -> Any:
        """What a group needs of such a stage."""
        return pk.load(s.a.tiles(self.own, self.depth)[w]).to(pk.f32)

    def zeros(self) -> list[Any]:
        """The sums of a task before its first step; in grains where the products have scales."""
        cols = self.config.cols
        grain = cols if self.scaling is None else self.config.grain
        count = self.products * (cols // grain)
        return [pk.zeros(self.form.accumulate, self.own, grain) for _ in range(count)]

    def summed(self, sums: list[Any], product: int, part: int) -> Any:
        """A part of the columns of a product, in f32, as the output takes it."""
        each = len(sums) // self.products
        width, at = self.config.out_cols, part * self.config.out_cols
        piece = self.config.cols // each
        x = sums[product * each + at // piece][:, at % piece : at % piece + width]
        return x if x.dtype == pk.f32 else x.to(pk.f32)

    def multiply(
        self, s: Any, w: Any, sums: list[Any], k: Any = 0, scales: list[Any] | None = None
    ) -> tuple[list[Any], list[Any]]:
        """The sums with the products of a stage; and of products that have scales those that are not added yet."""
        product = MULTIPLY[self.form.a_is_transposed, self.form.b_is_transposed]
        pairs = self._pairs(s, w)
        if self.scaling is None:
            return [product(a, b, x) for (a, b), x in zip(pairs, sums, strict=True)], []
        left: list[Any] = []
        for number, (a, b) in enumerate(pairs):
            if (
                self.config.warpgroups
            ):  # else the registers are those of single warps, which load what they multiply
                sums, left = self.added(sums, left), []
            made = product(a, b)
            if number == 0 and self.scaling.are_staged:
                scales = self.scaling.in_stage(s, w, k)  # they arrive while it multiplies
            left.append((number, made, scales))
        return sums, left

    def _pairs(self, s: Any, w: Any) -> list[tuple[Any, Any]]:
        """The tiles of a stage that a group multiplies."""
        lefts = [getattr(s, f"a{i or ''}") for i in range(len(self.lefts))]
        if self.form.a_is_transposed:
            lefts = [x.tiles(self.depth, self.own)[0, w] for x in lefts]
        else:
            lefts = [x.tiles(self.own, self.depth)[w] for x in lefts]
        rights = [getattr(s, f"b{i or ''}") for i in range(len(self.rights))]
        if self.scaling is not None:
            parts = range(self.config.cols // self.config.scaled_cols)
            rights = [self._columns(x, i) for x in rights for i in parts]
        return list(zip(lefts * len(rights), rights * len(lefts), strict=True))

    def _columns(self, tile: Any, part: int) -> Any:
        """A part of a tile of b."""
        if self.form.b_is_transposed:
            return tile.tiles(self.config.scaled_cols, self.depth)[part]
        return tile.tiles(self.depth, self.config.scaled_cols)[0, part]

    def scales(self, task: Task, w: Any, k: Any) -> list[Any]:
        """What the products of a step are multiplied by, where no stage has it."""
        return [] if self.scaling is None else self.scaling.in_memory(task, w, k)

    def added(self, sums: list[Any], left: list[Any]) -> list[Any]:
        """The sums with the products that were left, scaled a grain of the columns at a time."""
        config, sums = self.config, list(sums)
        each, grain = self.config.scaled_cols // config.grain, config.grain
        for number, product, (by_row, *by_block) in left:
            for i in range(each):
                at, piece = number * each + i, product[:, i * grain : (i + 1) * grain]
                sums[at] = sums[at] + piece * (by_row * by_block[at])
        return sums

    def place(self, task: Task, w: Any, part: int, arrived: Any = ()) -> Place:
        """Where a part of a group's rows lies in the product; `arrived` are parts of other tensors that are here."""
        return Place(
            arrived=tuple(zip(self.streamed, arrived, strict=True)) if arrived else (),
            lead=task.lead,
            row=task.row * self.config.consumers + w,
            col=task.col * self.parts + part,
            rows=self.own,
            cols=self.config.out_cols,
            swapped=self.config.swap,
            height=self.rows,
            width=self.cols,
        )

    def stores_behind(self, part: int) -> int:
        """How many stores of a group come after the last one out of the buffer that a part goes to."""
        buffers = self.config.out_stages
        if part >= buffers:
            return buffers - 1
        last = part + (self.parts - 1 - part) // buffers * buffers  # of the task before
        return self.parts - 1 - last + part

    def flag(self, block: Any, w: Any) -> Any:
        """Whether a group of a block has left the sums of a tile that another one finishes."""
        return self.given["flags"][block * self.config.consumers + w]

    def left(self, block: Any, w: Any, of: int, part: int = 0) -> Any:
        """Where it has left them; `of` counts the products of a task."""
        place = (block * self.config.consumers + w) * self.products + of
        return self.given["partials"][place, part]


@pk.function
def send(tiles: Tiling, outputs: Any, w: Any, part: int, x: Any, to: Any) -> None:
    """Store a part of the columns of a warpgroup's rows by the copy engine, when its buffer is free."""
    buffers = tiles.config.out_stages
    buffer = outputs[w * buffers + part % buffers]
    pk.store_wait(tiles.stores_behind(part), read=True)
    pk.sync()
    pk.store(buffer, x.to(tiles.c.dtype), transposed=tiles.config.swap)
    pk.fence_async()
    pk.sync()
    pk.store_async(to, buffer)


def of_batch(tensor: Any, lead: tuple[Any, ...]) -> Any:
    """The matrix of a task; one of rank 2 is that of all."""
    return tensor if tensor.rank == 2 else tensor.at(*lead)
