"""What a random pipeline program is made of: rings, tiles, the statements of its consumers, and its way out.

All register tiles of a program are `rows` x `side` in f32 and all right operands are `side` x `side`, so that any
statement may follow any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from pykittens.types.dtypes import DType, f32, int32

# How a result leaves: by every group to its own rows, or by all groups to the same.
OWN_ROWS = ("direct", "ring", "reuse", "staged", "flags")
SAME_ROWS = ("turn", "add", "add_ring")
WARPS = {"consumers": 4, "warpgroups": 4, "warps": 1}


@dataclass(frozen=True)
class Tile:
    """A tile of a stage. `left`: the rows of all groups x side, at [row, k]; else side x side, at [col, k].

    way: copy, branch (of one of two tensors, as k is even or odd), parts (two copies into views), multicast,
    stores (twice what is loaded, by another role).
    """

    name: str
    left: bool
    way: str

    @property
    def tensors(self) -> tuple[str, ...]:
        """The tensors it comes from."""
        upper = self.name.upper()
        return (upper, f"{upper}2") if self.way == "branch" else (upper,)


@dataclass(frozen=True)
class Ring:
    """A ring of stages, of pk.pipeline or by hand.

    when: taken each step, in odd steps, or once a task: `before` the loop, `held` over it, or `after` it.
    middle: the dtype in which a role between brings its tiles, which are negated on their way; None without one.
    late: filled at the end of a task, not at its beginning. alone: the role that stores fills the stage by itself.
    """

    name: str
    stages: int
    tiles: tuple[Tile, ...]
    when: str = "step"
    by_hand: bool = False
    middle: DType | None = None
    late: bool = False
    alone: bool = False

    @property
    def copied(self) -> tuple[Tile, ...]:
        return tuple(t for t in self.tiles if t.way != "stores")

    @property
    def stored(self) -> tuple[Tile, ...]:
        return tuple(t for t in self.tiles if t.way == "stores")

    @property
    def by_producer(self) -> bool:
        return bool(self.copied) and not self.alone


@dataclass(frozen=True)
class Product:
    """t<target> = pk.<op>(left, right[, t<target>]); `left` is a tile by name or a register tile by number."""

    target: int
    op: str
    left: str | int
    right: str
    accumulates: bool
    managed: bool = True


@dataclass(frozen=True)
class Blend:
    """t<target> = t<x> * 0.5 + t<y> * 0.5"""

    target: int
    x: int
    y: int


@dataclass(frozen=True)
class Load:
    """t<target> = the group's rows of a left tile."""

    target: int
    tile: str


@dataclass(frozen=True)
class Swap:
    """Two register tiles take each other's place."""

    x: int
    y: int


@dataclass(frozen=True)
class Take:
    """Stages of rings, drained while a body runs."""

    rings: tuple[str, ...]
    body: Body


@dataclass(frozen=True)
class Odd:
    """A run-time branch on whether k is odd."""

    then: Body
    otherwise: Body


@dataclass(frozen=True)
class Late:
    """The one statement of a loop: an unmanaged product whose stage is given back when the next is under way."""

    ring: str
    product: Product


Statement = Product | Blend | Load | Swap | Take | Odd | Late
Body = tuple[Statement, ...]


@dataclass(frozen=True)
class Program:
    """A kernel: rings in the order of the producer's fills, and what its consumers do with their stages.

    team, groups, rows: the consumers and the rows of each. before, head, tail, after: their statements; head and tail
    are the body of the loop, and with `ahead` the head runs one step ahead of the tail. results: the register tiles
    whose sum goes out by `out`, in `out_stages` stages, `halves` at a time. order: of persistent tasks, None for a
    grid. spread: the blocks of a cluster along the rows and the columns of the output. extents: rows of left tiles,
    columns of the output, k. steps: as an argument, None for what k needs.
    """

    dtype: DType
    side: int
    team: str
    groups: int
    rows: int
    rings: tuple[Ring, ...]
    tiles: int
    before: Body
    head: Body
    tail: Body
    after: Body
    ahead: bool
    results: tuple[int, ...]
    out: str
    out_dtype: DType
    out_stages: int
    out_by_hand: bool
    halves: bool
    order: str | None
    spread: tuple[int, int]
    extents: tuple[int, int, int]
    steps: int | None
    helpers: int  # warps of the role that stores and of the one in the middle
    reversed_roles: bool

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return self.spread[0] * self.spread[1]

    @property
    def is_spread_both_ways(self) -> bool:
        return min(self.spread) > 1

    @property
    def all_rows(self) -> int:
        """Rows of a left tile."""
        return self.rows * self.groups

    @property
    def out_unit(self) -> int:
        """Rows of the output of a task."""
        return self.rows if self.out in SAME_ROWS else self.all_rows

    @property
    def tasks(self) -> tuple[int, int]:
        m, n, _ = self.extents
        return ceil(m / self.all_rows), ceil(n / self.side)

    @property
    def out_shape(self) -> tuple[int, int]:
        """Where all groups write the same rows, each task has `rows` of them, the last as many as its first group."""
        m, n, _ = self.extents
        if self.out not in SAME_ROWS:
            return m, n
        last = m - (self.tasks[0] - 1) * self.all_rows
        return (self.tasks[0] - 1) * self.rows + min(last, self.rows), n

    @property
    def step_count(self) -> int:
        return self.steps if self.steps is not None else ceil(self.extents[2] / self.side)

    @property
    def first(self) -> Tile:
        return self.rings[0].tiles[0]

    def ring(self, name: str) -> Ring:
        return next(r for r in self.rings if r.name == name)

    def tile(self, name: str) -> tuple[Ring, Tile]:
        """A tile and the ring it is in."""
        return next((r, t) for r in self.rings for t in r.tiles if t.name == name)

    def tile_rows(self, tile: Tile) -> int:
        return self.all_rows if tile.left else self.side

    def leading(self, body: Body) -> set[str]:
        """The rings that a body takes."""
        return {name for s in walk(body) if isinstance(s, Take | Late) for name in taken(s)}

    @property
    def shared_bytes(self) -> int:
        """Shared memory of the tiles."""
        total = 0
        for ring in self.rings:
            for tile in ring.tiles:
                elements = self.tile_rows(tile) * self.side * ring.stages
                total += elements * self.dtype.bytes
                total += elements * ring.middle.bytes if ring.middle is not None else 0
        out = self.all_rows * self.side * self.out_dtype.bytes
        stages = {"ring": self.out_stages, "add_ring": self.out_stages, "reuse": 1, "staged": 1}
        return total + out * stages.get(self.out, 0)


def taken(statement: Take | Late) -> tuple[str, ...]:
    return statement.rings if isinstance(statement, Take) else (statement.ring,)


def walk(body: Body) -> Iterator[Statement]:
    """The statements of a body and of those inside."""
    for statement in body:
        yield statement
        match statement:
            case Take():
                yield from walk(statement.body)
            case Odd():
                yield from walk(statement.then)
                yield from walk(statement.otherwise)
            case Late():
                yield statement.product
            case _:
                pass


def tensor_dtype(program: Program, ring: Ring) -> DType:
    """The dtype of the tensors of a ring's tiles."""
    return ring.middle if ring.middle is not None else program.dtype


def out_dtype(out: str, dtype: DType) -> DType:
    """The dtype that a way out needs, else the one wished."""
    if out in ("add", "add_ring"):
        return int32
    return f32 if out in ("turn", "flags") else dtype
