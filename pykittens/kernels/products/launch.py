"""Launches of products: what is worked out once for calls that are alike, and the memory that launches need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pykittens as pk
from pykittens.ir.nodes import written
from pykittens.kernels.core import Repeated, empty
from pykittens.kernels.epilogue import Epilogue
from pykittens.kernels.products.config import Config, Shape, work
from pykittens.kernels.products.operands import OPERANDS, Product, has_lines, product
from pykittens.kernels.products.options import GIVEN, NOTHING, Options, dtype_of
from pykittens.kernels.products.tiling import Form
from pykittens.kernels.workspace import flags, is_shared, scratch, stream_of, zeros
from pykittens.runtime import driver
from pykittens.runtime.arguments import check
from pykittens.runtime.bound import BoundLaunch
from pykittens.runtime.kernel import KernelFunction
from pykittens.types.dtypes import DTYPES

# What a launch adds to what a call passed.
ADDED = ("partials", "flags", "row_sums", "column_sums")


@dataclass(frozen=True)
class Room:
    """Memory that a launch needs for itself: shapes of f32 arrays, and how many flags of blocks there are."""

    partials: tuple[int, ...] | None
    flags: int
    row_sums: tuple[int, ...] | None
    column_sums: tuple[int, ...] | None

    @staticmethod
    def of(p: Product, config: Config, shape: Shape, row_sums: bool, column_sums: bool) -> Room:
        """What a product in a configuration needs."""
        tiles, is_split = max(work(config, shape)[0], 1), config.splits > 1
        height = tiles * config.splits * config.rows * (1 + shape.gated) * config.parts
        rows, cols = -(-p.m // config.rows), -(-p.n // config.cols)
        if is_split:
            cols *= config.parts  # parts are finished by themselves
        return Room(
            (height, config.out_cols) if is_split else None,
            tiles * config.consumers * 2 if is_split else 0,
            (*p.lead, cols, p.m) if row_sums else None,
            (*p.lead, rows * config.consumers, p.n) if column_sums else None,
        )

    def made(self, like: Any, stream: int) -> dict[str, Any]:
        """The arrays for a launch on a stream, by the names of the operands that they are."""
        return self.sums(like) | self.passing(like, stream)

    def sums(self, like: Any) -> dict[str, Any]:
        """The parts of the sums that were asked for."""
        shapes = {"row_sums": self.row_sums, "column_sums": self.column_sums}
        return {n: empty(like, s, "f32") for n, s in shapes.items() if s is not None}

    def passing(self, like: Any, stream: int) -> dict[str, Any]:
        """What blocks leave for one another, of no use after a launch; launches of a stream share it."""
        if self.partials is None:
            return {}
        partials = scratch(like, self.partials, stream)
        return {"partials": partials, "flags": flags(like, self.flags, stream)}

    def alone(self, like: Any) -> dict[str, Any]:
        """The arrays in memory of their own, so that a wrong launch leaves no flag set for others."""
        if self.partials is None:
            return self.sums(like)
        partials = empty(like, self.partials, "f32")
        return self.sums(like) | {"partials": partials, "flags": zeros(like, self.flags)}


@dataclass(frozen=True)
class Roomy(Repeated):
    """The same of calls whose launches need memory of their own.

    adding: the launches that add up the parts of sums, and the shapes of these. passing: what blocks leave for one
    another, by stream.
    """

    room: Room
    adding: tuple[tuple[str, BoundLaunch, tuple[int, ...]], ...]
    passing: dict[int, dict[str, Any]] = field(default_factory=dict, compare=False)

    def __call__(self, values: list[Any], a: Any, out: Any, stream: int) -> Any:
        """Launch with these addresses and numbers; the result, and the sums that were asked for."""
        room = self.room.sums(a) | self._passing(a, stream)
        values += [room[n].data_ptr() if n in room else None for n in ADDED]
        out = super().__call__(values, a, out, stream)
        if not self.adding:
            return out
        return out, *(self._add(step, room, stream) for step in self.adding)

    def fixed(self, values: list[Any], stream: int) -> Uncaptured | None:
        """The launch just made, for others that no graph captures; None if one did, or where sums are results."""
        ordinal = self.launch.ordinal
        if self.adding or driver.stream_is_capturing(stream, ordinal):
            return None
        launch = super().fixed(values, stream)
        return None if launch is None else Uncaptured(launch, ordinal, self.passing[stream])

    def _passing(self, a: Any, stream: int) -> dict[str, Any]:
        if self.room.partials is None:
            return {}
        if not is_shared(a, stream):
            return self.room.passing(a, stream)
        if stream not in self.passing:
            self.passing[stream] = self.room.passing(a, stream)
        return self.passing[stream]

    def _add(
        self, step: tuple[str, BoundLaunch, tuple[int, ...]], room: dict[str, Any], stream: int
    ) -> Any:
        name, launch, shape = step
        total = empty(room[name], shape)
        launch([room[name].data_ptr(), total.data_ptr()], stream)
        return total


@dataclass(frozen=True)
class Uncaptured:
    """A fixed launch with memory of its stream, which a graph must not have."""

    launch: Callable[[int], bool]
    ordinal: int
    memory: dict[str, Any]  # lives as long

    def __call__(self, stream: int) -> bool:
        """Launch, unless a graph would capture it; whether it was launched."""
        return not driver.stream_is_capturing(stream, self.ordinal) and self.launch(stream)


def names_of(p: Product, config: Config, row_sums: bool, column_sums: bool) -> tuple[str, ...]:
    """The operands behind the three matrices, in the order of the kernel."""
    own = [name for name in p.extras if name not in OPERANDS]
    sums = [n for n, asked in (("row_sums", row_sums), ("column_sums", column_sums)) if asked]
    passing = ["partials", "flags"] if config.splits > 1 else []
    return (*(n for n in OPERANDS if n in p.extras), *own, *sums, *passing)


def places_of(names: Sequence[str], swap: bool, given: Sequence[str]) -> tuple[int, ...]:
    """Where the arguments of the kernel stand among what a call passed and what a launch adds."""
    place = {name: i for i, name in enumerate(("a", "b", "out", *given, *ADDED))}
    matrices = ("b", "a", "out") if swap else ("a", "b", "out")
    return tuple(place[name] for name in (*matrices, *names))


@pk.kernel(warps=1)
def add_up(parts, out):  # type: ignore[no-untyped-def]
    """out[..., i] = sum over p of parts[..., p, i], one after another."""
    *lead, col = pk.grid(*parts.shape[:-2], pk.cdiv(parts.cols, 128))
    total = pk.zeros(pk.f32, 128)
    for p in pk.range(parts.rows):
        total = total + pk.load(parts[(*lead, p, col)], cols=128)
    pk.store(out[(*lead, col)], total)


class Call:
    """A call of which nothing is known yet, launched in a configuration; `like` is an array of its GPU."""

    def __init__(self, kernel: KernelFunction, given: tuple[Any, ...], options: Options) -> None:
        """`given` are the arrays and numbers of the call, as GIVEN names them."""
        self.kernel, self.given, self.options = kernel, given, options
        self.own = len(given) - len(GIVEN)
        names = (*GIVEN, *(f"operand{i}" for i in range(self.own)))
        extras = {
            name: float(x) if name in NOTHING and isinstance(x, int) else x
            for name, x in zip(names[3:], given[3:], strict=True)
            if x is not None and not (isinstance(x, int | float) and x == NOTHING.get(name))
        }
        a, b, self.out, *_ = given
        options.check(extras, self.out)
        self.p = product(a, b, self.out, extras, options.transpose_b, fold=not options.is_whole)
        options.check_dtypes(self.p)
        self.like = self.p.a
        self.dtype = options.result_dtype(self.p)

    @property
    def shape(self) -> Shape:
        """What the choice of a configuration depends on."""
        p = self.p
        return Shape(
            *(p.m, p.n, p.k, p.batch),
            bytes=dtype_of(p.a).bytes,
            out_bytes=DTYPES[self.dtype].bytes,
            gated="gate" in p.extras,
            blocks="row_blocks" in p.extras,
            may_swap=not self.options.is_whole,
            a_by_columns=p.a_is_transposed,
            b_by_rows=p.b_is_transposed,
            operands=len(
                set(p.extras)
                - {"gate", "alpha", "gate_alpha", "row_blocks", "column_blocks", "gate_blocks"}
            ),
            activation=bool(self.options.activation) or self.options.epilogue is not None,
        )

    def form(self, config: Config) -> Form:
        """The constants of the kernel in a configuration."""
        p, options = self.p, self.options
        names = names_of(p, config, options.row_sums, options.column_sums)
        epilogue = Epilogue(names, options.activation, options.epilogue)
        turned = p.a_is_transposed, p.b_is_transposed
        if config.swap:
            turned = not p.b_is_transposed, not p.a_is_transposed
        return Form(*turned, options.accumulate, epilogue)

    def room(self, config: Config) -> Room:
        """The memory that a launch needs besides."""
        asked = self.options.row_sums, self.options.column_sums
        return Room.of(self.p, config, self.shape, *asked)

    def arguments(self, config: Config, out: Any, made: dict[str, Any]) -> tuple[Any, ...]:
        """What the kernel takes by position."""
        p = self.p
        matrices = (p.b, p.a, out) if config.swap else (p.a, p.b, out)
        given = p.extras | made
        return (*matrices, *(given[name] for name in self.form(config).epilogue.names))

    def constants(self, config: Config) -> dict[str, Any]:
        """What the kernel takes by keyword."""
        return {"form": self.form(config), "config": config}

    def whole(self) -> Any:
        """The array of the result, made if the caller passed none."""
        return self.out if self.out is not None else empty(self.like, self.p.shape, self.dtype)

    def flat(self, out: Any) -> Any:
        """The result with the axes that the kernel knows."""
        if out is self.out and self.p.out is not None:
            return self.p.out
        return out.reshape((*self.p.lead, self.p.m, self.p.n))

    def result(self, config: Config, made: dict[str, Any] | None = None) -> Any:
        """Launch, with the room of this configuration if it was made before; what gemm returns."""
        whole = self.whole()
        flat = self.flat(whole)
        lines = flat if has_lines(flat) else empty(flat, tuple(flat.shape))
        if lines is not flat and "beta" in self.p.extras:
            lines[...] = flat
        if made is None:
            made = self.room(config).made(self.like, stream_of(self.like))
        arguments, constants = self.arguments(config, lines, made), self.constants(config)
        self.kernel(*arguments, **constants)
        if lines is not flat:
            flat[...] = lines
        self._write_back(arguments, constants)
        sums = []
        for name, shape in self.sums():
            total = empty(made[name], shape)
            add_up(made[name], total.reshape((*self.p.lead, shape[-1])))
            sums.append(total)
        return (whole, *sums) if sums else whole

    def _write_back(self, arguments: tuple[Any, ...], constants: dict[str, Any]) -> None:
        """What the user's function wrote to copies of its operands is theirs."""
        if not self.own or not self.p.copies:
            return
        kernel = self.kernel.record(check(self.kernel.parameters, arguments, constants))
        names = written(kernel)
        for param, argument in zip(kernel.params, arguments, strict=True):
            for array, copy in self.p.copies:
                if copy is argument and param.name in names:
                    array[...] = copy.reshape(array.shape)

    def sums(self) -> list[tuple[str, tuple[int, ...]]]:
        """The sums that were asked for, with their shapes."""
        lead, options = self.p.shape[:-2], self.options
        asked = (
            ("row_sums", options.row_sums, self.p.m),
            ("column_sums", options.column_sums, self.p.n),
        )
        return [(name, (*lead, count)) for name, wanted, count in asked if wanted]

    def again(self, config: Config, given: Sequence[str]) -> Repeated | None:
        """How a call like this one is launched, unless arrays are copied for it."""
        p, whole = self.p, self.whole()
        if p.copied or not has_lines(self.flat(whole)):
            return None
        room = self.room(config)
        made = room.made(self.like, stream_of(self.like))
        arguments = self.arguments(config, self.flat(whole), made)
        launch = self.kernel.bind(*arguments, **self.constants(config))
        names = self.form(config).epilogue.names
        common = launch, places_of(names, config.swap, given), p.shape, self.dtype
        if not made:
            return Repeated(*common)
        adding = []
        for name, shape in self.sums():
            total = empty(made[name], (*p.lead, shape[-1]))
            adding.append((name, add_up.bind(made[name], total), shape))
        return Roomy(*common, room, tuple(adding))
