"""The consumers of a random pipeline program as source: stages taken, statements, waits by hand, and the way out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from pykittens.types.dtypes import f32, int32
from tests.pipeline_parts import (
    Blend,
    Body,
    Late,
    Load,
    Odd,
    Product,
    Program,
    Ring,
    Statement,
    Swap,
    Take,
)
from tests.pipeline_text import Text, drained, dtype_name, released, tile_at

SCALE = 1024.0  # of what is added up as int32


def first_value(tile: int) -> float:
    """What a register tile holds at the beginning of a task."""
    return (tile + 1) / 4


class Consumers:
    """Writes what the groups of consumers do in a task.

    started: the products not known to be finished, oldest first, each by its target; the unmanaged of them have to
    be waited for before the target is read, a stage is left, or a loop or branch begins or ends.
    """

    def __init__(self, program: Program, text: Text) -> None:
        self.program, self.text = program, text
        self.started: list[Product] = []
        self.step = "k"

    def task(self) -> None:
        program, line = self.program, self.text.line
        for i in range(program.tiles):
            line(f"t{i} = pk.full(pk.f32, {first_value(i)}, {program.rows}, {program.side})")
        self.body(program.before)
        held = [r for r in program.rings if r.when == "held"]
        with contextlib.ExitStack() as stack:
            for ring in held:
                stack.enter_context(drained(self.text, ring, ring.name))
            self.loop()
            for ring in held:
                released(self.text, ring, ring.name)
        self.body(program.after)
        self.way_out()

    def loop(self) -> None:
        program, line = self.program, self.text.line
        if program.ahead:
            self.body(program.head, "0")
        with self.text.block(f"for k in pk.range(steps{' - 1' if program.ahead else ''}):"):
            self.body(program.head, "k + 1" if program.ahead else "k")
            self.body(program.tail)
        if program.ahead:
            self.body(program.tail, "steps - 1")
        for late in (s for s in program.tail if isinstance(s, Late)):
            ring = program.ring(late.ring)
            line("pk.mma_wait()")
            with self.text.block("if steps > 0:"):
                self.give_back_one_behind(ring)

    # -- statements ----------------------------------------------------------------------------

    def body(self, body: Body, step: str | None = None) -> None:
        """A body, in which the step is `step`, that of the body around it where None."""
        outer, self.step = self.step, step or self.step
        for statement in body:
            self.statement(statement)
        self.wait_for_all()
        self.step = outer

    def statement(self, statement: Statement) -> None:
        line = self.text.line
        match statement:
            case Product():
                self.product(statement)
            case Blend(target, x, y):
                self.wait_for(x, y)
                line(f"t{target} = t{x} * 0.5 + t{y} * 0.5")
            case Load(target, tile):
                convert = "" if self.program.dtype is f32 else ".to(pk.f32)"
                line(f"t{target} = pk.load({self.left(tile)}){convert}")
            case Swap(x, y):
                self.wait_for(x, y)
                line(f"t{x}, t{y} = t{y}, t{x}")
            case Take(names, body):
                self.take([self.program.ring(n) for n in names], body)
            case Odd(then, otherwise):
                self.wait_for_all()
                with self.text.block(f"if ({self.step}) % 2 == 1:"):
                    self.body(then)
                if otherwise:
                    with self.text.block("else:"):
                        self.body(otherwise)
            case Late():
                self.late(statement)

    def product(self, product: Product) -> None:
        if isinstance(product.left, int):
            self.wait_for(product.left)
            convert = "" if self.program.dtype is f32 else f".to({dtype_name(self.program.dtype)})"
            left = f"t{product.left}{convert}"
        else:
            left = self.left(product.left)
        ring, tile = self.program.tile(product.right)
        right = tile_at(ring, ring.name, tile.name, tile.name)
        acc = f", t{product.target}" if product.accumulates else ""
        managed = "" if product.managed else ", managed=False"
        self.text.line(f"t{product.target} = pk.{product.op}({left}, {right}{acc}{managed})")
        self.started.append(product)

    def left(self, name: str) -> str:
        """The group's rows of a left tile."""
        ring, tile = self.program.tile(name)
        whole = tile_at(ring, ring.name, tile.name, tile.name)
        if self.program.groups == 1:
            return whole
        return f"{whole}.tiles({self.program.rows}, {self.program.side})[w]"

    def take(self, rings: Sequence[Ring], body: Body) -> None:
        managed = [r for r in rings if not r.by_hand]
        with contextlib.ExitStack() as stack:
            for ring in rings:
                if ring.by_hand:
                    stack.enter_context(drained(self.text, ring, ring.name))
            stack.enter_context(self.drained_together(managed))
            self.body(body)
        for ring in rings:
            released(self.text, ring, ring.name)

    @contextlib.contextmanager
    def drained_together(self, rings: Sequence[Ring]) -> Iterator[None]:
        """Stages of pipelines, taken by one `with`."""
        stages = ", ".join(f"{r.name}.drain() as {r.name}_s" for r in rings)
        with self.text.block(f"with {stages}:", bool(rings)):
            yield

    def late(self, late: Late) -> None:
        ring = self.program.ring(late.ring)
        turn = f"{ring.name}_turn"
        self.text.line(f"{ring.name}_full[{turn} % {ring.stages}].wait({turn} // {ring.stages})")
        self.product(late.product)
        self.started.clear()
        self.text.line("pk.mma_wait(1)")
        with self.text.block("if k > 0:"):
            self.give_back_one_behind(ring)
        self.text.line(f"{turn} = {turn} + 1")

    def give_back_one_behind(self, ring: Ring) -> None:
        """Give back the stage before the one of this turn."""
        n = ring.stages
        self.text.line(f"{ring.name}_empty[({ring.name}_turn + {n - 1}) % {n}].arrive()")

    # -- waits by hand -------------------------------------------------------------------------

    def wait_for(self, *tiles: int) -> None:
        """Wait for the newest products of these tiles, with all behind them still under way."""
        places = [i for i, p in enumerate(self.started) if p.target in tiles and not p.managed]
        if places:
            self.wait_behind(places[-1])

    def wait_for_all(self) -> None:
        places = [i for i, p in enumerate(self.started) if not p.managed]
        if places:
            self.wait_behind(places[-1])
        self.started.clear()

    def wait_behind(self, place: int) -> None:
        pending = len(self.started) - 1 - place
        self.text.line(f"pk.mma_wait({pending or ''})")
        del self.started[: place + 1]

    # -- the way out ---------------------------------------------------------------------------

    def way_out(self) -> None:
        program, line = self.program, self.text.line
        total = " + ".join(f"t{i}" for i in program.results)
        line(f"total = {total}")
        convert = f".to({dtype_name(program.out_dtype)})"
        if program.out_dtype is int32:
            total = f"(total * {SCALE}){convert}"
        else:
            total = "total" if program.out_dtype is f32 else f"total{convert}"
        line(f"result = {total}")
        match program.out:
            case "direct":
                line(f"pk.store(out[row * {program.groups} + w, col], result)")
            case "add":
                line('pk.store(out[row, col], result, op="add")')
            case "turn":
                self.in_turn()
            case "flags":
                self.behind_flags()
            case "staged":
                self.staged()
            case _:
                self.through_ring()

    def in_turn(self) -> None:
        program = self.program
        with self.text.block("with pk.in_turn():"):
            before = f"pk.load(out[row, col], rows={program.rows}, cols={program.side})"
            self.text.line(f"pk.store(out[row, col], {before} + result)")

    def behind_flags(self) -> None:
        """Add what the row of tiles above has stored, and tell the one below."""
        program, line = self.program, self.text.line
        g, n = program.groups, program.tasks[1] * program.groups
        sides = f"rows={program.rows}, cols={program.side}"
        with self.text.block("if row > 0:"):
            line(f"pk.wait(flags[(row - 1) * {n} + col * {g} + w], 1)")
            line(f"result = result + pk.load(out[(row - 1) * {g} + w, col], {sides})")
        line(f"pk.store(out[row * {g} + w, col], result)")
        line(f"pk.signal(flags[row * {n} + col * {g} + w], 1)")

    def staged(self) -> None:
        """Every group has shared memory of its own and the copy engine takes it from there."""
        program, line = self.program, self.text.line
        for half, part, col in self.parts():
            line("pk.store_wait(read=True)")
            line("pk.sync()")
            line(f"pk.store(o[w], {part})")
            line("pk.fence_async()")
            line("pk.sync()")
            line(f"pk.store_async(out[row * {program.groups} + w, {col}], o[w])")

    def through_ring(self) -> None:
        program, line = self.program, self.text.line
        n, by_hand = program.out_stages, program.out_by_hand and program.out != "reuse"
        stage = f"o[o_turn % {n}]" if by_hand else "os"
        for half, part, _ in self.parts():
            width = program.side // 2 if program.halves else program.side
            mine = f"{stage}.tiles({program.rows}, {width})[w]" if program.groups > 1 else stage
            if by_hand:
                line(f"o_empty[o_turn % {n}].wait(o_turn // {n} + 1)")
                line(f"pk.store({mine}, {part})")
                line("pk.fence_async()")
                line(f"o_full[o_turn % {n}].arrive()")
                line("o_turn = o_turn + 1")
            else:
                with self.text.block("with o.fill() as os:"):
                    line(f"pk.store({mine}, {part})")

    def parts(self) -> Iterator[tuple[int, str, str]]:
        """The halves of the result, or the whole, each with its columns in the output."""
        if not self.program.halves:
            yield 0, "result", "col"
            return
        half = self.program.side // 2
        for i in range(2):
            yield i, f"result[:, {i * half} : {(i + 1) * half}]", f"col * 2 + {i}"
