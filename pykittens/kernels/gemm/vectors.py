"""Products of few rows, whose time is that of reading the weights: by vectors, for weights at any address.

    C[i, j] = epilogue(sum over k of A[i, k] B[j, k])

For few rows of A the kernel computes the transposed product, as all configurations with `swap` do: the rows of its A
are those of B here. Warps load parts of rows to registers and multiply them with the same parts of the few rows, which
a ring of stages brings to shared memory. Lanes add up their products in f32, and a warp those of its lanes. Another
warp does the epilogue while these multiply the next rows.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk
from pykittens.kernels.gemm.config import PIECE, UNIT, blocks_together
from pykittens.kernels.gemm.tiles import Task, Tiling, of_batch

REGISTERS = 64  # of lanes of the warps that bring rows and do the epilogue; the others have those that are left


@pk.kernel
def gemm_vectors(A, B, C, *operands, form, config):  # type: ignore[no-untyped-def]
    """C = epilogue(A @ B.T), or C.T, for few rows of B; persistent blocks, a warp for some rows of A at a time."""
    given = form.named(operands)
    if config.overlap:
        pk.overlap()
    rows = Rows(A, B, C, given, form, config)
    blocks = blocks_together(config, rows.few, rows.products, len(given))
    pk.resident(blocks)
    registers = REGISTERS if blocks == 1 else None  # else all warps have the same
    inputs = pk.pipeline(config.stages, **rows.stage())
    outputs = pk.pipeline(2, pk.st(pk.f32, rows.products * config.rows, UNIT))

    with pk.producer(registers=registers):
        for index in rows.schedule:
            task = rows.task(index)
            for k in pk.range(rows.steps - 1):
                with inputs.fill() as s:
                    rows.fetch(s, task, k)
            with inputs.fill() as s:
                rows.fetch(s, task, rows.steps - 1, is_last=True)

    with pk.warps(config.vectors) as w:
        for index in rows.schedule:
            task = rows.task(index)
            sums = [0.0] * (rows.few * rows.products * rows.each)
            for k in pk.range(rows.steps - 1):
                with inputs.drain() as s:
                    sums = rows.add_part(s, task, w, sums, k)
            with inputs.drain() as s:
                sums = rows.add_part(s, task, w, sums, 0, is_last=True)
            with outputs.fill() as to:
                rows.store(to, w, sums)

    with pk.storer(registers=registers):
        for index in rows.schedule:
            task = rows.task(index)
            with outputs.drain() as found:
                for i in range(config.consumers):
                    at = rows.region(task, i, 0)
                    x = form.epilogue(rows.found(found, i), at, given, C)
                    pk.store(rows.target(at), x.to(C.dtype), transposed=config.swap)


class Rows(Tiling):
    """The rows of A that a kernel multiplies with a few of B, in parts of `depth` elements.

    The last part of a row is its last `depth` elements, of which some are in the part before: so the loads of all parts
    lie inside the row. each: rows of a matrix that a warp multiplies for a task.
    """

    def __init__(self, a: Any, b: Any, *more: Any) -> None:
        super().__init__(a, b, *more)
        self.few, self.each = pk.static(b.shape[-2]), self.config.rows // self.config.vectors
        self.width = PIECE // b.dtype.bytes
        self.start = pk.maximum(b.shape[-1] - self.depth, 0)  # of the last part

    def matrix(self, x: Any, task: Task, is_last: bool) -> Any:
        """The matrix of a task, or its last part."""
        x = of_batch(x, task.lead)
        return x.window(1, self.start, x.cols) if is_last else x

    def stage(self) -> dict[str, Any]:
        """A part of each of the few rows, by name."""
        return {f"x{i}": pk.sv(self.b.dtype, self.depth) for i in range(self.few)}

    def fetch(self, s: Any, task: Task, k: Any, is_last: bool = False) -> None:
        """Fill a stage with part k of the few rows, and ask the L2 cache for that of the block's rows.

        Loads of lanes, few of which are in flight at a time, then wait for the cache and not for memory.
        """
        for a in self.lefts:
            place = of_batch(a, task.lead)[task.row, k]
            pk.prefetch(place, rows=self.config.rows, cols=self.depth)
        x = self.matrix(self.b, task, is_last)
        for i in range(self.few):
            pk.load_async(getattr(s, f"x{i}"), x[i, 0 if is_last else k])

    def add_part(
        self, s: Any, task: Task, w: Any, sums: list[Any], k: Any, is_last: bool = False
    ) -> list[Any]:
        """The sums, those of a row side by side, with the products of part k."""
        sums, first = list(sums), (task.row * self.config.vectors + w) * self.each
        loaded = [
            pk.load(self.matrix(a, task, is_last)[first + r, k], cols=self.depth)
            for a in self.lefts
            for r in range(self.each)
        ]
        for piece in range(self.depth // self.width):
            here = [v[piece * self.width : (piece + 1) * self.width] for v in loaded]
            self._add_piece(s, sums, here, piece, is_last)
        return sums

    def _add_piece(
        self, s: Any, sums: list[Any], rows: list[Any], piece: int, is_last: bool
    ) -> None:
        """Add the products of a piece of all rows."""
        wide = [self._kept(row.to(pk.f32), piece, is_last) for row in rows]
        for i in range(self.few):
            own = getattr(s, f"x{i}").parts(self.width)[piece]
            x = self._kept(pk.load(own).to(pk.f32), piece, is_last)
            for r, row in enumerate(wide):
                sums[r * self.few + i] = sums[r * self.few + i] + pk.sum(row * x)

    def _kept(self, v: Any, piece: int, is_last: bool) -> Any:
        """A piece with 0 for the elements of the last part that the part before has."""
        if not is_last:
            return v
        before = (self.steps - 1) * self.depth - self.start
        return pk.where(pk.iota(self.width) >= before - piece * self.width, v, 0.0)

    def store(self, to: Any, w: Any, sums: list[Any]) -> None:
        """Store the sums of a warp's rows, those of a row side by side."""
        place = pk.iota(UNIT)
        for r in range(self.products * self.each):
            v = pk.zeros(pk.f32, UNIT)
            for i in range(self.few):
                v = pk.where(place == i, sums[r * self.few + i], v)
            product, row = divmod(r, self.each)
            pk.store(to.row(product * self.config.rows + w * self.each + row), v)

    def found(self, sums: Any, i: int) -> list[Any]:
        """The i-th tile of each product."""
        tiles, each = sums.tiles(UNIT, UNIT), self.config.rows // UNIT
        return [pk.load(tiles[p * each + i, 0]) for p in range(self.products)]
