"""Block scales of fp8: where they are stored, and the scales of each step of a task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pykittens as pk
from pykittens.kernels.gemm.config import SCALED, Config

AT_ONCE = 16  # scales of blocks that are copied together


class Scales:
    """The block scales of a product: one per 1 x 128 block of A and one per 128 x 128 block of B and of the gate.

    are_staged: the copy engine can address them, so stages contain them. A step of a task has one scale per row, and
    one per piece of its columns.
    """

    def __init__(self, given: dict[str, Any], config: Config, depth: int) -> None:
        self.rows, self.config, self.depth = given["row_blocks"], config, depth
        self.group_rows = config.rows // config.consumers
        self.blocks = [given[n] for n in ("column_blocks", "gate_blocks") if n in given]
        self.are_staged = all(x.type.aligned for x in (self.rows, *self.blocks))

    def stage(self) -> dict[str, Any]:
        """The shared vectors of a stage, by name."""
        if not self.are_staged:
            return {}
        length = self.config.cols if self.config.swap else self.config.rows
        blocks = {name: pk.sv(pk.f32, AT_ONCE) for name, _, _ in self._pieces()}
        return {"scales": pk.sv(pk.f32, length), **blocks}

    def load(self, s: Any, task: Any, k: Any) -> None:
        """Load the scales of a stage."""
        if not self.are_staged:
            return
        step = self.step(k)
        pk.load_async(s.scales, self.rows[step, task.col if self.config.swap else task.row])
        for name, blocks, piece in self._pieces():
            pk.load_async(getattr(s, name), blocks[self._block(task, piece), step // AT_ONCE])

    def in_stage(self, s: Any, w: Any, k: Any) -> list[Any]:
        """The scales of a step, from its stage."""
        if self.config.swap:
            by_row = pk.load(s.scales, spread=pk.per_column)
        else:
            by_row = pk.load(s.scales.parts(self.group_rows)[w], spread=pk.per_row)
        at = self.step(k) % AT_ONCE
        return [by_row, *(pk.load(getattr(s, name).parts(1)[at]) for name, _, _ in self._pieces())]

    def in_memory(self, task: Any, w: Any, k: Any) -> list[Any]:
        """The scales of a step, from global memory; none if stages have them."""
        if self.are_staged:
            return []
        step = self.step(k)
        if self.config.swap:
            by_row = pk.load(self.rows[step, task.col], cols=self.config.cols, spread=pk.per_column)
        else:
            row = task.row * self.config.consumers + w
            by_row = pk.load(self.rows[step, row], cols=self.group_rows, spread=pk.per_row)
        pieces = [(blocks, self._block(task, piece)) for _, blocks, piece in self._pieces()]
        return [by_row, *(pk.load(blocks[block, step]) for blocks, block in pieces)]

    def step(self, k: Any) -> Any:
        """The block along k of a step."""
        return k if self.depth == SCALED else k // (SCALED // self.depth)

    def _pieces(self) -> Iterator[tuple[str, Any, int]]:
        """For each piece of the columns of each matrix: the name of its scales in a stage, their tensor, the piece."""
        for i, blocks in enumerate(self.blocks):
            for piece in range(self.config.pieces):
                yield f"block{i}{piece}", blocks, piece

    def _block(self, task: Any, piece: int) -> Any:
        """The block along n of a piece."""
        if self.config.swap:
            return task.row * self.config.rows // SCALED
        return (task.col * self.config.cols + piece * self.config.grain) // SCALED
