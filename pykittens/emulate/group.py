"""One group of a role: a coroutine over the nodes of its body, with its values and its operations in flight."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from pykittens.emulate.barriers import Copy
from pykittens.emulate.block import BlockRun
from pykittens.emulate.memory import GlobalTile, poison
from pykittens.emulate.waiting import (
    Engines,
    InFlight,
    Passes,
    Wait,
    faults_at,
    wait_for_engines,
    wait_of_call,
)
from pykittens.errors import AccessError
from pykittens.ir.nodes import (
    Acquire,
    Block,
    Call,
    Carried,
    For,
    ForTasks,
    GiveBack,
    Grid,
    If,
    Leave,
    Node,
    Order,
    Pipeline,
    Require,
    Role,
    Tasks,
    WaitProducts,
    WaitStores,
    While,
    group_name,
)
from pykittens.ir.op import Engine
from pykittens.ir.orders import decode
from pykittens.ir.values import Global, SharedTile, TileRef, Value
from pykittens.types.tiles import SCALAR

_ROW_MAJOR = Order("row_major")


class Group:
    """The warps of one group of one role, as a coroutine."""

    def __init__(self, block: BlockRun, role: Role, index: int, env: dict[Value, Any]) -> None:
        self.block, self.role, self.index, self.env = block, role, index, env
        self.launch, self.watch = block.launch, block.launch.watch
        self.name = group_name(self.launch.kernel, role, index)
        if role.index is not None:
            env[role.index] = index
        self.turns: dict[tuple[Pipeline, str], int] = defaultdict(int)
        self.given: dict[Pipeline, int] = defaultdict(int)
        self.filling: dict[Acquire, int] = {}
        self.engines = Engines(self.launch.schedule)
        self.node: Node | None = None  # what it does now
        self.steps = self.run(role.body)
        self.waits_for: Wait | None = None

    def ready(self) -> bool:
        return self.waits_for is None or self.waits_for.ready()

    @property
    def is_late(self) -> bool:
        """Whether it waits for engines only."""
        return self.waits_for is not None and self.waits_for.late

    def advance(self) -> bool:
        """Go on to the next thing to wait for; False at the end."""
        self.waits_for = next(self.steps, None)
        if self.waits_for is None:
            self.watch.ended(self)
            if not self.watch.tells:
                self.engines.check_finished()
            self.engines.finish_stores(0, read=False)  # those of a launch are done when it is
            return False
        self.watch.stops(self, self.waits_for)
        return True

    # -- nodes ---------------------------------------------------------------------------------

    def run(self, block: Block) -> Iterator[Wait]:
        does, watch = self.launch.does, self.watch
        for node in block.nodes:
            self.node = node
            match node:
                case Call():
                    effects = node.op.effects
                    if effects.waits:
                        yield wait_of_call(node, self.arguments(node))
                        for name in effects.waits:
                            watch.passes(self, node, self.value(node.args[name]))
                    if effects.finishes is Engine.COPY_OUT and not node.args["read"]:
                        yield wait_for_engines(node.loc)
                    if effects.signals and effects.engine is None and self.launch.schedule.pauses():
                        yield Wait(lambda: True, lambda: "", node.loc)
                    self.call(node)
                case Acquire():
                    if does(node, "wait"):
                        yield self.wait_for_stage(node)
                    self.acquire(node)
                case WaitProducts():
                    if does(node, "wait"):
                        self.finish(node, Engine.PRODUCT, node.pending)
                case GiveBack():
                    if does(node, "release"):
                        self.give_back(node)
                case Leave():
                    self.leave(node)
                case WaitStores():
                    if does(node, "wait"):
                        if not node.read:
                            yield wait_for_engines(node.loc)
                        self.finish(node, Engine.COPY_OUT, 0, node.read)
                case For():
                    start, stop = self.value(node.start), self.value(node.stop)
                    yield from self.loop(
                        node, ((i,) for i in range(start, stop, node.step)), [node.index]
                    )
                case ForTasks():
                    yield from self.loop(node, self.tasks(node.tasks), node.index)
                case While():
                    yield from self.loop_while(node)
                case If():
                    then = bool(self.value(node.condition))
                    yield from self.run(node.then if then else node.otherwise)
                    values = [self.value(m.then if then else m.otherwise) for m in node.merged]
                    for m, value in zip(node.merged, values, strict=True):
                        self.put(m.result, _typed(m.result, value))
                case Grid():
                    # Neighbouring points are the blocks of one cluster.
                    index = decode(
                        Tasks(node.dims, _ROW_MAJOR), self.launch.extents, self.block.number
                    )
                    self.env.update(zip(node.index, index, strict=True))
                case Require() | Role():
                    pass

    def loop(self, node: For | ForTasks, turns: Any, index: list[Any]) -> Iterator[Wait]:
        self._carry(node.carried, [c.init for c in node.carried], head=True)
        for turn in turns:
            self.env.update(zip(index, turn, strict=True))
            yield from self.run(node.body)
            self._carry(node.carried, [c.next for c in node.carried], head=True)
        self._carry(node.carried, [c.param for c in node.carried], head=False)

    def loop_while(self, node: While) -> Iterator[Wait]:
        self._carry(node.carried, [c.init for c in node.carried], head=True)
        asked = [r for n in node.test.nodes if isinstance(n, Call) for r in n.results]
        passes = Passes(node.loc)
        while True:
            yield from self.run(node.test)
            if not self.value(node.condition):
                break
            if passes.are_alike([self.raw(v) for v in (*asked, *(c.param for c in node.carried))]):
                yield wait_for_engines(node.loc)
            yield from self.run(node.body)
            self._carry(node.carried, [c.next for c in node.carried], head=True)
        self._carry(node.carried, [c.param for c in node.carried], head=False)

    def _carry(self, carried: list[Carried], sources: list[Any], head: bool) -> None:
        values = [self.raw(s) for s in sources]
        for c, value in zip(carried, values, strict=True):
            self.put(c.param if head else c.result, _typed(c.param, value))

    def tasks(self, tasks: Tasks) -> Iterator[tuple[int, ...]]:
        block, extents = self.block, self.launch.extents
        for turn in range(block.index, prod(extents), self.launch.clusters):
            index = list(decode(tasks, extents, turn))
            if tasks.cluster_axis is not None:
                axis = tasks.cluster_axis
                index[axis] = index[axis] * len(block.cluster) + block.rank
            yield tuple(index)

    def wait_for_stage(self, node: Acquire) -> Wait:
        ring, turn = self.block.rings[node.pipeline], self.turns[node.pipeline, node.side]
        return Wait(
            lambda: ring.ready(node.side, turn),
            lambda: (
                f"{node.pipeline.name}.{node.side}() at {node.loc}: {ring.missing(node.side, turn)}"
            ),
            node.loc,
        )

    def acquire(self, node: Acquire) -> None:
        ring, turn = self.block.rings[node.pipeline], self.turns[node.pipeline, node.side]
        if self.launch.does(node, "wait"):
            self.watch.takes(self, node, ring.barrier(node.side, turn), ring.phase(node.side, turn))
        self.turns[node.pipeline, node.side] = turn + 1
        if node.side == "fill":
            self.filling[node] = turn
            ring.take_over(self.block.rings.values())
            if node.pipeline.reuse is not None:
                self.watch.meets(self)  # other warps may still read what was here
        regions = ring.tiles(turn)
        for name, tile in node.tiles.items():
            self.env[tile] = regions[name]

    def leave(self, node: Leave) -> None:
        """A fill is done: what lanes stored can be seen by engines, and the stage is full for this group's part."""
        turn = self.filling.pop(node.acquire)
        full = self.block.rings[node.acquire.pipeline].barrier("drain", turn)
        if self.launch.does(node, "fence"):
            self.watch.fences(self)
        if self.launch.does(node, "arrival"):
            self.watch.arrives(self, node, full)
            full.arrive()

    def give_back(self, node: GiveBack) -> None:
        peers = self.block.cluster if node.pipeline in self.block.shared_rings else [self.block]
        for _ in range(node.count):
            turn = self.given[node.pipeline]
            if self.turns[node.pipeline, "drain"] - turn <= node.keep:
                return
            for peer in peers:
                ring = peer.rings[node.pipeline]
                self.watch.arrives(self, node, ring.barrier("fill", turn))
                ring.release(turn)
            self.given[node.pipeline] = turn + 1

    def finish(self, node: Node, engine: Engine, left: int, read: bool = False) -> None:
        """Wait until at most so many operations of an engine are unfinished."""
        if engine is Engine.PRODUCT:
            self.engines.finish_products(left)
        else:
            self.engines.finish_stores(left, read)
        self.watch.finishes(self, node, engine, left, read)

    # -- operations ----------------------------------------------------------------------------

    def arguments(self, node: Call) -> dict[str, Any]:
        """The operands of a call, read now."""
        return {name: self.value(a) for name, a in node.args.items()}

    def call(self, node: Call) -> None:
        effects = node.op.effects
        if effects.finishes is not None:
            self.finish(node, effects.finishes, node.args["pending"], node.args.get("read", False))
        if effects.fences:
            self.watch.fences(self)
        if effects.meets:
            self.watch.meets(self)
        if effects.engine is None:
            self.compute(node)
            return
        with faults_at(node):
            self.ask(effects.engine, node)

    def ask(self, engine: Engine, node: Call) -> None:
        """Have an engine carry an operation on."""
        match engine:
            case Engine.PRODUCT:
                args = {name: self.raw(a) for name, a in node.args.items()}
                self.watch.starts_product(self, node, args)
                self.put(node.results[0], self.engines.multiply(node, args))
            case Engine.COPY_IN:
                self.copy_in(node)
            case Engine.COPY_OUT:
                args = self.arguments(node)
                self.watch.starts_store(self, node, args)
                self.engines.store(node, args)

    def compute(self, node: Call) -> None:
        """What the lanes do themselves."""
        args = self.arguments(node)
        for name in node.op.effects.signals:
            self.watch.arrives(self, node, args[name])
        self.watch.runs(self, node)
        with faults_at(node):
            result = node.op.evaluate(args)
        self.watch.ran(self, node)
        for r in node.results:
            self.put(r, _typed(r, result, node))

    def copy_in(self, node: Call) -> None:
        """Start a copy into the stage being filled; with multicast, this block's share to every block."""
        args = self.arguments(node)
        dst, src = args["dst"], args["src"]
        tile: SharedTile = node.args["dst"]
        if tile.stage is None:
            # Who reads the memory before the copy is known to have landed finds no number in it.
            dst.array.fill(poison(tile.dtype))
            self.start(node, self.block, Copy(node, dst, src, args["signal"]))
            return
        acquire = tile.stage.acquire
        turn = self.filling[acquire]
        full = self.block.rings[acquire.pipeline].barrier("drain", turn)
        if not args["multicast"]:
            full.bytes += tile.type.bytes
            self.start(node, self.block, Copy(node, dst, src, full))
            return
        for peer in self.block.cluster:
            copy = self.share_for(peer, node, args, turn)
            full.bytes += copy.bytes
            self.start(node, peer, copy)

    def share_for(self, peer: BlockRun, node: Call, args: dict[str, Any], turn: int) -> Copy:
        """This block's share of a tile that goes to every block of the cluster, as a copy to one of them."""
        dst, acquire = args["dst"], node.args["dst"].stage.acquire
        share = dst.rows // len(self.block.cluster)
        theirs = peer.rings[acquire.pipeline]
        (name,) = (
            n
            for n, t in self.block.rings[acquire.pipeline].tiles(turn).items()
            if t.memory is dst.memory
        )
        tile = theirs.tiles(turn)[name].cut(dst.top, dst.rows, dst.left, dst.cols)
        first = share * self.block.rank
        return Copy(
            node,
            tile.cut(first, share, 0, dst.cols),
            args["src"],
            theirs.barrier("drain", turn),
            dst.rows,
            first,
        )

    def start(self, node: Call, block: BlockRun, copy: Copy) -> None:
        """Put a copy under way to shared memory of a block."""
        self.watch.starts_copy(self, node, copy)
        if self.launch.schedule.at_once():
            copy.finish()
        else:
            block.copies.append(copy)

    def put(self, value: Value, found: Any) -> None:
        """Give a value what it holds from here."""
        if self.engines.products and (product := self.engines.held_by(value)) is not None:
            assert self.node is not None
            self.watch.overwrites(self, self.node, value, product)
        self.env[value] = found

    def raw(self, thing: Any) -> Any:
        """The value of an operand; a tile in flight stays so."""
        if isinstance(thing, TileRef | Global):
            ref = thing.first
            index = tuple(self.value(i) for i in ref.index)
            windows = {
                axis: tuple(self.value(x) for x in window.bounds)
                for axis, window in ref.windows.items()
            }
            name = ref.tensor.name
            return GlobalTile(name, self.launch.tensors[name], index, windows, self.watch)
        return self.env[thing] if isinstance(thing, Value) else thing

    def value(self, thing: Any) -> Any:
        """The value of an operand that is read now."""
        if isinstance(thing, tuple):
            return tuple(map(self.value, thing))
        found = self.raw(thing)
        if not isinstance(found, InFlight):
            return found
        if not found.finished:
            assert self.node is not None
            managed = found.call.managed and self.launch.without is None
            assert not managed, "a tile in flight is read before its wait: the wait pass is wrong"
            self.watch.unwaited(self, self.node, found.call)
        return found.read()


