"""One group of a role: a coroutine over the nodes of its body, with its values and operations in flight."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from pykittens.emulate.barriers import Barrier, Copy, Sent
from pykittens.emulate.block import BlockRun
from pykittens.emulate.memory import GlobalTile, poison
from pykittens.emulate.operands import TENSORS, Operands, Tile, operands_of, tile_of
from pykittens.emulate.shared import Signalled, at_place_of
from pykittens.emulate.waiting import (
    Engines,
    Passes,
    ProductInFlight,
    Signals,
    Wait,
    faults_at,
    pause,
    signal_key,
    wait_of_call,
)
from pykittens.emulate.watch import NOBODY
from pykittens.errors import AccessError, KernelError
from pykittens.ir.nodes import (
    Block,
    Call,
    Carried,
    For,
    ForTasks,
    Grid,
    If,
    Node,
    Require,
    Role,
    Sharing,
    Tasks,
    WaitProducts,
    WaitStores,
    While,
    group_name,
)
from pykittens.ir.op import Effects, Engine, Space
from pykittens.ir.orders import decode
from pykittens.ir.peers import Peers, peers_of
from pykittens.ir.stages import Acquire, GiveBack, Leave, Pipeline, Side
from pykittens.ir.values import SharedTile, Value
from pykittens.types.tiles import SCALAR


class Group:
    """The warps of one group of one role, as a coroutine."""

    def __init__(self, block: BlockRun, role: Role, index: int, env: dict[Value, Any]) -> None:
        self.block, self.role, self.index, self.env = block, role, index, env
        self.launch, self.watch = block.launch, block.launch.watch
        self.name = group_name(self.launch.kernel, role, index)
        if role.index is not None:
            env[role.index] = index
        self.taken: dict[tuple[Pipeline, str], int] = defaultdict(int)
        self.released: dict[Pipeline, int] = defaultdict(int)
        self.filling: dict[Acquire, int] = {}
        self.signals: dict[object, Signals] = {}
        self.engines = Engines(self.launch.schedule, self.watch)
        self.node: Node | None = None  # the node being run
        self.steps = self.run(role.body)
        self.waits_for: Wait | None = None

    def ready(self) -> bool:
        return self.waits_for is None or self.waits_for.ready()

    @property
    def is_late(self) -> bool:
        """Whether it waits only for engines."""
        return self.waits_for is not None and self.waits_for.late

    def advance(self) -> bool:
        """Continue to the next wait; False at the end."""
        self.waits_for = next(self.steps, None)
        if self.waits_for is None:
            self.watch.ended(self)
            if not self.watch.reports_unfinished:
                self.engines.check_finished()
            self.engines.finish_stores(0, read=False)  # the end of a launch waits for them
            return False
        self.watch.stops(self, self.waits_for)
        return True

    # -- nodes ---------------------------------------------------------------------------------

    def run(self, block: Block) -> Iterator[Wait]:
        watch = self.watch
        for node in block.nodes:
            self.node = node
            match node:
                case Call():
                    operands = operands_of(node)
                    if operands.plain:
                        self.compute(node, operands)
                        continue
                    effects = node.op.effects
                    if effects.waits:
                        yield wait_of_call(node, self.arguments(operands))
                        for name in () if effects.tagged else effects.waits:
                            watch.passes(self, node, self.value(node.args[name]))
                    if effects.acquires:
                        yield pause(node.loc, self.launch.schedule.landing == "late")
                    if effects.finishes is Engine.COPY_OUT and not node.args["read"]:
                        yield pause(node.loc, late=True)
                    if effects.signals and effects.engine is None and self.launch.schedule.pauses():
                        yield pause(node.loc)
                    self.call(node, operands)
                case Acquire():
                    yield from self.wait_for_stage(node)
                    self.acquire(node)
                case WaitProducts():
                    self.finish(node, Engine.PRODUCT, node.pending)
                case GiveBack():
                    self.release(node)
                case Leave():
                    watch.fences(self, ("shared",))
                    self.arrive(node)
                case WaitStores():
                    yield from self.wait_for_stores(node)
                case For():
                    numbers = range(self.value(node.start), self.value(node.stop), node.step)
                    yield from self.loop(node, ((i,) for i in numbers), [node.index])
                case ForTasks():
                    yield from self.loop(node, self.tasks(node.tasks), node.index)
                case While():
                    yield from self.loop_while(node)
                case If():
                    then = bool(self.value(node.condition))
                    yield from self.run(node.then if then else node.otherwise)
                    values = [self.value(m.then if then else m.otherwise) for m in node.merged]
                    for m, value in zip(node.merged, values, strict=True):
                        self.put(m.result, typed(m.result, value))
                case Grid():
                    self.env.update(zip(node.index, self.block.coordinates, strict=True))
                case Sharing():
                    self.env.update(zip(node.index, self.block.share, strict=True))
                case Require() | Role():
                    pass

    def loop(self, node: For | ForTasks, passes: Any, index: list[Any]) -> Iterator[Wait]:
        self._carry(node.carried, [c.init for c in node.carried], head=True)
        for numbers in passes:
            self.env.update(zip(index, numbers, strict=True))
            yield from self.run(node.body)
            self._carry(node.carried, [c.next for c in node.carried], head=True)
        self._carry(node.carried, [c.param for c in node.carried], head=False)

    def loop_while(self, node: While) -> Iterator[Wait]:
        self._carry(node.carried, [c.init for c in node.carried], head=True)
        tested = [r for n in node.test.nodes if isinstance(n, Call) for r in n.results]
        passes = Passes(node.loc)
        while True:
            yield from self.run(node.test)
            if not self.value(node.condition):
                break
            if passes.are_alike([self.raw(v) for v in (*tested, *(c.param for c in node.carried))]):
                yield pause(node.loc, late=True)
            yield from self.run(node.body)
            self._carry(node.carried, [c.next for c in node.carried], head=True)
        self._carry(node.carried, [c.param for c in node.carried], head=False)

    def _carry(self, carried: list[Carried], sources: list[Any], head: bool) -> None:
        values = [self.raw(s) for s in sources]
        for c, value in zip(carried, values, strict=True):
            self.put(c.param if head else c.result, typed(c.param, value))

    def tasks(self, tasks: Tasks) -> Iterator[tuple[int, ...]]:
        block, order, extents = self.block, self.launch.order, self.launch.extents
        for number in self.launch.positions_of(block.index):
            index = list(decode(order, extents, number))
            if tasks.cluster_axis is not None:
                axis = tasks.cluster_axis
                index[axis] = index[axis] * len(block.cluster) + block.rank
            self.watch.begins(self, number)
            yield tuple(index)

    def wait_for_stage(self, node: Acquire) -> Iterator[Wait]:
        pipeline, side = node.pipeline, node.side
        ring, number = self.block.rings[pipeline], self.taken[pipeline, side]
        if node.flight is not None and number >= node.flight:
            yield self._wait_for(node, "drain", number - node.flight)
        wait = self._wait_for(node, side, number)
        yield wait
        self.watch.takes(self, node, wait.on[0], ring.phase(side, number))

    def _wait_for(self, node: Acquire, side: Side, number: int) -> Wait:
        """The wait until the `number`-th fill or drain may start."""
        pipeline, ring = node.pipeline, self.block.rings[node.pipeline]
        barrier, phase = ring.barrier(side, number), ring.phase(side, number)
        return Wait(
            lambda: barrier.phases > phase,
            lambda: f"{pipeline.name}.{node.side}() at {node.loc}: {ring.missing(side, number)}",
            node.loc,
            on=(barrier,),
        )

    def acquire(self, node: Acquire) -> None:
        ring, number = self.block.rings[node.pipeline], self.taken[node.pipeline, node.side]
        self.taken[node.pipeline, node.side] = number + 1
        if node.side == "fill":
            self.filling[node] = number
            ring.fill_as(number, tuple(node.tiles))
            ring.take_over(self.block.rings.values())
            if node.pipeline.reuse is not None:
                self.watch.meets(self)  # other warps may still read the old data
        else:
            ring.check_view(number, tuple(node.tiles))
        regions = ring.tiles(number)
        for name, tile in node.tiles.items():
            self.env[tile] = regions[name]

    def signal(self, node: Call | Leave | GiveBack, what: Signalled) -> None:
        """Report a signal, and count it."""
        self.watch.arrives(self, node, what)
        mine = self.signals.setdefault(signal_key(what), Signals(what))
        mine.count, mine.loc = mine.count + 1, node.loc

    def arrive(self, node: Leave) -> None:
        """The group has filled its share of a stage."""
        full = self.filled(node.acquire)
        self.signal(node, full)
        full.arrive()

    def filled(self, acquire: Acquire) -> Barrier:
        """The barrier that counts the arrivals and bytes of the stage that the group fills."""
        return self.block.rings[acquire.pipeline].barrier("drain", self.filling[acquire])

    def is_full(self, pipeline: Pipeline) -> bool:
        """Whether the next fill of a ring would wait."""
        ring, number = self.block.rings[pipeline], self.taken[pipeline, "fill"]
        return ring.barrier("fill", number).phases <= ring.phase("fill", number)

    def release(self, node: GiveBack) -> None:
        if node.fences:
            self.watch.fences(self, ("shared",))
        ring = self.block.rings[node.pipeline]
        for _ in range(node.count):
            number = self.released[node.pipeline]
            if self.taken[node.pipeline, "drain"] - number <= node.keep:
                return
            for rank in ring.writers:
                barrier = self.block.cluster[rank].rings[node.pipeline].barrier("fill", number)
                self.signal(node, barrier)
                barrier.arrive()
            ring.release(number)
            self.released[node.pipeline] = number + 1

    def wait_for_stores(self, node: WaitStores) -> Iterator[Wait]:
        if not node.read:
            yield pause(node.loc, late=True)
        self.finish(node, Engine.COPY_OUT, 0, node.read)

    def finish(self, node: Node, engine: Engine, pending: int, read: bool = False) -> None:
        """Wait until at most `pending` operations of an engine are unfinished."""
        if engine is Engine.PRODUCT:
            self.engines.finish_products(pending)
        else:
            self.engines.finish_stores(pending, read)
        self.watch.finishes(self, node, engine, pending, read)

    # -- operations ----------------------------------------------------------------------------

    def arguments(self, operands: Operands) -> dict[str, Any]:
        """The operands of a call, read now."""
        env, args = self.env, operands.given.copy()
        for name, value in operands.values:
            found = env[value]
            args[name] = self.landed(found) if type(found) is ProductInFlight else found
        for name, thing in operands.others:
            args[name] = self.value(thing)
        if operands.elsewhere:
            peer = self.peer(args["block"])
            for name in operands.elsewhere:
                args[name] = at_place_of(args[name], self.block.shared, peer.shared)
        return args

    def peer(self, rank: int) -> BlockRun:
        """A block of the cluster."""
        cluster = self.block.cluster
        if not 0 <= rank < len(cluster):
            loc = getattr(self.node, "loc", None)
            raise AccessError(f"block {rank} is outside the {len(cluster)} of a cluster", loc=loc)
        return cluster[rank]

    def call(self, node: Call, operands: Operands) -> None:
        effects = node.op.effects
        if effects.finishes is not None:
            self.finish(node, effects.finishes, node.args["pending"], node.args.get("read", False))
        if effects.fences and self.watch is not NOBODY:
            self.watch.fences(self, self.fenced(effects))
        if effects.meets:
            self.watch.meets(self)
        if effects.engine is None:
            self.compute(node, operands)
            return
        with faults_at(node):
            self.issue(effects.engine, node, operands)

    def fenced(self, effects: Effects) -> tuple[Space, ...]:
        """The memory that a fence covers: tensors only if it is a fence of tensors alone, or they are fetched again."""
        if "shared" in effects.fences and not self.launch.fetches_written:
            return ("shared",)
        return effects.fences

    def issue(self, engine: Engine, node: Call, operands: Operands) -> None:
        """Start an operation on an engine."""
        match engine:
            case Engine.PRODUCT:
                args = {name: self.raw(a) for name, a in node.args.items()}
                self.watch.starts_product(self, node, args)
                now = not self.role.is_warpgroup
                self.put(node.results[0], self.engines.multiply(node, args, now))
            case Engine.COPY_IN:
                self.copy_in(node, self.arguments(operands))
            case Engine.SEND:
                self.send(node, self.arguments(operands))
            case Engine.COPY_OUT:
                args = self.arguments(operands)
                self.watch.starts_store(self, node, args)
                self.engines.store(node, args)

    def compute(self, node: Call, operands: Operands) -> None:
        """Carry an operation out by the lanes."""
        args = self.arguments(operands)
        for name in node.op.effects.signals:
            with faults_at(node):
                self.signal(node, args[name])
        self.watch.runs(self, node)
        try:  # which costs less than `faults_at`
            result = node.op.evaluate(args)
        except KernelError as fault:
            fault.loc = node.loc
            raise
        self.watch.computes(node, args, result)
        self.watch.ran(self, node)
        found = result if isinstance(result, tuple) else (result,)
        # Without results, None is found.
        for (r, is_number), value in zip(operands.results, found, strict=False):
            self.put(r, typed(r, value, node) if is_number else value)

    def copy_in(self, node: Call, args: dict[str, Any]) -> None:
        """Start a copy into the stage being filled; with multicast, this block's share to each that shares it."""
        dst, src = args["dst"], args["src"]
        tile: SharedTile = node.args["dst"]
        if tile.stage is None:
            # A read before the copy is known to have landed finds poison.
            dst.array.fill(poison(tile.dtype))
            self.start(node, self.block, Copy(node, dst, src, args["signal"]))
            return
        full = self.filled(tile.stage.acquire)
        if (peers := peers_of(node, len(self.block.cluster))) is None:
            full.bytes += tile.type.bytes
            self.start(node, self.block, Copy(node, dst, src, full))
            return
        for rank in peers.ranks(self.block.rank):
            peer = self.block.cluster[rank]
            copy = self.share_for(peer, node, args, peers)
            full.bytes += copy.bytes
            self.start(node, peer, copy)

    def send(self, node: Call, args: dict[str, Any]) -> None:
        """Start to store a tile as it is to a block of the cluster."""
        dst, sent = args["dst"], Sent(args["value"].copy(), self.block.name)
        dst.array.fill(poison(node.args["dst"].dtype))
        self.start(node, self.peer(args["block"]), Copy(node, dst, sent, args["signal"]))

    def share_for(self, peer: BlockRun, node: Call, args: dict[str, Any], peers: Peers) -> Copy:
        """This block's share of a tile that goes to several blocks of the cluster, as a copy to one of them."""
        dst, acquire = args["dst"], node.args["dst"].stage.acquire
        number, pipeline = self.filling[acquire], acquire.pipeline
        tiles = self.block.rings[pipeline].tiles(number)
        (name,) = (n for n, t in tiles.items() if t.memory is dst.memory)
        rows = dst.rows // peers.count
        first = rows * peers.number(self.block.rank)
        ring = peer.rings[pipeline]
        share = ring.tiles(number)[name].cut(dst.top + first, rows, dst.left, dst.cols)
        return Copy(node, share, args["src"], ring.barrier("drain", number), dst.rows, first)

    def start(self, node: Call, block: BlockRun, copy: Copy) -> None:
        """Start a copy to shared memory of a block."""
        self.watch.starts_copy(self, node, copy)
        if self.launch.schedule.at_once():
            copy.finish()
        else:
            block.copies.append(copy)

    def put(self, value: Value, found: Any) -> None:
        """Set a value."""
        if self.engines.products and (product := self.engines.held_by(value)) is not None:
            assert self.node is not None
            self.watch.overwrites(self, self.node, value, product)
        self.env[value] = found

    def raw(self, thing: Any) -> Any:
        """The value of an operand; a tile in flight stays in flight."""
        if isinstance(thing, TENSORS):
            return self.tile(tile_of(thing))
        if isinstance(thing, Pipeline):
            return self.is_full(thing)
        return self.env[thing] if isinstance(thing, Value) else thing

    def tile(self, tile: Tile) -> GlobalTile:
        """A tile of a tensor where the values that locate it are now."""
        index = tuple(map(self.value, tile.index))
        windows = {axis: tuple(map(self.value, w)) for axis, w in tile.windows.items()}
        array = self.launch.tensors[tile.name]
        return GlobalTile(tile.name, array, index, tile.plane, windows, self.watch)

    def value(self, thing: Any) -> Any:
        """The value of an operand that is read now."""
        if type(thing) is int:  # most indices
            return thing
        if isinstance(thing, Tile):
            return self.tile(thing)
        if isinstance(thing, tuple):
            return tuple(map(self.value, thing))
        found = self.raw(thing)
        return self.landed(found) if type(found) is ProductInFlight else found

    def landed(self, found: ProductInFlight) -> Any:
        """What a read of the result of a product finds."""
        if not found.finished:
            assert self.node is not None
            assert not found.call.managed, (
                "a tile in flight is read before its wait: the wait pass is wrong"
            )
            self.watch.unwaited(self, self.node, found.call)
        return found.read()


