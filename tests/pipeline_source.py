"""A random pipeline program as the source of a kernel, and the kernel."""

from __future__ import annotations

import contextlib
import hashlib
import linecache
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pykittens.types.dtypes import DType, int32
from tests.pipeline_consumers import Consumers
from tests.pipeline_parts import Program, Ring, Tile, tensor_dtype
from tests.pipeline_text import Text, drained, dtype_name, fill, released, tile_at


def kernel_of(program: Program) -> Any:
    """The program as a kernel; its lines can be shown."""
    text = source(program)
    name = f"<pipeline program {hashlib.sha256(text.encode()).hexdigest()[:12]}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": "pipeline_program"}
    exec(compile(text, name, "exec"), space)
    return space["program"]


def parameters(program: Program) -> list[str]:
    """The names of the arguments, in order."""
    names = [name for ring in program.rings for tile in ring.tiles for name in tile.tensors]
    flags = ["flags"] if program.out == "flags" else []
    steps = ["steps"] if program.steps is not None else []
    return [*names, "out", *flags, *steps]


def source(program: Program) -> str:
    """The text of the kernel."""
    return _Source(program).written()


class _Source:
    """Writes a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.text = Text()

    def written(self) -> str:
        program, line = self.program, self.text.line
        line("import pykittens as pk")
        line("")
        line("")
        cluster = f"(cluster={program.cluster})" if program.cluster > 1 else ""
        line(f"@pk.kernel{cluster}")
        with self.text.block(f"def program({', '.join(parameters(program))}):"):
            for ring in program.rings:
                self.memory(ring)
            self.out_memory()
            self.work()
            roles: list[Callable[[], None]] = [
                self.producer,
                self.filler,
                self.middle,
                self.consumers,
                self.storer,
            ]
            for role in reversed(roles) if program.reversed_roles else roles:
                role()
        return self.text.whole()

    # -- memory and work -----------------------------------------------------------------------

    def memory(self, ring: Ring) -> None:
        """The stages of a ring; with a role in the middle, those of the ring before it, too."""
        program = self.program
        if ring.middle is not None:
            fillers, drainers = 1, program.helpers
            self.stages(f"{ring.name}_raw", ring, ring.middle, fillers, drainers)
            self.stages(ring.name, ring, program.dtype, program.helpers, program.groups)
            return
        fillers = (1 if ring.copied else 0) + (program.helpers if ring.stored else 0)
        self.stages(ring.name, ring, program.dtype, fillers, program.groups)

    def stages(self, name: str, ring: Ring, dtype: DType, fillers: int, drainers: int) -> None:
        side, line = self.program.side, self.text.line
        types = {
            t.name: f"pk.st({dtype_name(dtype)}, {self.program.tile_rows(t)}, {side})"
            for t in ring.tiles
        }
        if not ring.by_hand:
            named = len(types) > 1
            tiles = ", ".join(f"{n}={t}" if named else t for n, t in types.items())
            line(f"{name} = pk.pipeline({ring.stages}, {tiles})")
            return
        prefix = "raw_" if name.endswith("_raw") else ""
        for tile, type_ in types.items():
            line(f"{prefix}{tile} = pk.shared({type_}, count={ring.stages})")
        self.semaphores(name, ring.stages, fillers, drainers)

    def semaphores(self, name: str, stages: int, fillers: int, drainers: int) -> None:
        for which, arrivals in (("full", fillers), ("empty", drainers)):
            self.text.line(f"{name}_{which} = pk.semaphore({arrivals}, count={stages})")

    def out_memory(self) -> None:
        program, line = self.program, self.text.line
        cols = program.side // 2 if program.halves else program.side
        type_ = f"pk.st({dtype_name(program.out_dtype)}, {program.all_rows}, {cols})"
        match program.out:
            case "ring" | "add_ring" if program.out_by_hand:
                line(f"o = pk.shared({type_}, count={program.out_stages})")
                self.semaphores("o", program.out_stages, program.groups, 1)
            case "ring" | "add_ring":
                line(f"o = pk.pipeline({program.out_stages}, {type_})")
            case "reuse":
                line(f"o = pk.pipeline(1, {type_}, reuse={program.rings[0].name})")
            case "staged":
                rows = program.rows
                one = f"pk.st({dtype_name(program.out_dtype)}, {rows}, {cols})"
                line(f"o = pk.shared({one}, count={program.groups})")

    def work(self) -> None:
        program, line = self.program, self.text.line
        unit, side = program.out_unit, program.side
        if program.order is None:
            line(f"row, col = pk.grid(pk.cdiv(out.rows, {unit}), pk.cdiv(out.cols, {side}))")
        else:
            down, across = program.spread
            axis, tiles = ", cluster_axis=1" if across > 1 else "", f"out.tiles({unit}, {side})"
            if program.is_spread_both_ways:
                rows, cols = f"out.rows, {down * unit}", f"out.cols, {across * side}"
                axis, tiles = "", f"({program.cluster}, pk.cdiv({rows}), pk.cdiv({cols}))"
            line(f"tasks = pk.persistent({tiles}, order=pk.{program.order}{axis})")
        if program.steps is None:
            line(f"steps = pk.cdiv({program.first.tensors[0]}.cols, {side})")

    @contextlib.contextmanager
    def tasks(self) -> Iterator[None]:
        if self.program.order is None:
            yield
            return
        both = self.program.is_spread_both_ways
        with self.text.block(f"for {'rank, ' if both else ''}row, col in tasks:"):
            if both:
                down, across = self.program.spread
                self.text.line(f"row = row * {down} + rank // {across}")
                self.text.line(f"col = col * {across} + rank % {across}")
            yield

    # -- the roles before the consumers --------------------------------------------------------

    def each(self, rings: Iterable[Ring], use: Callable[[Ring, str], None]) -> None:
        """Write the uses of rings in a task, in the order in which the consumers need them."""
        program = self.program
        rings = list(rings)
        leading = program.leading(program.head) if program.ahead else set()
        step = [r for r in rings if r.when in ("step", "odd")]
        first = [r for r in step if r.name in leading]
        once = [r for r in rings if r.when not in ("step", "odd")]
        for ring in once:
            if not ring.late:
                use(ring, "0")
        if program.ahead:
            for ring in first:
                use(ring, "0")
        if step:
            last = " - 1" if program.ahead else ""
            with self.text.block(f"for k in pk.range(steps{last}):"):
                for ring in step:
                    with self.text.block("if k % 2 == 1:", ring.when == "odd"):
                        use(ring, "k + 1" if ring in first else "k")
        if program.ahead:
            for ring in step:
                if ring not in first:
                    use(ring, "steps - 1")
        for ring in once:
            if ring.late:
                use(ring, "0")

    def counters(self, names: Iterable[str]) -> None:
        for name in names:
            self.text.line(f"{name}_turn = 0")

    def producer(self) -> None:
        rings = [r for r in self.program.rings if r.by_producer]
        if not rings:
            return
        with self.text.block("with pk.producer():"):
            self.counters(self.name_filled(r) for r in rings if r.by_hand)
            with self.tasks():
                self.each(rings, self.copies)

    def name_filled(self, ring: Ring) -> str:
        """The ring that the producer fills for a ring."""
        return f"{ring.name}_raw" if ring.middle is not None else ring.name

    def copies(self, ring: Ring, k: str) -> None:
        """The producer's fill of a stage."""
        name = self.name_filled(ring)
        prefix = "raw_" if ring.middle is not None else ""
        with fill(self.text, ring, name, [prefix + t.name for t in ring.copied]):
            for tile in ring.copied:
                self.copy(ring, name, prefix, tile, k)

    def copy(self, ring: Ring, name: str, prefix: str, tile: Tile, k: str) -> None:
        line = self.text.line
        at = tile_at(ring, name, prefix + tile.name, tile.name)
        signal = f", signal={name}_full[{name}_turn % {ring.stages}]" if ring.by_hand else ""
        row = "row" if tile.left else "col"
        first, *second = tile.tensors
        match tile.way:
            case "branch":
                even = f"({k}) % 2 == 0" if ring.when in ("step", "odd") else "row % 2 == 0"
                with self.text.block(f"if {even}:"):
                    line(f"pk.load_async({at}, {first}[{row}, {k}]{signal})")
                with self.text.block("else:"):
                    line(f"pk.load_async({at}, {second[0]}[{row}, {k}]{signal})")
            case "parts":
                rows = self.program.tile_rows(tile) // 2
                part = f"{at}.tiles({rows}, {self.program.side})[i]"
                with self.text.block("for i in pk.range(2):"):
                    line(f"pk.load_async({part}, {first}[{row} * 2 + i, {k}]{signal})")
            case "multicast":
                down, across = self.program.spread
                peers = f"pk.peers({across})" if tile.left else f"pk.peers({down}, step={across})"
                shared = peers if self.program.is_spread_both_ways else "True"
                line(f"pk.load_async({at}, {first}[{row}, {k}]{signal}, multicast={shared})")
            case _:
                line(f"pk.load_async({at}, {first}[{row}, {k}]{signal})")

    def filler(self) -> None:
        """The role that fills tiles by ordinary stores."""
        program = self.program
        rings = [r for r in program.rings if r.stored]
        if not rings:
            return
        with self.text.block(f"with pk.warps({program.helpers}) as h:"):
            self.counters(r.name for r in rings if r.by_hand)
            with self.tasks():
                self.each(rings, self.stores)

    def stores(self, ring: Ring, k: str) -> None:
        names = [t.name for t in ring.copied] if ring.alone else []
        with fill(self.text, ring, ring.name, names, stores=True):
            if ring.alone:
                for tile in ring.copied:
                    self.copy(ring, ring.name, "", tile, k)
            for tile in ring.stored:
                at = tile_at(ring, ring.name, tile.name, tile.name)
                row = "row" if tile.left else "col"
                count = self.program.tile_rows(tile) // 16
                (tensor,) = tile.tensors
                x = f"pk.load({tensor}[{row} * {count} + part, {k}], rows=16, cols={self.program.side})"
                self.by_parts(count, f"pk.store({{part}}, {x} * 2.0)", at)

    def by_parts(self, count: int, statement: str, at: str) -> None:
        """A statement for each 16 rows of a tile, shared out among the warps of the role."""
        helpers = self.program.helpers
        with self.text.block(f"for i in range({count // helpers}):"):
            self.text.line(f"part = i * {helpers} + h")
            self.text.line(statement.format(part=f"{at}.tiles(16, {self.program.side})[part]"))

    def middle(self) -> None:
        """The role that turns one ring into another."""
        rings = [r for r in self.program.rings if r.middle is not None]
        if not rings:
            return
        with self.text.block(f"with pk.warps({self.program.helpers}) as h:"):
            self.counters(n for r in rings if r.by_hand for n in (f"{r.name}_raw", r.name))
            with self.tasks():
                self.each(rings, self.turned)

    def turned(self, ring: Ring, k: str) -> None:
        raw = f"{ring.name}_raw"
        convert = (
            "" if ring.middle is self.program.dtype else f".to({dtype_name(self.program.dtype)})"
        )
        with drained(self.text, ring, raw), fill(self.text, ring, ring.name, [], stores=True):
            for tile in ring.tiles:
                x = tile_at(ring, raw, f"raw_{tile.name}", tile.name)
                at = tile_at(ring, ring.name, tile.name, tile.name)
                part = f"{x}.tiles(16, {self.program.side})[part]"
                count = self.program.tile_rows(tile) // 16
                self.by_parts(count, f"pk.store({{part}}, -pk.load({part}){convert})", at)
            released(self.text, ring, raw)

    # -- the consumers and what is behind them -------------------------------------------------

    def consumers(self) -> None:
        program = self.program
        with self.text.block(f"with pk.{program.team}({program.groups}) as w:"):
            self.counters(r.name for r in program.rings if r.by_hand)
            if program.out in ("ring", "add_ring") and program.out_by_hand:
                self.counters(["o"])
            with self.tasks():
                Consumers(program, self.text).task()

    def storer(self) -> None:
        program, line = self.program, self.text.line
        if program.out not in ("ring", "reuse", "add_ring"):
            return
        by_hand, n = program.out_by_hand and program.out != "reuse", program.out_stages
        with self.text.block("with pk.storer():"):
            if by_hand:
                self.counters(["o"])
            with self.tasks():
                for half in range(2 if program.halves else 1):
                    cols = f"col * 2 + {half}" if program.halves else "col"
                    if by_hand:
                        line(f"o_full[o_turn % {n}].wait(o_turn // {n})")
                        self.stored_async(f"o[o_turn % {n}]", cols)
                        line("pk.store_wait(read=True)")
                        line(f"o_empty[o_turn % {n}].arrive()")
                        line("o_turn = o_turn + 1")
                    else:
                        with self.text.block("with o.drain() as os:"):
                            self.stored_async("os", cols)

    def stored_async(self, stage: str, cols: str) -> None:
        program, line = self.program, self.text.line
        if program.out != "add_ring":
            line(f"pk.store_async(out[row, {cols}], {stage})")
            return
        width = program.side // 2 if program.halves else program.side
        for i in range(program.groups):
            part = f"{stage}.tiles({program.rows}, {width})[{i}]" if program.groups > 1 else stage
            line(f'pk.store_async(out[row, {cols}], {part}, op="add")')


def dtypes(program: Program) -> dict[str, DType]:
    """The dtype of each tensor."""
    found = {
        name: tensor_dtype(program, ring)
        for ring in program.rings
        for tile in ring.tiles
        for name in tile.tensors
    }
    return {**found, "out": program.out_dtype, "flags": int32}
