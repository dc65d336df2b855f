"""Random race-free pipeline programs with their inputs.

Every role takes each ring once in a step or a task, so nobody waits in a circle; what is by hand is waited for as a
pipeline would. Few elements of right operands are other than zero, so that bounds stay close however many products
follow one another.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from pykittens.types.dtypes import DType, bf16, converted, f16, f32
from tests.pipeline_parts import (
    OWN_ROWS,
    SAME_ROWS,
    WARPS,
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
    Tile,
    out_dtype,
    walk,
)
from tests.pipeline_source import dtypes, parameters

Array = np.ndarray[Any, Any]
ORDERS = ("row_major", "column_major", "supergroup(2)", "longest_first", "longest_first(2)")
MOST_SHARED = 200 * 1024
MOST_RINGS = 4
SPREADS = ((1, 2), (2, 1), (2, 2), (1, 4), (4, 2))  # of clusters
NONZERO = 4  # elements in a row of a right operand


def programs() -> st.SearchStrategy[Program]:
    """Programs as a strategy that can make them smaller."""
    return st.randoms(use_true_random=False).map(program_of)


def program_of(rng: Random) -> Program:
    """A program whose tiles fit into shared memory."""
    made = _Maker(rng).program()
    while made.shared_bytes > MOST_SHARED:
        made = _smaller(made)
    return made


def seeded(seed: int) -> Program:
    return program_of(Random(seed))


def larger(program: Program, rows: int, cols: int) -> Program:
    """The same program with so many tasks along each axis, as a GPU needs them to give a block several."""
    m, n, k = program.extents
    before = program.tasks
    m, n = m + (rows - before[0]) * program.all_rows, n + (cols - before[1]) * program.side
    return replace(program, extents=(m, n, k))


def arguments(program: Program, seed: int = 0) -> dict[str, Any]:
    """Arrays and numbers by the names of the parameters; what is written holds NaN where nothing is added to it."""
    rng = np.random.default_rng(seed)
    m, n, k = program.extents
    found: dict[str, Any] = {}
    kinds = dtypes(program)
    for ring in program.rings:
        for tile in ring.tiles:
            for name in tile.tensors:
                share = 1 if tile.left else NONZERO / program.side
                found[name] = numbers(rng, (m if tile.left else n, k), share, kinds[name])
    added = program.out in SAME_ROWS
    found["out"] = np.full(program.out_shape, 0 if added else np.nan, program.out_dtype.numpy)
    if program.out == "flags":
        count = program.tasks[0] * program.tasks[1] * program.groups
        found["flags"] = np.zeros(count, np.int32)
    if program.steps is not None:
        found["steps"] = program.steps
    return {name: found[name] for name in parameters(program)}


def numbers(rng: np.random.Generator, shape: tuple[int, int], share: float, dtype: DType) -> Array:
    """Numbers up to 1/2, a share of them other than zero."""
    values = rng.uniform(-0.5, 0.5, shape) * (rng.random(shape) < share)
    return np.ascontiguousarray(converted(values, dtype))


def _smaller(program: Program) -> Program:
    """The same with fewer stages, then with smaller tiles."""
    most = max(r.stages for r in program.rings)
    least = 2 if any(isinstance(s, Late) for s in program.tail) else 1
    if most > least:
        rings = tuple(replace(r, stages=min(r.stages, most - 1)) for r in program.rings)
        return replace(program, rings=rings)
    if program.out_stages > 1:
        return replace(program, out_stages=1)
    narrow = {s: replace(s, op="mma_AB") for s in _transposed(program)}
    assert program.side > 32, "a program of the smallest tiles fits"
    return _replaced(replace(program, side=32), narrow)


def _transposed(program: Program) -> list[Product]:
    bodies = (program.before, program.head, program.tail, program.after)
    found = (s for body in bodies for s in walk(body) if isinstance(s, Product))
    return [s for s in found if s.op.startswith("mma_At")]


def _replaced(program: Program, new: dict[Product, Product]) -> Program:
    def changed(body: Body) -> Body:
        return tuple(map(one, body))

    def one(statement: Statement) -> Statement:
        match statement:
            case Product():
                return new.get(statement, statement)
            case Take():
                return replace(statement, body=changed(statement.body))
            case Odd():
                then, otherwise = changed(statement.then), changed(statement.otherwise)
                return Odd(then, otherwise)
            case Late():
                return Late(statement.ring, new.get(statement.product, statement.product))
            case _:
                return statement

    parts = {n: changed(getattr(program, n)) for n in ("before", "head", "tail", "after")}
    return replace(program, **parts)


class _Maker:
    """Makes the choices of a program."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        choose, chance = rng.choice, self.chance
        self.dtype = choose((bf16, bf16, f16, f32))
        self.side = choose((32, 64)) if self.dtype is f32 else choose((32, 64, 64, 96))
        self.team = choose(("consumers", "consumers", "warpgroups", "warps"))
        self.groups = rng.randint(1, 3)
        self.rows = 16 * WARPS[self.team]
        if self.groups == 1 and self.side <= 64 and chance(0.2):
            self.rows *= 2
        # Each helper has as many parts of 16 rows.
        self.helpers = 1 if self.rows * self.groups // 16 % 2 else choose((1, 2))
        self.spread = choose(SPREADS) if chance(0.15) else (1, 1)
        self.persistent = self.spread != (1, 1) or chance(0.6)
        self.tiles = rng.randint(1, 3)
        self.letters = iter("abcdefgjlmn")
        self.names = iter("pqruv")
        self.unmanaged = chance(0.3)
        self.by_hand = choose((0.0, 0.0, 0.3, 1.0))

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    # -- rings ---------------------------------------------------------------------------------

    def ring(self, when: str, kinds: str) -> Ring:
        """A ring of tiles of these kinds: `l` for left, `r` for right."""
        rng = self.rng
        by_hand = self.chance(self.by_hand)
        middle = rng.choice((f32, self.dtype)) if self.chance(0.2) else None
        tiles = tuple(self.tile(kind == "l", by_hand, middle is not None) for kind in kinds)
        mixed = len({t.way == "stores" for t in tiles}) == 2
        return Ring(
            next(self.names),
            rng.randint(1, 4),
            tiles,
            when,
            by_hand,
            middle,
            late=when == "after" and self.chance(0.5),
            alone=mixed
            and self.helpers == 1
            and self.chance(0.5)
            and all(t.way != "multicast" for t in tiles),
        )

    def tile(self, left: bool, by_hand: bool, through_middle: bool) -> Tile:
        shared = self.spread[1 if left else 0] > 1
        if shared and not by_hand and self.chance(0.7):
            way = "multicast"
        elif self.chance(0.5):
            way = "copy"
        else:
            ways = ("branch", "parts") if through_middle else ("branch", "parts", "stores")
            way = self.rng.choice(ways)
        return Tile(next(self.letters), left, way)

    def rings(self) -> list[Ring]:
        """One to three rings of the loop, the first of which has operands of both kinds, and up to two others."""
        kinds = ["lr"] if self.chance(0.6) else ["l", "r"]
        if self.chance(0.4):
            kinds.append(self.rng.choice(("l", "r", "r")))
        rings = [self.ring("step", k) for k in kinds]
        if self.chance(0.2):
            rings.append(self.ring("odd", self.rng.choice(("l", "r"))))
        for when, p in (("before", 0.15), ("held", 0.3), ("after", 0.2)):
            if self.chance(p) and len(rings) < MOST_RINGS:
                rings.append(self.ring(when, self.rng.choice(("r", "r", "lr"))))
        return rings

    # -- statements ----------------------------------------------------------------------------

    def statements(self, tiles: list[Tile], count: int, first: bool = False) -> list[Statement]:
        """Statements on register tiles and on these tiles of stages; the first is a product where it can be."""
        found: list[Statement] = []
        for i in range(count):
            kind = 0.0 if first and i == 0 else self.rng.random()
            lefts, rights = [t for t in tiles if t.left], [t for t in tiles if not t.left]
            pick = lambda: self.rng.randrange(self.tiles)  # noqa: B023
            if kind < 0.6 and rights:
                found.append(self.product(lefts, rights))
            elif kind < 0.75 and lefts:
                found.append(Load(pick(), self.rng.choice(lefts).name))
            elif kind < 0.9 or self.tiles == 1:
                found.append(Blend(pick(), pick(), pick()))
            else:
                found.append(Swap(*self.rng.sample(range(self.tiles), 2)))
        return found

    def product(self, lefts: list[Tile], rights: list[Tile]) -> Product:
        rng = self.rng
        ops = ["mma_AB", "mma_ABt", "mma_ABt"]
        left: str | int
        if lefts and self.chance(0.65):
            left = rng.choice(lefts).name
            if self.rows == self.side == 64:
                ops += ["mma_AtB", "mma_AtBt"]
        else:
            left = rng.randrange(self.tiles)
        managed = not (self.unmanaged and self.chance(0.7))
        right, target = rng.choice(rights).name, rng.randrange(self.tiles)
        return Product(target, rng.choice(ops), left, right, self.chance(0.5), managed)

    def takes(self, rings: list[Ring], around: list[Tile]) -> Body:
        """Each ring taken once, alone, two at a time or one inside the other."""
        if not rings:
            return ()
        count = 2 if len(rings) > 1 and self.chance(0.5) else 1
        now, rest = rings[:count], rings[count:]
        tiles = around + [t for r in now for t in r.tiles]
        inner = self.statements(tiles, self.rng.randint(1, 2), first=True)
        if rest and self.chance(0.3):
            inner += self.takes(rest, tiles)
            inner += self.statements(tiles, self.rng.randint(0, 1))
            rest = []
        behind = self.statements(around, self.rng.randint(0, 1))
        if self.chance(0.15) and behind:
            behind = [Odd(tuple(behind), tuple(self.statements(around, self.rng.randint(0, 1))))]
        names = tuple(r.name for r in now)
        return (Take(names, tuple(inner)), *behind, *self.takes(rest, around))

    def once(self, rings: list[Ring], when: str) -> Body:
        """Statements around the loop."""
        return self.without_steps(self.takes([r for r in rings if r.when == when], []))

    def without_steps(self, body: Body) -> Body:
        """The body without branches on the step."""
        found: list[Statement] = []
        for s in body:
            if isinstance(s, Take):
                found.append(replace(s, body=self.without_steps(s.body)))
            elif not isinstance(s, Odd):
                found.append(s)
        return tuple(found)

    # -- the whole -----------------------------------------------------------------------------

    def program(self) -> Program:
        rings = self.rings()
        step = [r for r in rings if r.when == "step"]
        odd = [r for r in rings if r.when == "odd"]
        held = [t for r in rings if r.when == "held" for t in r.tiles]
        head: Body = ()
        ahead = not odd and len(step) > 1 and self.chance(0.4)
        if self.chance(0.3) and self.by_hand and (late := self.late(step, odd)) is not None:
            rings = [late if r is step[0] else r for r in rings]
            ahead, tail = False, (self.late_statement(late),)
        else:
            order = self.rng.sample(step, len(step))
            head = self.takes(order[:1], held) if ahead else ()
            tail = self.takes(order[1:] if ahead else order, held)
            tail += tuple(Odd(self.takes([r], held), ()) for r in odd)
        before, after = self.once(rings, "before"), self.once(rings, "after")
        return self.finished(self.rng.sample(rings, len(rings)), (before, head, tail, after), ahead)

    def late(self, step: list[Ring], odd: list[Ring]) -> Ring | None:
        """A ring whose stages can be given back one behind: the only one of its loop."""
        if len(step) > 1 or odd or len(step[0].tiles) < 2 or step[0].tiles[0].way == "multicast":
            return None
        if any(t.way == "multicast" for t in step[0].tiles):
            return None
        return replace(step[0], by_hand=True, stages=max(step[0].stages, 2))

    def late_statement(self, ring: Ring) -> Late:
        left, right = ring.tiles
        target = self.rng.randrange(self.tiles)
        return Late(ring.name, Product(target, "mma_ABt", left.name, right.name, True, False))

    def finished(
        self, rings: list[Ring], bodies: tuple[Body, Body, Body, Body], ahead: bool
    ) -> Program:
        """The program with its way out and its sizes."""
        rng, chance = self.rng, self.chance
        ways = [*OWN_ROWS, *SAME_ROWS, "ring"]
        if self.persistent or self.groups > 1 or rings[0].by_hand:
            ways.remove("reuse")
        else:
            ways += ["reuse"] * 4
        if self.spread != (1, 1):
            ways.remove("flags")
        out = rng.choice(ways)
        dtype = out_dtype(out, rng.choice((f32, self.dtype)))
        halves = out in ("ring", "staged") and chance(0.3)
        unit = self.rows * self.groups
        # A block of the emulator has several tasks where there are more than four of them.
        rows, cols = (1, 2) if self.persistent else (0, 0)
        rows += 2 if unit <= 128 else 1
        extents = (
            self.extent(unit, rows),
            self.extent(self.side, 3 + cols),
            self.extent(self.side, 4),
        )
        if not ahead and chance(0.04):
            extents = (*extents[:2], 0)
        whole = -(-extents[2] // self.side)
        steps = max(whole + rng.randint(-1, 1), int(ahead)) if chance(0.2) else None
        results = rng.sample(range(self.tiles), rng.randint(max(self.tiles - 1, 1), self.tiles))
        order = rng.choice(ORDERS) if self.persistent else None
        return Program(
            self.dtype, self.side, self.team, self.groups, self.rows, tuple(rings), self.tiles,
            *bodies, ahead, tuple(results), out, dtype, rng.choice((1, 2)), chance(self.by_hand),
            halves, order, self.spread, extents, steps, self.helpers, chance(0.3),
        )  # fmt: skip

    def extent(self, unit: int, most: int) -> int:
        """Up to so many tiles: whole ones, or ragged, beside units of 16 bytes or not."""
        count = max(self.rng.randint(1, most), self.rng.randint(1, most))
        match self.rng.choice(("whole", "ragged", "odd")):
            case "whole":
                return unit * count
            case "ragged":
                return unit * count - 8 * self.rng.randint(1, unit // 8 - 1)
            case _:
                return unit * count - self.rng.randint(1, unit - 1)
