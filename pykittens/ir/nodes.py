"""The nodes of the IR, with the whole grammar on one screen.

Kernel   = Param* Pipeline* Shared* Block     the block contains the roles; without roles one group runs it
Block    = Node*
Node     = Call | Require | Grid | Sharing | Role | For | ForTasks | While | If
         | Acquire | Leave                    the start and end of a `with` on a stage of a pipeline
         | GiveBack | WaitProducts | WaitStores    placed by passes/waits.py, never written by the user
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from pykittens.errors import Loc
from pykittens.ir.op import Op
from pykittens.ir.stages import Acquire, GiveBack, Leave, Pipeline, Side
from pykittens.ir.values import (
    Global,
    RegTile,
    RegVector,
    Scalar,
    Semaphore,
    SharedTile,
    TileRef,
    Turns,
    Value,
)


@dataclass(eq=False)
class Block:
    """Nodes that run one after another. owner: its name in error texts. kind: that of the instruction that it is."""

    nodes: list[Node] = field(default_factory=list)
    owner: str = "the loop or branch"
    kind: str = ""


@dataclass(eq=False)
class Call:
    """An operation. `args` holds handles, tile references and Python constants by parameter name.

    `onto_flight`: a product whose accumulator may still be in flight (set by passes/waits.py). `prepared`: what the
    emulator has found out about its operands, which are the same in all launches.
    """

    op: Op[Any]
    args: dict[str, Any]
    results: list[Value]
    loc: Loc | None = None
    onto_flight: bool = False
    prepared: Any = field(default=None, init=False, repr=False)

    @property
    def managed(self) -> bool:
        """Whether the compiler waits for the engine that completes the operation; else the user does."""
        name = self.op.effects.managed
        return name is None or bool(self.args[name])

    @property
    def names_block(self) -> bool:
        """Whether what it writes and signals lies in a block of the cluster that it names."""
        name = self.op.effects.block
        return name is not None and self.args[name] is not None


@dataclass(eq=False)
class Require:
    """A condition on the arguments, checked on the host at each call."""

    condition: Any
    message: str
    loc: Loc | None = None


@dataclass(eq=False)
class Grid:
    """One block per point of the grid; `index` has the block's coordinates, the last axis fastest."""

    dims: tuple[Any, ...]
    index: list[Scalar]
    loc: Loc | None = None


@dataclass(eq=False)
class Sharing:
    """The blocks that share the tasks of a persistent kernel: `index` has this block's number and their number."""

    index: list[Scalar]
    loc: Loc | None = None


@dataclass(frozen=True)
class Order:
    """An order of tasks: its kind and its parameter (rows of a supergroup, heads of a section), if it has one."""

    kind: Literal["row_major", "column_major", "supergroup", "longest_first"]
    size: Any = None

    @property
    def description(self) -> str:
        return f"the order {self.kind}"


@dataclass(eq=False)
class Tasks:
    """Tasks of a persistent kernel, shared by its blocks (or clusters, at most `most` blocks) in turn or by tickets."""

    dims: tuple[Any, ...]
    order: Order
    cluster_axis: int | None = None
    most: Any = None
    tickets: Global | None = None  # its first element counts the tasks that are taken
    loc: Loc | None = None


@dataclass(eq=False)
class Carried:
    """A value carried round a loop: before the loop, at its head, at the end of an iteration, and after it."""

    init: Any
    param: Value
    next: Any
    result: Value

    @property
    def names(self) -> tuple[Value, ...]:
        """The values that it binds."""
        return self.param, self.result

    @property
    def sources(self) -> tuple[Any, ...]:
        """The values that they may equal."""
        return self.init, self.next


@dataclass(eq=False)
class For:
    """Run-time loop over range(start, stop, step); step is a compile-time int."""

    index: Scalar
    start: Any
    stop: Any
    step: int
    body: Block
    carried: list[Carried] = field(default_factory=list)
    loc: Loc | None = None


@dataclass(eq=False)
class ForTasks:
    """Run-time loop over the tasks of this block."""

    tasks: Tasks
    index: list[Scalar]
    body: Block
    carried: list[Carried] = field(default_factory=list)
    loc: Loc | None = None


