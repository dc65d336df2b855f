"""A program of generic instructions: memories for weights, constants and vectors, and words that add instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

import pykittens as pk
from pykittens.errors import ArgumentError
from pykittens.mega.isa import decode
from pykittens.mega.program import Kind, Program
from pykittens.runtime.arrays import torch_dtype
from pykittens.types.dtypes import bf16, f32

UNIT = 16  # rows of a page


@dataclass(frozen=True)
class Vector:
    """Elements of the memory of vectors, or of constants: the first, and how many."""

    start: int
    length: int

    def part(self, start: int, length: int) -> Vector:
        return Vector(self.start + start, length)

    def in_units(self, of: int) -> int:
        """Where it starts, in parts of so many elements."""
        if self.start % of:
            raise ArgumentError(
                f"a vector that starts at {self.start} is not at a multiple of {of}"
            )
        return self.start // of


@dataclass(frozen=True)
class Matrix:
    """A packed matrix of the memory of weights: its first page, rows and columns."""

    page: int
    rows: int
    cols: int


@dataclass
class Machine:
    """A program of generic instructions for one token of a model.

    blocks: as of Program. chunk: columns that an instruction multiplies with a vector at a time, 1024 or 2048. head,
    heads: the width of a head of attention, and the number of heads of keys. capacity, layers: of the cache.
    vocabulary: rows of the embedding. pages, flight: of the ring of weights. eps: of norms.
    """

    blocks: int
    chunk: int = 2048
    head: int = 64
    heads: int = 8
    layers: int = 1
    capacity: int = 64
    vocabulary: int = 256
    pages: int = 10
    flight: int | None = 3
    inputs_: int = 2
    eps: float = 1e-5
    _weights: list[Any] = field(default_factory=list, init=False, repr=False)
    _constants: list[Any] = field(default_factory=list, init=False, repr=False)
    _page: int = field(default=0, init=False)
    _constant: int = field(default=0, init=False)
    _vectors: int = field(default=0, init=False)
    _kinds: dict[str, Kind] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.program = Program(self.blocks)
        self.program.number("position", self.capacity)
        self.program.number("token", self.vocabulary)
        self._pages = self.program.ring(self.pages, flight=self.flight)
        self._tiles, self._norms = self.program.ring(1), self.program.ring(1)
        self._queries = self.program.ring(1)
        self._sums, self._inputs = self.program.ring(3), self.program.ring(self.inputs_)
        self.count, self.quarter, self.scale = self.chunk // 512, self.chunk // 4, self.head**-0.5

    # -- called by instructions ------------------------------------------------------------------

    def instruction(self, function: Callable[..., Any]) -> Kind:
        return self.program.instruction(function)

    def rings(self) -> Any:
        """The rings of products."""
        return SimpleNamespace(
            pages=self._pages.view(pk.st(bf16, 128, 64)),
            vectors=self._tiles.view(pk.st(bf16, 16, self.chunk // 8)),
            norms=self._norms.view(pk.sv(f32, 4 * UNIT)),
            sums=self._sums.view(pk.sv(f32, 8 * UNIT)),
        )

    def weights_ring(self) -> Any:
        """The ring of pages of weights, of which all may be on their way."""
        return self._pages.view(pk.st(bf16, 128, 64), flight=self.pages)

    def queries(self) -> Any:
        """The ring of 128 queries."""
        return self._queries.view(pk.st(bf16, 128, self.head))

    def inputs(self) -> Any:
        """The ring of pages of what instructions write."""
        return self._inputs.view(pk.st(bf16, 128, 64))

    def keys(self) -> Any:
        """The same ring for keys and values."""
        return self._inputs.view(k=pk.st(bf16, 64, self.head), v=pk.st(bf16, 64, self.head))

    # -- memories --------------------------------------------------------------------------------

    def vector(self, length: int, align: int = 1) -> Vector:
        """Room for a vector, which starts at a multiple of a chunk, or of `align` if that is given."""
        align = self.chunk if align == 1 else align
        start = -(-self._vectors // align) * align
        self._vectors = start + length
        return Vector(start, length)

    def constant(self, values: Any) -> Vector:
        """A constant vector in f32."""
        start, length = (
            self._constant,
            values.size if isinstance(values, np.ndarray) else values.numel(),
        )
        self._constants.append(values.reshape(-1))
        self._constant += length
        return Vector(start, length)

    def weights(self, matrix: Any) -> Matrix:
        """A matrix in bf16, (rows, columns), packed in pages."""
        rows, cols = matrix.shape
        if rows % UNIT or cols % self.chunk:
            raise ArgumentError(
                f"a matrix has multiples of {UNIT} rows and of {self.chunk} columns, not {rows} x {cols}"
            )
        chunks, slices = cols // self.chunk, self.chunk // 1024
        x = matrix.reshape(rows // UNIT, UNIT, chunks, 2, 4, slices, 2, 64)
        order = 0, 2, 5, 3, 6, 4, 1, 7
        x = x.transpose(order) if isinstance(x, np.ndarray) else x.permute(order)
        self._weights.append(x.reshape(-1, 64))
        made = Matrix(self._page, rows, cols)
        self._page += len(self._weights[-1]) // 128
        return made

    def tensors(self, cache: Any, table: Any) -> dict[str, Any]:
        """The tensors of the program beside `position` and `token`; cache: (2 * layers, capacity, heads * head)."""
        if isinstance(cache, np.ndarray):
            vectors, chosen = np.zeros(self._vectors, np.float32), np.zeros(1, np.int32)
        else:
            vectors = cache.new_zeros(self._vectors, dtype=torch_dtype("f32"))
            chosen = cache.new_zeros(1, dtype=torch_dtype("int32"))
        given = {"V": vectors, "E": table, "cache": cache, "chosen": chosen}
        given |= {
            name: _joined(parts)
            for name, parts in (("W", self._weights), ("C", self._constants))
            if parts
        }
        used = {name for kind in self.program.kinds for name in kind.operands}
        return {name: x for name, x in given.items() if name in used}

    # -- instructions ----------------------------------------------------------------------------

    def _add(self, make: Callable[[Machine], Kind], **fields: Any) -> None:
        self.program.add(self._kind(make), **fields)

    def _kind(self, make: Callable[[Machine], Kind]) -> Kind:
        if make.__name__ not in self._kinds:
            self._kinds[make.__name__] = make(self)
        return self._kinds[make.__name__]

    def _runs(self, make: Callable[[Machine], Kind], count: int, **fields: Any) -> None:
        self.program.add_runs(self._kind(make), count, **fields)

    def embedding(self, out: Vector) -> None:
        for part in range(out.length // 512):
            self._add(decode.embedding, part=part, out=out.in_units(256))

    def matvec(self, w: Matrix, x: Vector, out: Vector) -> None:
        """out = w x."""
        self._runs(
            decode.matvec,
            w.rows // UNIT,
            x=x.in_units(self.quarter),
            out=out.in_units(UNIT),
            page=w.page,
        )

    def matvec_add(self, w: Matrix, x: Vector, other: Vector, out: Vector) -> None:
        """out = other + w x."""
        self._runs(
            decode.matvec_add,
            w.rows // UNIT,
            x=x.in_units(self.quarter),
            chunks=w.cols // self.chunk,
            other=other.in_units(UNIT),
            out=out.in_units(UNIT),
            page=w.page,
        )

    def norm_matvec(self, w: Matrix, x: Vector, gain: Vector, out: Vector) -> None:
        """out = w (rms_norm(x) * gain)."""
        self._normed(decode.norm_matvec, w, x, gain, out, 1)

    def norm_gate(self, w: Matrix, x: Vector, gain: Vector, out: Vector) -> None:
        """out = silu(a x) * (b x), of the normed x; w: 16 rows of a and of b in turn (`in_turn`)."""
        self._normed(decode.norm_gate, w, x, gain, out, 2)

    def norm_rotary(self, w: Matrix, x: Vector, gain: Vector, rope: Vector, out: Vector) -> None:
        self._normed(decode.norm_rotary, w, x, gain, out, 2, rope=rope.in_units(UNIT))

    def _normed(
        self, make: Any, w: Matrix, x: Vector, gain: Vector, out: Vector, blocks: int, **more: int
    ) -> None:
        self._runs(
            make,
            w.rows // UNIT // blocks,
            x=x.in_units(self.quarter),
            gain=gain.in_units(self.quarter),
            out=out.in_units(UNIT),
            page=w.page,
            **more,
        )

    def append(self, layer: int, x: Vector) -> None:
        self._add(decode.append, layer=layer, x=x.in_units(self.heads * self.head))

    def attention(self, layer: int, q: Vector, out: Vector, parts: int = 1) -> None:
        """out = attention of the queries, head after head, to the cache of a layer, in parts of the capacity."""
        heads, pages = q.length // self.head, -(-self.capacity // 64)
        to = out if parts == 1 else self.vector(q.length * parts)
        sums = self.vector(UNIT * heads * parts)
        for part in range(parts):
            for head in range(0, heads, 2):
                at = part * heads + head
                self._add(
                    decode.attend,
                    layer=layer,
                    head=head * self.heads // heads,
                    q=q.in_units(self.head) + head,
                    out=to.in_units(self.head) + at,
                    sums=sums.in_units(UNIT) + at,
                    first=pages * part // parts,
                    last=pages * (part + 1) // parts,
                )
        if parts > 1:
            for head in range(0, heads, 2):
                self._add(
                    decode.merge,
                    x=to.in_units(self.head) + head,
                    sums=sums.in_units(UNIT) + head,
                    heads=heads,
                    count=parts,
                    out=out.in_units(self.head) + head,
                )

    def argmax(self, x: Vector) -> None:
        """chosen = the index of the largest element."""
        size = 2 * UNIT * self.blocks
        best, at = (self.vector(size, size) for _ in range(2))
        for block in range(self.blocks):
            count = x.length // 256
            ends = [count * (block + i) // self.blocks for i in range(2)]
            self._add(
                decode.largest,
                block=block,
                x=x.in_units(256),
                first=ends[0],
                last=ends[1],
                best=best.in_units(UNIT) + 2 * block,
                at=at.in_units(UNIT) + 2 * block,
            )
        self._add(decode.choose, best=best.in_units(size), at=at.in_units(size))


def in_turn(a: Any, b: Any) -> Any:
    """Two matrices as one, 16 rows of each in turn."""
    rows, cols = a.shape
    both = a.reshape(rows // UNIT, 1, UNIT, cols), b.reshape(rows // UNIT, 1, UNIT, cols)
    return _joined(both, 1).reshape(2 * rows, cols)


def _joined(parts: Sequence[Any], axis: int = 0) -> Any:
    """Arrays of NumPy, or tensors of PyTorch, one after another."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts, axis)
    import torch

    return torch.cat(tuple(parts), axis)


def halves_in_turn(w: Any, head: int) -> Any:
    """A matrix whose rows are heads, 16 rows of the first half of a head and of the second in turn."""
    rows, cols = w.shape
    x = w.reshape(rows // head, 2, head // 2, cols)
    return in_turn(x[:, 0].reshape(rows // 2, cols), x[:, 1].reshape(rows // 2, cols))
