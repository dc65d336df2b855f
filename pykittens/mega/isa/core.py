"""What all words of a machine use: its program, its rings, its memories, and runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

import pykittens as pk
from pykittens.errors import ArgumentError
from pykittens.ir.numbers import is_int
from pykittens.ir.values import describe
from pykittens.mega.isa.memory import Matrix, Space, Vector
from pykittens.mega.isa.packing import UNIT, check_array, joined, packed, padded, rounded
from pykittens.mega.isa.vectors import clear
from pykittens.mega.program import Kind, Program
from pykittens.ops.tagged import TAG
from pykittens.runtime.arrays import torch_dtype
from pykittens.types.dtypes import bf16, f32, int32


@dataclass
class Core:
    """A program of generic instructions, without the words that add these; see Machine."""

    blocks: int
    chunk: int = 2048
    head: int = 64
    heads: int = 8
    layers: int = 1
    capacity: int = 64
    vocabulary: int = 256
    pages: int = 10
    flight: int | None = 3
    fetched: int = 2
    eps: float = 1e-5
    dynamic: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        for name, allowed in (("chunk", (1024, 2048)), ("head", (64, 128))):
            if getattr(self, name) not in allowed:
                raise ArgumentError(
                    f"`{name}` must be {allowed[0]} or {allowed[1]}, not {getattr(self, name)!r}"
                )
        for name in ("heads", "layers", "capacity", "vocabulary"):
            if not is_int(value := getattr(self, name)) or value < 1:
                raise ArgumentError(f"`{name}` must be an int of at least 1, not {value!r}")
        self.program = Program(self.blocks, dynamic=self.dynamic)
        self.program.number("position", self.capacity)
        self.program.number("token", self.vocabulary)
        self._pages = self.program.ring(self.pages, flight=self.flight)
        self._tiles, self._norms = self.program.ring(1), self.program.ring(1)
        self._queries = self.program.ring(1)
        self._sums, self._inputs = self.program.ring(3), self.program.ring(self.fetched)
        self.count, self.quarter, self.scale = self.chunk // 512, self.chunk // 4, self.head**-0.5
        self._vectors, self._constants = Space("vectors"), Space("constants")
        self._packed: list[Any] = []
        self._values: list[Any] = []
        self._page = self._row = 0  # of the next matrix; the length of rows of the embedding
        self._matrices = 0  # pages of the memory of matrices
        self._kinds: dict[tuple[str, ...], Kind] = {}

    # -- called by instructions ------------------------------------------------------------------

    def instruction(self, function: Callable[..., Any], *options: str) -> Kind:
        """A kind of instruction of the program, whose name ends with these options."""
        function.__name__ = "_".join([function.__name__, *options])
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

    def vector(self, length: int) -> Vector:
        """Room for a vector of f32, which one instruction, or one for each part, writes."""
        return self._vectors.vector(length, self.chunk)

    def constant(self, values: Any) -> Vector:
        """A constant vector of f32, such as gains, or a matrix row after row, such as angles."""
        check_array("values", values, ("float32",), None)
        flat = values.reshape(-1)
        made = self._constants.vector(len(flat), self.chunk)
        self._values.append(padded(flat, self.chunk))
        return made

    def weights(self, matrix: Any) -> Matrix:
        """A matrix of bf16, (rows, columns), copied to pages of 16 rows."""
        check_array("matrix", matrix, ("bfloat16",), 2)
        if 0 in matrix.shape:
            raise ArgumentError(f"`matrix` must have elements, not the shape {matrix.shape}")
        return Matrix(self._pack(packed(matrix, self.chunk)), *matrix.shape)

    def _pack(self, pages: Any) -> int:
        """Add pages to the memory of weights; returns the first of them."""
        first = self._page
        self._packed.append(pages)
        self._page += len(pages) // 128
        return first

    def tensors(self, cache: Any = None, table: Any = None, like: Any = None) -> dict[str, Any]:
        """The tensors of the program by name, for `run` and for its own words, such as program.report(**tensors).

        cache: the keys and the values of each layer, (2 * layers, capacity, heads * head) of bf16, to which `append`
        adds. table: the rows of the embedding, (vocabulary, length). Each may be left out if nothing takes it. like: an
        array of NumPy, or a tensor of PyTorch, beside which vectors and matrices are made, by default one of these or
        of the weights.
        """
        used = {name: None for kind in self.program.kinds for name in kind.operands}
        for name, x, word in (("cache", cache, "cache"), ("E", table, "table")):
            if name in used and x is None:
                raise ArgumentError(f"the program takes `{word}`")
        if "cache" in used:
            check_array("cache", cache, ("bfloat16",), 3)
            wanted = 2 * self.layers, self.capacity, self.heads * self.head
            if tuple(cache.shape) != wanted:
                raise ArgumentError(f"`cache` must be {wanted}, not {tuple(cache.shape)}")
        if "E" in used:
            check_array("table", table, ("bfloat16", "float16", "float32"), 2)
            wanted_rows = self.vocabulary, self._row
            if tuple(table.shape) != wanted_rows:
                raise ArgumentError(f"`table` must be {wanted_rows}, not {tuple(table.shape)}")
        for parts in (self._packed, self._values):
            if len(parts) > 1:
                parts[:] = [joined(parts)]
        given = {
            "W": next(iter(self._packed), None),
            "C": next(iter(self._values), None),
            "E": table,
            "cache": cache,
        }
        like = next((x for x in (like, *given.values()) if x is not None), np.zeros(0))
        for name, size, dtype in (
            ("V", (self._vectors.size,), f32),
            ("M", (128 * self._matrices, 64), bf16),
            ("chosen", (1,), int32),
            *((name, (1,), int32) for name in self.program.numbers),
        ):
            if isinstance(like, np.ndarray):
                given[name] = np.zeros(size, dtype.numpy)
            else:
                given[name] = like.new_zeros(size, dtype=torch_dtype(dtype.name))
        return {name: given[name] for name in used}

    def values(self, tensors: Mapping[str, Any], x: Vector) -> Any:
        """A copy of the elements of a vector after a run, without their tags."""
        found = tensors["V"][x.start : x.start + x.length]
        bits = np.int32 if isinstance(found, np.ndarray) else torch_dtype("int32")
        return (found.view(bits) & ~TAG).view(found.dtype)

    # -- runs ------------------------------------------------------------------------------------

    def launcher(self, tensors: Mapping[str, Any]) -> Callable[..., None]:
        """A function that runs the program on these tensors, with its numbers by name; the schedule is made once.

        `launch = machine.launcher(tensors)`, then `launch(position=7, token=3)` any number of times.
        """
        arguments = self.program.arguments(self.program.scheduled(**tensors), **tensors)
        kernel = self.program.kernel()

        def launch(**numbers: int) -> None:
            self._set(tensors, numbers)
            kernel(*arguments)

        return launch

    def run(self, tensors: Mapping[str, Any], **numbers: int) -> None:
        """Run the program once, in the emulator or on a GPU: `machine.run(tensors, position=7, token=3)`.

        The token that it chooses is in tensors["chosen"].
        """
        self._set(tensors, numbers)
        self.program.run(**tensors)

    def run_coarse(self, tensors: Mapping[str, Any], **numbers: int) -> None:
        """Run the program once on the CPU, each instruction as a whole, as Program.run_coarse does."""
        self._set(tensors, numbers)
        self.program.run_coarse(**tensors)

    def _set(self, tensors: Mapping[str, Any], numbers: Mapping[str, int]) -> None:
        wanted = {name: n for name, n in self.program.numbers.items() if name in tensors}
        if numbers.keys() != wanted.keys():
            raise ArgumentError(
                f"a run takes the numbers {', '.join(wanted) or 'none'}, not {', '.join(numbers) or 'none'}"
            )
        for name, below in wanted.items():
            if not is_int(value := numbers[name]) or not 0 <= value < below:
                raise ArgumentError(f"`{name}` must be from 0 to {below - 1}, not {value!r}")
            tensors[name][0] = value

    # -- places of vectors -----------------------------------------------------------------------

    def _read(self, name: str, x: Vector, unit: int, whole: int = 0) -> int:
        """Where a vector starts, in units; its room is made to be 0 if it is read past what is written of it.

        whole: instructions together read multiples of it, by default a unit.
        """
        start, end = self._place(name, x, unit, whole, self._vectors)
        if end > (written := self._vectors.written.get(x.room, x.end)):
            self._add(clear, first=written // UNIT, last=x.room // UNIT)
            self._vectors.written[x.room] = x.room
        return start

    def _read_constant(self, name: str, x: Vector, unit: int) -> int:
        """Where a constant starts, in units; zeros follow it."""
        return self._place(name, x, unit, 0, self._constants)[0]

    def _write(self, name: str, x: Vector, unit: int, whole: int = 0) -> int:
        """Where a vector starts, in units; instructions together write multiples of `whole`, by default a unit."""
        start, end = self._place(name, x, unit, whole, self._vectors)
        if end > x.end:
            self._vectors.written[x.room] = end
        return start

    def _place(self, name: str, x: Vector, unit: int, whole: int, space: Space) -> tuple[int, int]:
        """Where a vector starts, in units, and the end of its elements up to a multiple of `whole`."""
        self._length(name, x)
        if x.space is not space:
            mine = x.space in (self._vectors, self._constants)
            of = f"the memory of {x.space.name}" if mine else "another machine"
            word = "constant(values)" if space is self._constants else "vector(length)"
            raise ArgumentError(
                f"`{name}` must be in the memory of {space.name}, not in {of}",
                help=f"machine.{word} makes one",
            )
        end = x.start + rounded(x.length, whole or unit)
        if x.start % unit or end > x.room:
            raise ArgumentError(
                f"`{name}` starts at a multiple of {unit}, and has room for a multiple of {whole or unit} elements, "
                f"not {x.length} from {x.start}",
                help="a vector of its own, by machine.vector(length), has room for that",
            )
        return x.start // unit, end

    def _length(self, name: str, x: Vector) -> int:
        if not isinstance(x, Vector):
            raise ArgumentError(
                f"`{name}` must be a vector of the machine, not {describe(x)}",
                help="machine.vector(length) and machine.constant(values) make vectors",
            )
        return x.length

    def _check_lengths(self, **lengths: tuple[Vector, int]) -> None:
        for name, (x, length) in lengths.items():
            if (found := self._length(name, x)) != length:
                raise ArgumentError(f"`{name}` must have {length} elements, not {found}")

    def _check_matrix(self, w: Matrix) -> None:
        if not isinstance(w, Matrix):
            raise ArgumentError(
                f"`w` must be a matrix of weights, not {describe(w)}",
                help="machine.weights(matrix) makes one",
            )

    # -- instructions ----------------------------------------------------------------------------

    def _add(self, make: Callable[..., Kind], /, **fields: Any) -> None:
        self.program.add(self._kind(make), **fields)

    def _kind(self, make: Callable[..., Kind], *options: str) -> Kind:
        key = make.__name__, *options
        if key not in self._kinds:
            self._kinds[key] = make(self, *options)
        return self._kinds[key]