@dataclass(eq=False)
class While:
    """Run-time loop: `test` computes `condition` before each iteration."""

    test: Block
    condition: Any
    body: Block
    carried: list[Carried] = field(default_factory=list)
    loc: Loc | None = None


@dataclass(eq=False)
class Merged:
    """A value that each branch of an If binds."""

    then: Any
    otherwise: Any
    result: Value

    @property
    def names(self) -> tuple[Value, ...]:
        return (self.result,)

    @property
    def sources(self) -> tuple[Any, ...]:
        return self.then, self.otherwise


@dataclass(eq=False)
class If:
    """Run-time branch."""

    condition: Scalar
    then: Block
    otherwise: Block
    merged: list[Merged] = field(default_factory=list)
    loc: Loc | None = None


RoleKind = Literal["producer", "consumers", "storer", "warps", "warpgroups", "block"]


@dataclass(eq=False)
class Role:
    """A program that only its own warps run: `groups` groups of `warps` warps each.

    home: the name of the role in a function whose values have homes. copy_warps: of a producer or storer, the warps
    that share copies by lanes, if it asks for a number.
    """

    kind: RoleKind
    groups: int
    warps: int
    index: Scalar | None
    body: Block
    registers: int | None = None
    loc: Loc | None = None
    home: str = ""
    copy_warps: int | None = None

    @property
    def shown(self) -> str:
        """Its name in reports and error texts."""
        return self.home or self.kind

    @property
    def is_service(self) -> bool:
        """Whether the role only moves memory; such roles share warpgroups, mostly one."""
        return self.kind in ("producer", "storer")

    @property
    def is_warpgroup(self) -> bool:
        """Whether its groups are whole warpgroups; the warps of other groups multiply one by one, as lanes do."""
        return self.warps % 4 == 0


@dataclass(eq=False)
class WaitProducts:
    """Wait until at most `pending` products are unfinished.

    completes: the tiles that are final after it. frees: the register operands that may be overwritten after it.
    leaves: the tiles that are still in flight.
    """

    pending: int
    completes: list[Value]
    frees: list[Value]
    leaves: list[Value]
    loc: Loc | None = None


@dataclass(eq=False)
class WaitStores:
    """Wait for this role's bulk stores: until their sources are read (`read`), or until all is written."""

    read: bool
    loc: Loc | None = None


Loop = For | ForTasks | While
Node = (
    Call
    | Require
    | Grid
    | Sharing
    | Role
    | For
    | ForTasks
    | While
    | If
    | Acquire
    | Leave
    | GiveBack
    | WaitProducts
    | WaitStores
)


@dataclass(eq=False)
class Shared:
    """Shared memory outside pipelines: a tile or vector, a semaphore or the turns of a role; or `count` of these."""

    value: SharedTile | Semaphore | Turns
    count: int | None = None
    loc: Loc | None = None


@dataclass(eq=False)
class Kernel:
    """A recorded kernel, for one set of dtypes, ranks, constants and static extents.

    overlaps: a launch may start before the previous launch on its stream has ended. ready: tensors that no launch still
    writes then. resident: blocks that share a multiprocessor.
    """

    name: str
    params: list[Global | Scalar]
    body: Block
    pipelines: list[Pipeline]
    constants: dict[str, Any]
    statics: list[tuple[Any, int]]  # run-time value, the constant it was recorded with
    warps: int = 4
    cluster: int = 1
    inplace: bool = False
    overlaps: bool = False
    ready: frozenset[str] = frozenset()
    resident: int = 1
    doc: str = ""
    loc: Loc | None = None
    launch: Grid | Tasks | None = None
    shared: list[Shared] = field(default_factory=list)

    @property
    def tickets(self) -> Global | None:
        """The tensor that counts the tasks that are taken, if blocks take them by tickets."""
        return self.launch.tickets if isinstance(self.launch, Tasks) else None

    @property
    def roles(self) -> list[Role]:
        """The roles in program order; a kernel without roles is one role of one group."""
        roles = [n for n in self.body.nodes if isinstance(n, Role)]
        return roles or [Role("block", 1, self.warps, None, self.body, loc=self.loc)]

    @property
    def outside(self) -> Block:
        """The nodes outside roles."""
        return Block([n for n in self.body.nodes if not isinstance(n, Role)])

    @property
    def has_roles(self) -> bool:
        return any(isinstance(n, Role) for n in self.body.nodes)


