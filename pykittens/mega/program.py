"""Programs: kinds of instructions, the instructions in their order, and the blocks that they run on."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from heapq import heapify, heapreplace
from inspect import isfunction
from typing import Any

import numpy as np

import pykittens as pk
from pykittens.analysis.timeline.profile import Profile
from pykittens.errors import ArgumentError, KernelError, LanguageError
from pykittens.ir.build import current
from pykittens.ir.numbers import check_below, check_count, is_int, number, numbers
from pykittens.ir.signature import signature_of
from pykittens.ir.values import describe
from pykittens.lang.merging import declared
from pykittens.mega import coarse
from pykittens.mega.interpreter import Interpreter, padded
from pykittens.mega.levels import levels
from pykittens.mega.proof import prove
from pykittens.mega.report import ProgramReport, report
from pykittens.mega.schedule import Schedule, derive
from pykittens.ops.tagged import TAG as TAG_BITS
from pykittens.runtime.arrays import torch_dtype
from pykittens.runtime.kernel import KernelFunction
from pykittens.runtime.profile import CLOCK_READS, profiled
from pykittens.types.dtypes import int32

Tensors = Mapping[str, Any]  # by name
TAG = "tag"  # the keyword of the tag of a launch
NO_WAITS = np.zeros((1, 2), np.int32)
# The place of an instruction, in a report of a debug program.
_PLACE = re.compile(r"in \w+, number (\d+) of the queue")


@dataclass(frozen=True)
class Number:
    """A number that launches read from memory: what it stays below; and how many there are, if there are several."""

    below: int
    count: int | None = None

    def read(self, tensor: Any) -> Any:
        """The number in the running kernel; of several an object whose [i] is the i-th."""
        return pk.load(tensor[0]) if self.count is None else Several(tensor)


@dataclass(frozen=True)
class Several:
    """Numbers of one name, read from memory where they are taken: numbers[i]."""

    tensor: Any

    def __getitem__(self, i: Any) -> Any:
        return pk.load(self.tensor[i])


@dataclass(eq=False)
class Kind:
    """A kind of instruction: a function with roles, of tensors by position and of int32 fields by keyword.

    Its tensors are those of the program with the same names. A field is a value of the running kernel. is_tagged: it
    takes the tag of the launch. numbers: those of the program that it takes. given: what the function takes before its
    tensors.
    """

    name: str
    function: Callable[..., Any]
    tensors: tuple[str, ...]
    fields: tuple[str, ...]
    is_tagged: bool = False
    numbers: Mapping[str, Number] = field(default_factory=dict)
    given: tuple[Any, ...] = ()

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of the tensors of the program that it reads or writes."""
        return *self.tensors, *self.numbers

    def values(self, operands: Tensors, words: Sequence[Any]) -> dict[str, Any]:
        """Its fields, which follow the first of the words of an instruction, and its numbers, read from memory."""
        numbers = {name: of.read(operands[name]) for name, of in self.numbers.items()}
        return dict(zip(self.fields, words[1:], strict=False)) | numbers

    def record(self, operands: Tensors, values: Mapping[str, Any], tag: Any) -> None:
        """Record it in the open kernel, with its fields and numbers."""
        more = {TAG: tag} if self.is_tagged else {}
        self.function(*self.given, *(operands[t] for t in self.tensors), **values, **more)


@dataclass(eq=False)
class Ring:
    """A ring of stages of shared memory for all kinds of a program, which go on in it one after another.

    stages, flight: as of pk.pipeline. A stage has room for the largest of its views.
    """

    stages: int
    flight: int | None = None

    def view(self, tile: Any = None, *, flight: int | None = None, **tiles: Any) -> Any:
        """The ring with these tiles in a stage, as pk.pipeline takes them; in an instruction, before its roles.

        One role of the block fills it, and one drains it, in all instructions. flight: as of the view of a pipeline.
        """
        merging = current("view").merging
        if merging is None:
            raise LanguageError("view: the ring of a program is for its instructions")

        def make() -> Any:
            if self not in merging.rings:
                first = pk.pipeline(self.stages, tile, flight=self.flight, **tiles)
                merging.rings[self] = first
                if flight is None:
                    return first
            return merging.rings[self].view(tile, flight=flight, **tiles)

        return declared("view", make)


class Rewritten:
    """Marks the tensors of a program that writes elements again: its kernel waits and signals more often."""


