"""What all words of a machine use: its program, its rings, its memories, and runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import pykittens as pk
from pykittens.errors import ArgumentError
from pykittens.ir.numbers import check_below, check_count, is_int
from pykittens.ir.signature import signature_of
from pykittens.ir.values import describe
from pykittens.mega.coarse import run
from pykittens.mega.isa.memory import Matrix, Place, Vector
from pykittens.mega.isa.packing import UNIT, check_array, joined, packed, padded, rounded, zeros
from pykittens.mega.isa.vectors import clear
from pykittens.mega.program import Kind, Program, as_bits
from pykittens.mega.schedule import Schedule
from pykittens.ops.arguments import either
from pykittens.ops.tagged import TAG
from pykittens.targets.architectures import TARGETS
from pykittens.types.dtypes import bf16, f32, int32

# The words that make operands.
VECTOR, CONSTANT, WEIGHTS = "vector(length)", "constant(values)", "weights(matrix)"

# Bytes of a page, of what attention has of heads, of the small rings, barriers and reductions, and of the small rings
# for one more sequence. Pages of the shortest ring.
PAGE, OF_HEADS, SMALL, OF_SUMS = 16384, 14336, 4096, 2048
LEAST_PAGES = 2

# The cost of a unit of work without weights, where that of a page of weights is 1.
LIGHT = 0.25

Function = Callable[..., Any]  # of a kind of instruction


class Use(NamedTuple):
    """A vector as an operand of instructions.

    length: that it must have, if not any. unit: elements by which places are counted. whole: instructions together read
    or write multiples of it, by default a unit. word: that makes such vectors.
    """

    x: Vector
    length: int | None
    unit: int
    whole: int = 0
    word: str = VECTOR
    writes: bool = False


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
    pages: int = 0
    flight: int | None = 3
    fetched: int = 2
    eps: float = 1e-5
    widest: int = 1
    below: int = 0
    batch: int = 1
    dynamic: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        of = {"chunk": (1024, 2048), "head": (64, 128), "batch": (1, 2, 4, 8)}
        for name, allowed in of.items():
            if getattr(self, name) not in allowed:
                given = getattr(self, name)
                raise ArgumentError(f"`{name}` must be {either(allowed)}, not {given!r}")
        for name in ("heads", "layers", "capacity", "vocabulary"):
            check_count(name, getattr(self, name))
        check_count("fetched", self.fetched, 0)
        most = 8192 // self.chunk
        if not is_int(self.widest) or not 1 <= self.widest <= most:
            raise ArgumentError(f"`widest` must be from 1 to {most}, not {self.widest!r}")
        self.pages = self.pages or self._most_pages()
        self.count, self.quarter, self.scale = self.chunk // 512, self.chunk // 4, self.head**-0.5
        # The elements of keys that move at a time: the starts of all vectors of keys are multiples of them.
        self.of_keys = min((size := self.heads * self.head) & -size, self.chunk)
        self.panels = self.head // 64
        # The sizes of the memories: elements of V and C, pages of W and M; and the arrays that W and C hold.
        self._sizes = dict.fromkeys("VCWM", 0)
        self._given: dict[str, list[Any]] = {"W": [], "C": []}
        # By the end of the room of a vector, the end of what is written of it, if that is past its elements.
        self._written: dict[int, int] = {}
        self._row = 0  # the length of rows of the embedding
        self.programs: list[Program] = []
        self.begin(self.below)

    def _most_pages(self) -> int:
        """As many pages as the shared memory of Hopper has room for beside the other rings."""
        of_vectors = max(16 * self.batch * self.widest * self.chunk // 8 * bf16.bytes, OF_HEADS)
        room = TARGETS["sm_90a"].shared_bytes - of_vectors - SMALL - (self.batch - 1) * OF_SUMS
        if (pages := room // PAGE - self.fetched) < LEAST_PAGES:
            raise ArgumentError(
                f"{self.batch} vectors of {self.widest * self.chunk} elements leave no room for pages of weights",
                help="fewer sequences (`batch`), or a lower `widest` with machine.rms_norm and machine.matvec",
            )
        return pages

    def begin(self, below: int = 0) -> None:
        """Begin another program, to which words add from now on. It has the same weights and constants, but no vectors
        of another; `tensors` makes those of all programs.

        below: what the positions of the program are below, by default the capacity.
        """
        self.below = below or self.capacity
        if not is_int(self.below) or not 1 <= self.below <= self.capacity:
            raise ArgumentError(f"`below` must be from 1 to {self.capacity}, not {self.below!r}")
        self.program = Program(self.blocks, dynamic=self.dynamic)
        self.programs.append(self.program)
        self.program.number("position", self.below, self.batch)
        self.program.number("token", self.vocabulary, self.batch)
        self._pages = self.program.ring(self.pages, flight=self.flight)
        self._tiles, self._norms, self._queries = (self.program.ring(1) for _ in range(3))
        self._sums, self._inputs = self.program.ring(3), self.program.ring(max(self.fetched, 1))
        self._kinds: dict[str, Kind] = {}
        # The costs of the blocks once the instructions that write a vector were added, by its start.
        self._costs: dict[int, list[float]] = {}

    # -- called by instructions ------------------------------------------------------------------

    def instruction(self, function: Function) -> Kind:
        """A kind of instruction of the program."""
        return self.program.instruction(function)

    def rings(self, chunks: int = 1) -> Any:
        """The rings of products; chunks: of a vector in one tile."""
        return SimpleNamespace(
            pages=self._pages.view(pk.st(bf16, 128, 64)),
            vectors=self._tiles.view(pk.st(bf16, 16 * self.batch, chunks * self.chunk // 8)),
            norms=self._norms.view(pk.sv(f32, 4 * UNIT * self.batch)),
            sums=self._sums.view(pk.sv(f32, 8 * UNIT * self.batch)),
        )

    def weights_ring(self) -> Any:
        """The ring of pages of weights, of which all may be on their way."""
        return self._pages.view(pk.st(bf16, 128, 64), flight=self.pages)

    def queries(self) -> Any:
        """The ring of 128 queries."""
        return self._queries.view(pk.st(bf16, 128, self.head))

    def heads_ring(self) -> Any:
        """The ring of what attention has of heads: tiles of queries, their products with the key of the position, its
        values, and the weights of 64 keys, which each group of the consumers writes."""
        return self._tiles.view(
            x=pk.st(bf16, 2 * self.panels * UNIT, 64),
            scores=pk.sv(f32, self.panels * UNIT),
            values=pk.sv(f32, self.head),
            weights=pk.st(bf16, 128, UNIT),
        )

    def halves_ring(self) -> Any:
        """The ring of what groups find for 64 elements of a head, and logarithms of the sums of their weights."""
        return self._sums.view(x=pk.sv(f32, 128), logs=pk.sv(f32, 2 * UNIT))

    def inputs(self) -> Any:
        """The ring of pages of what instructions write."""
        return self._inputs.view(pk.st(bf16, 128, 64))

    def keys(self) -> Any:
        """The ring of pages for 64 keys and values, or, of heads of 128, for keys and then values."""
        if self.panels == 1:
            return self._pages.view(k=pk.st(bf16, 64, 64), v=pk.st(bf16, 64, 64))
        return self._pages.view(pk.st(bf16, 64, 128))

    # -- memories --------------------------------------------------------------------------------

    def vector(self, length: int) -> Vector:
        """Room for a vector of f32 of each sequence, which one instruction, or one for each part, writes."""
        return self._vector(length, self.chunk)

    def _vector(self, length: int, align: int, memory: str = "V", word: str = VECTOR) -> Vector:
        """A vector with room up to a multiple of `align`."""
        check_count("length", length)
        start, size = rounded(self._sizes[memory], align), rounded(length, align)
        step = size if word == VECTOR else 0  # constants are those of all sequences
        self._sizes[memory] = start + size + step * (self.batch - 1)
        return Vector(self, word, start, length, start + size, step)

    def constant(self, values: Any) -> Vector:
        """A constant vector of f32, such as gains, or a matrix row after row, such as angles."""
        check_array("values", values, ("float32",), None)
        flat = values.reshape(-1)
        made = self._vector(len(flat), self.chunk, "C", CONSTANT)
        self._given["C"].append(padded(flat, self.chunk))
        return made

    def weights(self, matrix: Any) -> Matrix:
        """A matrix of bf16, (rows, columns), copied to pages of 16 rows."""
        check_array("matrix", matrix, ("bfloat16",), 2)
        return Matrix(self, WEIGHTS, self._add_pages(packed(matrix, self.chunk)), *matrix.shape)

    def _add_pages(self, pages: Any) -> int:
        """Add pages to the memory of weights; returns the first of them."""
        first = self._sizes["W"]
        self._given["W"].append(pages)
        self._sizes["W"] += len(pages) // 128
        return first

    def tensors(self, cache: Any = None, table: Any = None, like: Any = None) -> dict[str, Any]:
        """The tensors of the programs by name, for `run` and for words of one, such as program.report(**tensors).

        cache: the keys and the values of each layer, of each sequence, (2 * layers * batch, capacity, heads * head) of
        bf16, to which `append` adds. table: the rows of the embedding, (vocabulary, length). Each may be left out if
        nothing takes it. like: an array of NumPy, or a tensor of PyTorch, beside which vectors and matrices are made,
        by default one of these or of the weights.
        """
        used = {name: None for program in self.programs for name in program.used}
        shape = 2 * self.layers * self.batch, self.capacity, self.heads * self.head
        dtypes = "bfloat16", "float16", "float32"
        for name, word, x, allowed, wanted in (
            ("cache", "cache", cache, dtypes[:1], shape),
            ("E", "table", table, dtypes, (self.vocabulary, self._row)),
        ):
            if name in used:
                if x is None:
                    raise ArgumentError(f"the program takes `{word}`")
                check_array(word, x, allowed, len(wanted))
                if tuple(x.shape) != wanted:
                    raise ArgumentError(f"`{word}` must be {wanted}, not {tuple(x.shape)}")
        for parts in self._given.values():
            parts[:] = [joined(parts)] if len(parts) > 1 else parts
        given = {name: next(iter(parts), None) for name, parts in self._given.items()}
        given |= {"E": table, "cache": cache}
        like = next((x for x in (like, *given.values()) if x is not None), np.zeros(0))
        for name, size, dtype in (
            ("V", (self._sizes["V"],), f32),
            ("M", (128 * self._sizes["M"], 64), bf16),
            *(
                (name, (self.batch,), int32)
                for name in ("chosen", "following", *self.program.numbers)
            ),
        ):
            given[name] = zeros(like, size, dtype)
        return {name: given[name] for name in used}

    def values(self, tensors: Mapping[str, Any], x: Vector) -> Any:
        """A copy of the elements of a vector after a run, without their tags; (batch, length) of several sequences."""
        self._check(VECTOR, x=x)
        found = tensors["V"][x.start : x.start + x.step * self.batch]
        found = (as_bits(found) & ~TAG).view(found.dtype).reshape(self.batch, x.step)[:, : x.length]
        return found if self.batch > 1 else found[0]

    # -- runs ------------------------------------------------------------------------------------

    def launcher(
        self,
        tensors: Mapping[str, Any],
        coarse: bool = False,
        program: Program | None = None,
        apart: bool = False,
    ) -> Callable[..., None]:
        """A function that runs the program on these tensors, with its numbers by name; the schedule is made once.

        `launch = machine.launcher(tensors)`, then `launch(position=7, token=3)` any number of times. coarse: run it as
        `run_coarse` does. program: by default the last. apart: run it by launches one after another, as
        Program.launches; the blocks then need not run at once.
        """
        program = program or self.program
        own = _of(program, tensors)
        schedule = program.scheduled(**own)
        launches, kernel = _launches(program, schedule, own, apart), program.kernel()

        def launch(**numbers: Any) -> None:
            _set(program, own, numbers)
            if coarse:  # which takes the arguments of a first launch
                run(schedule, program.arguments(schedule, **own))
                return
            for arguments in launches:
                kernel(*arguments, apart=apart)

        return launch

    def repeater(
        self,
        tensors: Mapping[str, Any],
        program: Program | None = None,
        apart: bool = False,
        **numbers: Any,
    ) -> Callable[[], None]:
        """A function that runs a program with `argmax`, each time on the token chosen last, at the next position.

        numbers: the first token and position, as of `run`; by default those in tensors["token"] and ["position"]. These
        and tensors["chosen"], ["following"] change places after each run, so that a CUDA graph holds any number of
        runs. The function has the tensors that such a graph reads: keep it as long as the graph. program, apart: as of
        `launcher`.
        """
        program = program or self.program
        if numbers:
            _set(program, tensors, numbers)
        own = _of(program, tensors)
        schedule, kernel = program.scheduled(**own), program.kernel()
        swapped = own | {
            name: own[other]
            for one in (("token", "chosen"), ("position", "following"))
            for name, other in (one, one[::-1])
        }
        launches = _launches(program, schedule, own, apart)
        others = [(*some[:-1], program.operands(swapped, schedule.rewrites)) for some in launches]
        turns = cycle((launches, others))

        def run_next() -> None:
            for arguments in next(turns):
                kernel(*arguments, apart=apart)

        return run_next

    def run(self, tensors: Mapping[str, Any], **numbers: Any) -> None:
        """Run the program once, in the emulator or on a GPU: `machine.run(tensors, position=7, token=3)`.

        The token that it chooses is in tensors["chosen"].
        """
        _set(self.program, tensors, numbers)
        self.program.run(**_of(self.program, tensors))

    def run_coarse(self, tensors: Mapping[str, Any], **numbers: Any) -> None:
        """Run the program once on the CPU, each instruction as a whole, as Program.run_coarse does."""
        _set(self.program, tensors, numbers)
        self.program.run_coarse(**_of(self.program, tensors))

    # -- instructions ----------------------------------------------------------------------------

    def _add(self, function: Function, /, *options: str | int, row: int = 0, **fields: Any) -> None:
        """Add an instruction, as Program.add does; row: the sequence of the vectors."""
        places = self._places(function, fields, row)
        self.program.add(self._kind(function, *options), **places)

    def _add_runs(
        self,
        function: Function,
        count: int,
        /,
        *options: str | int,
        cost: float = LIGHT,
        rows: int = 0,
        **fields: Any,
    ) -> None:
        """Add instructions that share so many units of work, as Program.add_runs does.

        rows: how many sequences have instructions of their own, by default all.
        """
        uses = [use for use in fields.values() if isinstance(use, Use) and use.word == VECTOR]
        kind = self._kind(function, *options)
        for row in range(rows or self.batch):
            busy = self._busy(*(use.x for use in uses if not use.writes))
            places = self._places(function, fields, row)
            self.program.add_runs(kind, count, cost=cost, busy=busy, **places)
        self._written_by_now(*(use.x for use in uses if use.writes))

    def _written_by_now(self, *vectors: Vector) -> None:
        """Remember that the instructions are added that write these."""
        self._costs |= {x.start: [*self.program.costs] for x in vectors}

    def _busy(self, *vectors: Vector) -> list[float]:
        """What each block has to do of what was added since these are written."""
        before = [0.0] * self.blocks
        for x in vectors:
            if known := [start for start in self._costs if start <= x.start]:
                before = max(before, self._costs[max(known)], key=sum)
        return [now - then for now, then in zip(self.program.costs, before, strict=True)]

    def _kind(self, function: Function, *options: str | int) -> Kind:
        """The kind of a function that takes the machine and these options before its tensors, named without ones."""
        name = "_".join(f"{x}" for x in (function.__name__, *options) if x != 1)
        if name not in self._kinds:
            self._kinds[name] = self.program.instruction(function, self, *options, name=name)
        return self._kinds[name]

    def _places(self, function: Function, given: Mapping[str, Any], row: int) -> dict[str, Any]:
        """Those of the fields that the function takes; vectors of a sequence are replaced by their places."""
        words = *signature_of(function).parameters, "block", "cost"
        taken = {name: x for name, x in {**given, "row": row}.items() if name in words}
        return {n: self._place(n, x, row) if isinstance(x, Use) else x for n, x in taken.items()}

    def _place(self, name: str, use: Use, row: int = 0) -> int:
        """Where a vector of a sequence starts, in units; its room is made to be 0 if it is read past what is written of
        it."""
        x, unit, whole = use.x, use.unit, use.whole or use.unit
        self._check(use.word, **{name: x})
        if use.length not in (x.length, None):
            raise ArgumentError(f"`{name}` must have {use.length} elements, not {x.length}")
        end, written = x.start + rounded(x.length, whole), self._written.get(x.room, x.end)
        if x.start % unit or end > x.room:
            raise ArgumentError(
                f"`{name}` starts at a multiple of {unit}, and has room for a multiple of {whole} elements, "
                f"not {x.length} from {x.start}",
                help="a vector of its own, by machine.vector(length), has room for that",
            )
        if use.writes and end > x.end:
            self._written[x.room] = end
        elif use.word == VECTOR and not use.writes and end > written:
            for of in range(0, x.step * self.batch, x.step):
                self._add(clear, first=(written + of) // UNIT, last=(x.room + of) // UNIT)
            self._written[x.room] = x.room
        return (x.start + row * x.step) // unit

    def _check(self, word: str, /, **operands: Place) -> None:
        """Raise unless this word of the machine made the operands."""
        for name, x in operands.items():
            if not isinstance(x, Place) or x.word != word or x.machine is not self:
                other = " of another machine" * (isinstance(x, Place) and x.machine is not self)
                raise ArgumentError(
                    f"`{name}` must be made by {word} of this machine, not {describe(x)}{other}",
                    help=f"machine.{word} makes one",
                )


def _of(program: Program, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the tensors that a program takes; it names what is missing."""
    return {name: tensors[name] for name in program.used if name in tensors}


def _launches(
    program: Program, schedule: Schedule, tensors: Mapping[str, Any], apart: bool
) -> list[tuple[Any, ...]]:
    """The arguments of the launches of a run."""
    return (
        program.launches(schedule, **tensors) if apart else [program.arguments(schedule, **tensors)]
    )


def _set(program: Program, tensors: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Set the numbers of a program, each of which must be in its range: one, or one for each sequence."""
    wanted = {name: n for name, n in program.numbers.items() if name in tensors}
    if given.keys() != wanted.keys():
        raise ArgumentError(
            f"a run takes the numbers {', '.join(wanted) or 'none'}, not {', '.join(given) or 'none'}"
        )
    for name, number in wanted.items():
        values = given[name] if isinstance(given[name], Sequence) else [given[name]]
        if len(values) != number.count:
            raise ArgumentError(f"`{name}` must be {number.count} numbers, not {len(values)}")
        for i, value in enumerate(values):
            check_below(name, value, number.below)
            tensors[name][i] = value
