"""Where the tiles of sequences of the kernels of long convolutions come from and go to.

Sequences are rows of matrices, (batch, rows, columns), or lie one after another, (batch, elements). One that has `load`
and `store` stands for the arrays of a call at the place of a tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pykittens as pk
from pykittens.kernels.long_conv.tables import COLS, INNER, SLICE


def places(
    rows: int,
    n: Any,
    tile: Any,
    ahead: Any = None,
    columns: Any = COLS,
    first: Any = 0,
    zero: Any = 0,
) -> Any:
    """The element of all sequences of n, one after another, that belongs to each element of a tile; -1 if none does.

    rows, columns: those of the matrix of a sequence. first: the first column of the tile. ahead: the element `ahead`
    positions before.
    """
    row, col = pk.row_index(COLS) + zero, pk.col_index(COLS)
    own = row % rows * columns + (first + col)
    is_one = own < n
    if ahead is not None:
        own = own - ahead
        is_one = (own >= 0) & (own < n)
    return pk.where(is_one, (tile * (COLS // rows) + row // rows) * n + own, -1)


def gated(x: Any, gate: Any) -> Any:
    """x times a gate, if there is one."""
    return x if gate is None else x * gate


@dataclass(frozen=True, eq=False)
class InStage:
    """Tiles that the copy engine has brought for group w: tile `tile` of the sequences of batches from `first` on."""

    arrays: dict[str, Any]
    first: Any
    tile: Any
    stage: Any
    w: Any
    results: Any

    def load(self, name: str, i: int) -> Any:
        """A tile of an array, of sequence i of a pair, in f32; None if there is no such array."""
        if name not in self.arrays:
            return None
        return pk.load(getattr(self.stage, f"{name}{i}").tiles(COLS, COLS)[self.w, 0]).to(pk.f32)

    @pk.function
    def store(self, outs: list[list[Any]]) -> None:
        """Write the tiles of each output for each sequence of a pair, of which the second may be none."""
        pk.store_wait(read=True)
        pk.sync()
        parts = [(out, i, x) for i, given in enumerate(outs) for out, x in given]
        at = [self.results[self.w * len(parts) + k] for k in range(len(parts))]
        for memory, (out, _, x) in zip(at, parts, strict=True):
            pk.store(memory, x.to(out.dtype))
        pk.fence_async()
        pk.sync()
        for memory, (out, i, _) in zip(at, parts, strict=True):
            if i == 0 or self.first + i < out.shape[0]:
                pk.store_async(out[self.first + i, self.tile, 0], memory)


@dataclass(frozen=True, eq=False)
class InTensor:
    """Tiles of tensors: tile (tile, column) of the sequences of batches from `first` on."""

    arrays: dict[str, Any]
    first: Any
    tile: Any
    column: Any

    def load(self, name: str, i: int) -> Any:
        """A tile of an array, of sequence i of a pair, in f32; None if there is no such array."""
        if name not in self.arrays:
            return None
        x = self.arrays[name]
        b = pk.minimum(self.first + i, x.shape[0] - 1)
        return pk.load(x[b, self.tile, self.column], rows=COLS, cols=COLS).to(pk.f32)

    @pk.function
    def store(self, outs: list[list[Any]]) -> None:
        """Write the tiles of each output for each sequence of a pair, of which the second may be none."""
        for i, given in enumerate(outs):
            for out, x in given:
                if i == 0 or self.first + i < out.shape[0]:
                    pk.store(out[self.first + i, self.tile, self.column], x.to(out.dtype))


@dataclass(frozen=True, eq=False)
class ByPlace:
    """Sequences of any length, element by element: those of batch `first`.

    rows, n, tile, columns, column: as of `places`. zero: a shared vector of zeros. One is added to each place, so that
    places are found anew where they are needed: those of a tile, as addresses in two tensors, are 128 registers.
    """

    arrays: dict[str, Any]
    first: Any
    rows: int
    n: Any
    tile: Any
    zero: Any
    columns: Any = COLS
    column: Any = 0

    def load(self, name: str, i: int) -> Any:
        """A tile of an array in f32, with zeros behind the sequences; None if there is no such array."""
        if name not in self.arrays:
            return None
        return pk.gather(self.arrays[name][self.first, :], self.places()).to(pk.f32)

    def store(self, outs: list[list[Any]]) -> None:
        """Write the tile of each output."""
        for out, x in outs[0]:
            pk.scatter(out[self.first, :], self.places(), x.to(out.dtype))

    def places(self, ahead: Any = None) -> Any:
        """The places of the elements of the tile."""
        zero = pk.load(self.zero.parts(1)[0])
        return places(self.rows, self.n, self.tile, ahead, self.columns, self.column, zero)


@dataclass(frozen=True, eq=False)
class Whole:
    """Whole sequences of channel h, of batches from `first` on: slices of 16 columns of the tiles of each.

    Arrays are (batch, channels, rows, 4, 16), or (batch, channels, n), of which elements are moved one by one. zero: as
    of `ByPlace`, for these.
    """

    arrays: dict[str, Any]
    first: Any
    h: Any
    zero: Any

    def inputs(self, i: int, slices: list[tuple[Any, Any]]) -> list[Any]:
        """Slices (tile, slice) of sequence i of a pair, through the gate, in f32; 0 past the end."""
        # All are on their way before the first is waited for.
        given = [[self.load(name, i, *at) for name in ("u", "before")] for at in slices]
        return [gated(x.to(pk.f32), gate if gate is None else gate.to(pk.f32)) for x, gate in given]

    def load(self, name: str, i: int, a: Any, q: Any) -> Any:
        """Slice q of tile a of an array as it is; None if there is no such array."""
        if name not in self.arrays:
            return None
        x = self.arrays[name]
        b = pk.minimum(self.first + i, x.shape[0] - 1) if i else self.first
        if len(x.shape) == 5:
            return pk.load(x[b, self.h, :, q][a, 0], rows=COLS, cols=SLICE)
        return pk.gather(x[b, self.h, :], self.places(a, q))

    @pk.function
    def store(self, outs: Any, parts: list[Any], a: Any, q: Any) -> None:
        """Write slice q of tile a of each output, through its gate, for each sequence of a pair."""
        for i, x in enumerate(parts):
            for name, out in outs:
                if i == 0 or self.first + i < out.shape[0]:
                    gate = self.load(name, i, a, q)
                    y = gated(x, gate if gate is None else gate.to(pk.f32)).to(out.dtype)
                    if len(out.shape) == 5:
                        pk.store(out[self.first + i, self.h, :, q][a, 0], y)
                    else:
                        pk.scatter(out[self.first + i, self.h, :], self.places(a, q), y)

    def places(self, a: Any, q: Any) -> Any:
        """The element of a sequence at each place of slice q of tile a."""
        row = a * COLS + pk.load(self.zero.parts(1)[0]) + pk.row_index(COLS)
        return row * COLS + (q * SLICE + pk.col_index(SLICE))

    def prefetch(self, points: int, members: int, part: Any, parts: int) -> None:
        """Start to bring one of so many parts of what is read first of the sequences to the L2 cache."""
        for x in (self.arrays[name] for name in ("u", "before") if name in self.arrays):
            for i in range(members):
                b = pk.minimum(self.first + i, x.shape[0] - 1)
                if len(x.shape) == 3:
                    pk.prefetch(x[b, self.h, part], cols=points * INNER // parts)
                    continue
                for q in range(COLS // SLICE // parts):
                    own = x[b, self.h, :, part + q * parts]
                    pk.prefetch(own, rows=points * COLS, cols=SLICE)


def zeros_of(vector: Any) -> Any:
    """A shared vector of the group, with zeros."""
    pk.store(vector, pk.zeros(pk.int32, vector.length))
    pk.sync()
    return vector