def name_in_launch(group: Group) -> str:
    """The name of a group if there are several blocks."""
    return group.block.name + ("" if group.name == "block" else f", {group.name}")


def uneven(
    groups: Sequence[Group], pipelines: Sequence[Pipeline]
) -> Iterator[tuple[Pipeline, int, int]]:
    """The pipelines that the groups of a block have not filled and drained equally often, with both counts."""
    for pipeline in pipelines:
        filled = max(g.taken[pipeline, "fill"] for g in groups)
        drained = max(g.taken[pipeline, "drain"] for g in groups)
        if filled != drained:
            yield pipeline, filled, drained


def typed(value: Value, result: Any, node: Call | None = None) -> Any:
    """The result in the type of a value: a scalar is a number of its dtype; an integer that overflows is an error."""
    if not isinstance(value.type, SCALAR):
        return result
    dtype = value.type.dtype
    match dtype.kind:
        case "int":
            if node is not None and node.op.scalar is not None and node.op.scalar.wraps:
                result = dtype.wrapped(int(result))
            if not dtype.least <= result <= dtype.largest:
                name = f"{node.op.name}: " if node is not None else ""
                loc = None if node is None else node.loc
                raise AccessError(f"{name}{int(result)} overflows an {dtype}", loc=loc)
            return int(result)
        case "bool":
            return bool(result)
        case "float":
            return dtype.numpy.type(result)