@dataclass(frozen=True)
class Instruction:
    """An instruction of a program: its kind, its fields, and the block that runs it, None if it is any that is free."""

    kind: Kind
    fields: tuple[int, ...]
    block: int | None

    def __str__(self) -> str:
        fields = ", ".join(f"{n}={x}" for n, x in zip(self.kind.fields, self.fields, strict=True))
        return f"{self.kind.name}({fields})"

    @property
    def where(self) -> str:
        """The block that runs it, in words."""
        return "any block" if self.block is None else f"block {self.block}"


@dataclass
class Program:
    """Instructions that blocks run in one launch.

    blocks: as many as run at once, at most one a multiprocessor. Each instruction is of a kind, a function marked with
    @program.instruction, and belongs to a block; a block runs its instructions in the order in which they were added.
    In a `dynamic` program it belongs to none: a block that is free takes the next of all. Results are
    those of instructions that run one after another, in the order in which they were added: an instruction waits until
    those before it have written what it reads, and have read and written what it writes.

        >>> program = Program(blocks=2)
        >>> @program.instruction
        ... def double(x, y, *, part):
        ...     ring = pk.pipeline(2, pk.sv(pk.f32, 128))
        ...     with pk.producer():
        ...         with ring.fill() as s:
        ...             pk.load_async(s, x[part])
        ...     with pk.warps(1):
        ...         with ring.drain() as s:
        ...             pk.store(y[part], 2 * pk.load(s))
        >>> for part in range(4):
        ...     program.add(double, part=part)
        >>> x, y = np.ones(512, np.float32), np.zeros(512, np.float32)
        >>> program.run(x=x, y=y)
        >>> y.sum()
        np.float32(1024.0)
    """

    blocks: int
    kinds: list[Kind] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    dynamic: bool = field(default=False, kw_only=True)
    # The numbers that launches read from memory, by name.
    numbers: dict[str, Number] = field(default_factory=dict, init=False)
    # The cost of each block; the recordings of its kernel; the kernel and the kinds when it was made; and classes that
    # hold its tensors, by their names and whether elements are written again.
    costs: list[float] = field(default_factory=list, init=False, repr=False)
    recorded: list[Interpreter] = field(default_factory=list, init=False, repr=False)
    _kernel: Any = field(default=None, init=False, repr=False)
    _tensors: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_count("blocks", self.blocks)
        if not isinstance(self.dynamic, bool):
            raise ArgumentError(f"`dynamic` must be True or False, not {self.dynamic!r}")
        self.costs = [0.0] * self.blocks

    def instruction(self, function: Callable[..., Any], *given: Any, name: str = "") -> Kind:
        """Make a function a kind of instruction of this program.

        given: values of its first parameters, the same for all instructions. name: by default that of the function.
        A keyword `tag` is no field: it is the tag of the launch, for pk.store_tagged and pk.load_tagged. Nor is one
        with the name of a number of the program.
        An ArgumentError for parameters that are neither tensors by position nor fields by keyword, without defaults.
        """
        if not isfunction(function):
            raise ArgumentError(f"an instruction is a function, not {describe(function)}")
        name, tensors, fields = name or function.__name__, list[str](), list[str]()
        for p in [*signature_of(function).parameters.values()][len(given) :]:
            if p.default is not p.empty or p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
                wrong = "has a default" if p.default is not p.empty else "is not taken by its name"
                raise ArgumentError(
                    f"{name}: `{p.name}` {wrong}",
                    help="tensors come first, fields follow a `*`, as in `def kind(x, y, *, row)`",
                )
            (fields if p.kind is p.KEYWORD_ONLY else tensors).append(p.name)
        for word, meaning in (("block", "block that runs it"), ("cost", "time that it takes")):
            if word in fields:
                raise ArgumentError(f"{name}: `{word}` is the {meaning}, not a field")
        if any(kind.name == name for kind in self.kinds):
            raise ArgumentError(f"the program has an instruction `{name}` already")
        numbers = {word: self.numbers[word] for word in fields if word in self.numbers}
        own = tuple(word for word in fields if word != TAG and word not in numbers)
        body = pk.function(function)
        self.kinds.append(Kind(name, body, tuple(tensors), own, TAG in fields, numbers, given))
        return self.kinds[-1]

    def number(self, name: str, below: int, count: int | None = None) -> None:
        """Declare a number that each launch reads from memory, from 0 to below - 1, such as a position or a token.

        A kind that is added afterwards takes it by a keyword of this name. It is the first element of an int32 tensor
        of the same name. An instruction is taken to touch what it can touch for any value of the number, so a schedule
        serves all values; an index of a written tensor follows from at most one number, by sums, products, quotients
        by a divisor, and limits. count: declare so many, the elements of the tensor; the keyword `name` is then an
        object whose name[i] is the i-th.
        """
        check_count("below", below)
        if count is not None:
            check_count("count", count)
        if not name.isidentifier() or name == TAG or name in self.numbers:
            raise ArgumentError(f"`name` must be a new name of a keyword, not {name!r}")
        self.numbers[name] = Number(below, count)

    def ring(self, stages: int, *, flight: int | None = None) -> Ring:
        """A ring of shared stages for all kinds of instructions, each of which has a view of it.

        >>> program = Program(blocks=1)
        >>> pages = program.ring(4)
        >>> @program.instruction
        ... def add_one(x, y, *, part):
        ...     page = pages.view(pk.sv(pk.f32, 128))
        ...     with pk.producer(), page.fill() as s:
        ...         pk.load_async(s, x[part])
        ...     with pk.warps(1), page.drain() as s:
        ...         pk.store(y[part], 1 + pk.load(s))
        >>> @program.instruction
        ... def add_rows(m, z, *, row):
        ...     page = pages.view(pk.st(pk.f32, 16, 64))
        ...     with pk.producer(), page.fill() as s:
        ...         pk.load_async(s, m[row, 0])
        ...     with pk.warps(1), page.drain() as s:
        ...         pk.store(z[row], pk.row_sum(pk.load(s)))
        >>> program.add(add_one, part=0)
        >>> program.add(add_rows, row=0)
        >>> x, y, z = np.ones(128, np.float32), np.zeros(128, np.float32), np.zeros(16, np.float32)
        >>> program.run(x=x, y=y, m=np.ones((16, 64), np.float32), z=z)
        >>> y.sum(), z.sum()
        (np.float32(256.0), np.float32(1024.0))
        """
        return Ring(stages, flight)

    def add(
        self, kind: Kind, /, *, block: int | None = None, cost: float = 1.0, **fields: int
    ) -> None:
        """Add an instruction.

        block: the one that runs it, by default the first of those with the least cost so far, so that blocks take equal
        instructions in turn; not for a dynamic program. cost: its time, in any unit.
        """
        if not isinstance(kind, Kind):
            raise ArgumentError(
                f"`kind` must be an instruction of the program, not {describe(kind)}",
                help="@program.instruction makes one of a function",
            )
        if kind not in self.kinds:
            raise ArgumentError(f"{kind.name} is an instruction of another program")
        fields, block = numbers(fields), number(block)
        if set(fields) != set(kind.fields):
            wanted = ", ".join(kind.fields) or "no fields"
            raise ArgumentError(f"{kind.name}: takes {wanted}, not {', '.join(fields) or 'none'}")
        for name, value in fields.items():
            if not is_int(value) or not int32.represents(value):
                raise ArgumentError(f"{kind.name}: `{name}` must be an int32, not {value!r}")
        if not isinstance(cost := number(cost), int | float) or not 0 <= cost < math.inf:
            raise ArgumentError(f"{kind.name}: `cost` must be a number of at least 0, not {cost!r}")
        if not self.dynamic:
            block = self.costs.index(min(self.costs)) if block is None else block
            check_below("block", block, self.blocks)
            self.costs[block] += cost
        elif block is not None:
            raise ArgumentError(
                f"{kind.name}: `block` must be left out in a dynamic program, not {block!r}",
                help="the block that is free first takes the next instruction",
            )
        values = tuple(fields[name] for name in kind.fields)
        self.instructions.append(Instruction(kind, values, block))

    def add_runs(
        self,
        kind: Kind,
        count: int,
        /,
        *,
        cost: float = 1.0,
        busy: Sequence[float] | None = None,
        **fields: int,
    ) -> None:
        """Add an instruction for each block, with a run of `count` units of work: its fields `first` and `last`.

        In a dynamic program there are as many, for any block. Runs are neighbours; last is past the end. cost: the time
        of a unit. busy: the time that each block is busy before, such as with other instructions on the same vectors;
        units go to the blocks that end first with them, of these to those with the least cost so far. By default runs
        differ by one unit at most.
        """
        check_count("count", count := number(count), 0)
        for name in ("first", "last"):
            if name in fields:
                raise ArgumentError(
                    f"program.add_runs: `{name}` is that of each run, and not given"
                )
        busy = [0.0] * self.blocks if busy is None else busy
        if len(busy) != self.blocks:
            raise ArgumentError(f"`busy` must be {self.blocks} numbers, not {len(busy)}")
        ends = [*zip(busy, self.costs, range(self.blocks), strict=True)]
        heapify(ends)
        lengths, last = [0] * self.blocks, 0
        for _ in range(count):
            end, before, block = ends[0]
            lengths[block] += 1
            heapreplace(ends, (end + cost, before, block))
        for block, length in enumerate(lengths):
            first, last = last, last + length
            if length:
                on, run = None if self.dynamic else block, {"first": first, "last": last}
                self.add(kind, block=on, cost=cost * length, **fields, **run)

    @property
    def used(self) -> dict[str, None]:
        """The names of the tensors that its kinds take, in their order."""
        return {name: None for kind in self.kinds for name in kind.operands}

    def kernel(self) -> KernelFunction:
        """The kernel of the program: of its code, waits, counters, parities, tickets, and an object of tensors.

        `apart=True`: for launches whose instructions need nothing of one another, as of `launches`.
        """
        kinds = tuple(self.kinds)
        if self._kernel is None or self._kernel[0] != kinds:
            recorded = self.recorded = list[Interpreter]()

            @pk.kernel
            def interpreter(  # type: ignore[no-untyped-def]
                code, waits, counters, parities, tickets, tensors, *, apart=False
            ):
                words = code, waits, counters, parities, tickets
                rewrites = isinstance(tensors, Rewritten)
                made = Interpreter(kinds, *words, vars(tensors), rewrites, apart)
                made.record()
                recorded.append(made)

            self._kernel = kinds, interpreter
        kernel: KernelFunction = self._kernel[1]
        return kernel

    def operands(self, tensors: Tensors, rewrites: bool = False) -> Any:
        """The tensors of all kinds in one object; an ArgumentError if some are missing, or unknown."""
        names = (*self.used,)
        if set(names) != set(tensors):
            missing, unknown = sorted({*names} - {*tensors}), sorted({*tensors} - {*names})
            both = ((missing, "missing"), (unknown, "unknown"))
            wrong = "; ".join(f"{', '.join(some)} {is_}" for some, is_ in both if some)
            raise ArgumentError(f"the program takes {', '.join(names)}: {wrong}")
        key = names, rewrites
        if key not in self._tensors:
            marks = (Rewritten,) if rewrites else ()
            self._tensors[key] = make_dataclass("tensors", names, bases=marks, frozen=True)
            # Since Python 3.12 it would count as a class of this package, whose parts are no arguments.
            self._tensors[key].__module__ = "tensors"
        return self._tensors[key](**tensors)

    def scheduled(self, /, **tensors: Any) -> Schedule:
        """The schedule for tensors of these shapes, proved: which instruction waits for which.

        A LanguageError if an instruction reads what it writes itself, or an element with a tag is written twice.
        """
        if not self.instructions:
            raise ArgumentError(
                "the program has no instructions", help="program.add(kind, ...) adds one"
            )
        schedule = derive(self, tensors)
        prove(schedule)
        return schedule

    def arguments(self, schedule: Schedule, /, **tensors: Any) -> tuple[Any, ...]:
        """What the kernel of the program takes to run a schedule on tensors of the shapes that it was made for.

        They serve any number of launches, one after another. A launch that is stopped leaves them as they are. The tags
        of tensors that instructions tag are set to 0; after that only launches with these arguments may write them.
        """
        for name, shape in schedule.shapes.items():
            if name in tensors and tuple(tensors[name].shape) != shape:
                raise ArgumentError(
                    f"the schedule is for `{name}` of {shape}, not {tuple(tensors[name].shape)}"
                )
        for name in schedule.tagged:
            bits = as_bits(tensors[name.partition(".")[2]])
            bits &= ~TAG_BITS
        sizes = schedule.counters, sum(schedule.groups)
        return self.words(*schedule.encoded(), sizes, tensors, schedule.rewrites)

    def words(
        self, code: Any, waits: Any, sizes: tuple[int, int], tensors: Tensors, rewrites: bool
    ) -> tuple[Any, ...]:
        """The arguments of the kernel for these words; sizes: the counters, and groups of all roles of a block."""
        operands, (counters, groups) = self.operands(tensors, rewrites), sizes
        rows = (2, padded(max(counters, 1))), (self.blocks, padded(groups))
        shapes = *rows, *(((1,),) if self.dynamic else ())
        given = code, waits, *(np.zeros(shape, np.int32) for shape in shapes)
        like = next((x for x in tensors.values() if hasattr(x, "new_tensor")), None)
        if like is not None:
            given = tuple(like.new_tensor(x, dtype=torch_dtype("int32")) for x in given)
        return (*given, *(() if self.dynamic else (None,)), operands)

    def launches(self, schedule: Schedule, /, **tensors: Any) -> list[tuple[Any, ...]]:
        """What the kernel takes, with `apart=True`, to run a schedule by launches one after another.

        The instructions of a launch need nothing of one another, so they need not run at once: this is the program for
        a GPU that runs something else beside it, and for comparison. The weights of a launch are loaded while the one
        before it ends. The launches may be repeated any number of times; nothing else may write the tensors.
        """
        if self.dynamic:
            raise ArgumentError("launches: the program must not be dynamic")
        self.arguments(schedule, **tensors)  # which checks the tensors, and takes away their tags
        sizes = 0, sum(schedule.groups)
        codes = (schedule.encoded(level)[0] for level in levels(schedule))
        return [self.words(code, NO_WAITS, sizes, tensors, schedule.rewrites) for code in codes]

    def report(self, /, **tensors: Any) -> ProgramReport:
        """What the program is made of, for tensors of these shapes: kinds and their registers, rings, the schedule."""
        return report(self, self.scheduled(**tensors), tensors)

    def debug(self, /, **tensors: Any) -> None:
        """Run the program once; on a GPU check waits, accesses and assertions, as KernelFunction.debug does.

        An error names the instructions, with their fields, in which the groups of the block stopped.
        """
        schedule = self.scheduled(**tensors)
        try:
            self.kernel().debug(*self.arguments(schedule, **tensors))
        except KernelError as fault:
            raise self._told(fault, schedule) from None

    def _told(self, fault: KernelError, schedule: Schedule) -> KernelError:
        """The error with instructions in place of their kinds and places in the queue of the block that stopped."""
        block = re.search(r"\bblock (\d+)", f"{fault.message} block {fault.operands.get('block')}")
        queue = schedule.queues[0 if self.dynamic else int(block[1])] if block else []

        def told(text: str) -> str:
            return _PLACE.sub(lambda at: f"in {self.instructions[queue[int(at[1])]]}", text)

        if queue:
            fault.message = told(fault.message)
            fault.operands = {name: told(f"{x}") for name, x in fault.operands.items()}
        return fault

    def profile(self, /, *, clock_reads: int = CLOCK_READS, **tensors: Any) -> Profile:
        """Run the program once on tensors of a GPU, with clock reads; returns the timings of its instructions."""
        schedule = self.scheduled(**tensors)
        names: dict[tuple[int, str], list[str]] = {}
        for ticket, instruction in enumerate(self.instructions):
            at = ticket if instruction.block is None else instruction.block
            names.setdefault((at, instruction.kind.name), []).append(str(instruction))
        given = self.arguments(schedule, **tensors)
        return profiled(self.kernel(), given, {}, clock_reads, names)

    def run(self, /, **tensors: Any) -> None:
        """Run the program once on tensors by name, NumPy arrays or tensors of PyTorch of one device."""
        schedule = self.scheduled(**tensors)
        self.kernel()(*self.arguments(schedule, **tensors))

    def run_coarse(self, /, **tensors: Any) -> None:
        """Run the program once on arrays on the CPU, each instruction as a whole, one after another.

        The results are those of the emulator, 30 to 50 times as fast. Races are not found.
        """
        schedule = self.scheduled(**tensors)
        coarse.run(schedule, self.arguments(schedule, **tensors))


def as_bits(tensor: Any) -> Any:
    """The memory of an f32 array of NumPy or PyTorch as int32."""
    return tensor.view(np.int32 if isinstance(tensor, np.ndarray) else torch_dtype("int32"))