def group_name(kernel: Kernel, role: Role, index: int) -> str:
    """The name of a group of a role in error texts."""
    name = role.shown if role.groups == 1 else f"{role.shown} {index}"
    alike = [r for r in kernel.roles if r.shown == role.shown]
    return name if len(alike) == 1 else f"{name} of {role.loc}"


def operands(args: dict[str, Any]) -> Iterator[Value]:
    """The values among the arguments of a call, including those inside tile references."""
    for arg in args.values():
        match arg:
            case TileRef() | Global():
                yield arg.tensor if isinstance(arg, TileRef) else arg
                yield from (x for x in coordinates(arg) if isinstance(x, Value))
            case Value():
                yield arg
            case tuple() | list():
                yield from (a for a in arg if isinstance(a, Value))


def moved(call: Call) -> Any:
    """The value a call moves to or from memory: its result, the `value` it stores, or the shared tile of a copy.

    If one number is stored to all elements that an index names, the index stands for them.
    """
    if call.results:
        return call.results[0]
    if "value" in call.args:
        value, index = call.args["value"], call.op.effects.index
        return (
            value if index is None or isinstance(value, RegTile | RegVector) else call.args[index]
        )
    return next((a for a in call.args.values() if isinstance(a, SharedTile)), None)


def coordinates(ref: TileRef | Global) -> Iterator[Any]:
    """The values that locate a tile in its tensor: its indices and the bounds of its windows."""
    yield from ref.first.index
    for window in ref.windows.values():
        yield from window.bounds


def blocks(node: Node) -> list[Block]:
    """The blocks inside a node, in the order they run."""
    match node:
        case For() | ForTasks() | Role():
            return [node.body]
        case While():
            return [node.test, node.body]
        case If():
            return [node.then, node.otherwise]
        case _:
            return []


def walk(block: Block) -> Iterator[Node]:
    """All nodes of a block and of the blocks inside it, in program order."""
    for node in block.nodes:
        yield node
        if not isinstance(node, Call):  # by far the most nodes
            for inner in blocks(node):
                yield from walk(inner)


def within(node: Node) -> Iterator[Node]:
    """A node and all nodes of the blocks inside it, in program order."""
    return walk(Block([node]))


def calls(block: Block) -> Iterator[Call]:
    """All operations of a block and of the blocks inside it, in program order."""
    return (n for n in walk(block) if isinstance(n, Call))


def all_blocks(block: Block) -> list[Block]:
    """A block and all blocks inside it, in program order."""
    return [block, *(inner for node in walk(block) for inner in blocks(node))]


def takes(block: Block, pipeline: Pipeline, side: Side) -> bool:
    """Whether a block, or a block inside it, takes a stage of the pipeline on this side."""
    return any(
        isinstance(n, Acquire) and n.pipeline is pipeline and n.side == side for n in walk(block)
    )


def is_used(kernel: Kernel, pipeline: Pipeline) -> bool:
    """Whether a role takes stages of a pipeline; a kernel has as well pipelines that it only makes."""
    return takes(kernel.body, pipeline, "fill") or takes(kernel.body, pipeline, "drain")


def waits_for_flags(kernel: Kernel) -> bool:
    """Whether blocks wait for other blocks of the launch, so that all of them must run at once."""
    return any(any(tensors(c, c.op.effects.waits)) for c in calls(kernel.body))


def reads_flags(kernel: Kernel) -> bool:
    """Whether blocks learn from flags how far other blocks of the launch are, by waiting for them or not."""
    read = ((c, c.op.effects.waits + c.op.effects.acquires) for c in calls(kernel.body))
    return any(any(tensors(c, operands)) for c, operands in read)


def tensors(call: Call, operands: Iterable[str]) -> Iterator[str]:
    """Names of the tensors among these operands of a call."""
    targets = (call.args[operand] for operand in operands)
    return (t.first.tensor.name for t in targets if isinstance(t, TileRef | Global))


def written(kernel: Kernel) -> list[str]:
    """Names of the tensors that a kernel writes."""
    names = [t for c in calls(kernel.body) for t in tensors(c, c.op.effects.writes)]
    if kernel.tickets is not None:
        names.append(kernel.tickets.name)
    return list(dict.fromkeys(names))
