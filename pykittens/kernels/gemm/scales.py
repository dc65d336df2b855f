"""Block scales of fp8: where they are stored, and the scales of each step of a task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pykittens as pk
from pykittens.kernels.gemm.config import SCALED, Config

AT_ONCE = 16  # scales of blocks that are copied together


class Scales:
    """The block scales of a product: one per 1 x 128 block of A and one per 128 x 128 block of B and of the gate.

    Stages contain the scales that the copy engine can address; the others are loaded from memory steps ahead. A step of
    a task has one scale per row, and one per piece of its columns.
    """

    def __init__(self, given: dict[str, Any], config: Config, depth: int) -> None:
        self.rows, self.config, self.depth = given["row_blocks"], config, depth
        self.group_rows = config.rows // config.consumers
        self.blocks = [given[n] for n in ("column_blocks", "gate_blocks") if n in given]

    def is_staged(self, scales: Any) -> bool:
        """Whether stages contain these scales."""
        return bool(scales.type.aligned)

    def stage(self) -> dict[str, Any]:
        """The shared vectors of a stage, by name."""
        length = self.config.cols if self.config.swap else self.config.rows
        rows = {"scales": pk.sv(pk.f32, length)} if self.is_staged(self.rows) else {}
        staged = [name for name, blocks, _ in self._pieces() if self.is_staged(blocks)]
        return rows | {name: pk.sv(pk.f32, AT_ONCE) for name in staged}

    def load(self, s: Any, task: Any, k: Any) -> None:
        """Load the scales of a stage."""
        step = self.step(k)
        if self.is_staged(self.rows):
            at = task.col if self.config.swap else task.row
            pk.load_async(s.scales, self.rows[step, at])
        for name, blocks, piece in self._pieces():
            if self.is_staged(blocks):
                pk.load_async(getattr(s, name), blocks[self._block(task, piece), step // AT_ONCE])

    def in_memory(self, task: Any, w: Any, k: Any) -> list[Any]:
        """The scales of a step that no stage contains, from global memory."""
        step = self.step(k)
        rows = [] if self.is_staged(self.rows) else [self._rows_in_memory(task, w, step)]
        apart = [x for x in self._pieces() if not self.is_staged(x[1])]
        return rows + [pk.load(x[self._block(task, piece), step]) for _, x, piece in apart]

    def of_step(self, s: Any, w: Any, k: Any, in_memory: list[Any]) -> list[Any]:
        """All scales of a step: those of its stage, and the others, which were loaded before."""
        others, at = iter(in_memory), self.step(k) % AT_ONCE
        by_row = self._rows_in_stage(s, w) if self.is_staged(self.rows) else next(others)
        by_block = [
            pk.load(getattr(s, name).parts(1)[at]) if self.is_staged(x) else next(others)
            for name, x, _ in self._pieces()
        ]
        return [by_row, *by_block]

    def _rows_in_stage(self, s: Any, w: Any) -> Any:
        """The scales of a warpgroup's rows, from a stage."""
        if self.config.swap:
            return pk.load(s.scales, spread=pk.per_column)
        return pk.load(s.scales.parts(self.group_rows)[w], spread=pk.per_row)

    def _rows_in_memory(self, task: Any, w: Any, step: Any) -> Any:
        """The scales of a warpgroup's rows, from global memory."""
        if self.config.swap:
            at = self.rows[step, task.col]
            return pk.load(at, cols=self.config.cols, spread=pk.per_column)
        at = self.rows[step, task.row * self.config.consumers + w]
        return pk.load(at, cols=self.group_rows, spread=pk.per_row)

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