def name_in_launch(group: Group) -> str:
    """What a group is called where there are several blocks."""
    return f"block {group.block.number}" + ("" if group.name == "block" else f", {group.name}")


def uneven(
    groups: Sequence[Group], pipelines: Sequence[Pipeline]
) -> Iterator[tuple[Pipeline, int, int]]:
    """The pipelines that the groups of a block have filled and drained unequally often, and how often."""
    for pipeline in pipelines:
        filled = max(g.turns[pipeline, "fill"] for g in groups)
        drained = max(g.turns[pipeline, "drain"] for g in groups)
        if filled != drained:
            yield pipeline, filled, drained


def _typed(value: Value, result: Any, node: Call | None = None) -> Any:
    """What a value holds: a scalar as a number of its dtype; an int32 that overflows is an error."""
    if not isinstance(value.type, SCALAR):
        return result
    match value.dtype.kind:
        case "int":
            if node is not None and node.op.scalar is not None and node.op.scalar.wraps:
                result = value.dtype.wrapped(int(result))
            if not value.dtype.least <= result <= value.dtype.largest:
                what = f"{node.op.name}: " if node is not None else ""
                raise AccessError(
                    f"{what}{int(result)} overflows an {value.dtype}",
                    loc=getattr(node, "loc", None),
                )
            return int(result)
        case "bool":
            return bool(result)
        case "float":
            return value.dtype.numpy.type(result)
