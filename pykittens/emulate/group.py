"""One group of a role: a coroutine over the nodes of its body, with its values and what it has in flight."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from pykittens.emulate.barriers import Copy
from pykittens.emulate.block import BlockRun
from pykittens.emulate.memory import Array, GlobalTile, SharedRegion, poison
from pykittens.emulate.waiting import (
    Engines,
    InFlight,
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
        self.block, self.role, self.env = block, role, env
        self.name = group_name(block.kernel, role, index)
        if role.index is not None:
            env[role.index] = index
        self.turns: dict[tuple[Pipeline, str], int] = defaultdict(int)
        self.given: dict[Pipeline, int] = defaultdict(int)
        self.filling: dict[Acquire, int] = {}
        self.engines = Engines()
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
            self.engines.check_finished()
        return self.waits_for is not None

    # -- nodes ---------------------------------------------------------------------------------

    def run(self, block: Block) -> Iterator[Wait]:
        for node in block.nodes:
            match node:
                case Call():
                    if node.op.effects.waits:
                        yield wait_of_call(node, self.arguments(node))
                    if node.op.effects.finishes is Engine.COPY_OUT and not node.args["read"]:
                        yield wait_for_engines(node.loc)
                    self.call(node)
                case Acquire():
                    yield self.wait_for_stage(node)
                    self.acquire(node)
                case WaitProducts():
                    self.engines.finish_products(node.pending)
                case GiveBack():
                    self.give_back(node)
                case Leave():
                    turn = self.filling.pop(node.acquire)
                    ring = self.block.rings[node.acquire.pipeline]
                    ring.full[turn % node.acquire.pipeline.stages].arrive()
                case WaitStores():
                    if not node.read:
                        yield wait_for_engines(node.loc)
                    self.engines.finish_stores(0, node.read)
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
                        self.env[m.result] = _typed(m.result, value)
                case Grid():
                    # Neighbouring points are the blocks of one cluster.
                    point = self.block.index * self.block.kernel.cluster + self.block.rank
                    index = decode(Tasks(node.dims, _ROW_MAJOR), self.block.extents, point)
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
        while True:
            yield from self.run(node.test)
            if not self.value(node.condition):
                break
            yield from self.run(node.body)
            self._carry(node.carried, [c.next for c in node.carried], head=True)
        self._carry(node.carried, [c.param for c in node.carried], head=False)

    def _carry(self, carried: list[Carried], sources: list[Any], head: bool) -> None:
        values = [self.raw(s) for s in sources]
        for c, value in zip(carried, values, strict=True):
            self.env[c.param if head else c.result] = _typed(c.param, value)

    def tasks(self, tasks: Tasks) -> Iterator[tuple[int, ...]]:
        block = self.block
        for turn in range(block.index, prod(block.extents), block.count):
            index = list(decode(tasks, block.extents, turn))
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
        turn = self.turns[node.pipeline, node.side]
        self.turns[node.pipeline, node.side] = turn + 1
        if node.side == "fill":
            self.filling[node] = turn
        regions = self.block.rings[node.pipeline].tiles(turn)
        for name, tile in node.tiles.items():
            self.env[tile] = regions[name]

    def give_back(self, node: GiveBack) -> None:
        peers = self.block.cluster if node.pipeline in self.block.shared_rings else [self.block]
        while self.turns[node.pipeline, "drain"] - self.given[node.pipeline] > node.keep:
            for peer in peers:
                peer.rings[node.pipeline].release(self.given[node.pipeline])
            self.given[node.pipeline] += 1

    # -- operations ----------------------------------------------------------------------------

    def arguments(self, node: Call) -> dict[str, Any]:
        """The operands of a call, read now."""
        return {name: self.value(a) for name, a in node.args.items()}

    def call(self, node: Call) -> None:
        effects = node.op.effects
        match effects.engine:
            case None:
                with faults_at(node):
                    result = node.op.evaluate(self.arguments(node))
                for r in node.results:
                    self.env[r] = _typed(r, result, node)
            case Engine.PRODUCT:
                args = {name: self.raw(a) for name, a in node.args.items()}
                self.env[node.results[0]] = self.engines.multiply(node, args)
            case Engine.COPY_IN:
                self.copy_in(node)
            case Engine.COPY_OUT:
                self.engines.store(node, self.arguments(node))
        match effects.finishes:
            case Engine.PRODUCT:
                self.engines.finish_products(node.args["pending"])
            case Engine.COPY_OUT:
                self.engines.finish_stores(node.args["pending"], node.args["read"])
            case _:
                pass

    def copy_in(self, node: Call) -> None:
        """Start a copy into the stage being filled; with multicast, this block's share to every block."""
        args = self.arguments(node)
        tile: SharedTile = node.args["dst"]

        def land() -> None:
            with faults_at(node):
                node.op.evaluate(args)

        if tile.stage is None:
            # Who reads the memory before the copy is known to have landed finds no number in it.
            args["dst"].array.fill(poison(tile.dtype))
            self.block.copies.append(Copy(land, args["signal"], tile.type.bytes))
            return
        acquire = tile.stage.acquire
        stage = self.filling[acquire] % acquire.pipeline.stages
        full = self.block.rings[acquire.pipeline].full[stage]
        if args["multicast"]:
            self._multicast(node, args, acquire, stage)
            return
        full.bytes += tile.type.bytes
        self.block.copies.append(Copy(land, full, tile.type.bytes))

    def _multicast(self, node: Call, args: dict[str, Any], acquire: Acquire, stage: int) -> None:
        dst, src = args["dst"], args["src"]
        peers = self.block.cluster
        share = dst.rows // len(peers)
        first = share * self.block.rank
        ring = self.block.rings[acquire.pipeline]
        at = dst.array.ctypes.data - ring.memory.ctypes.data
        for peer in peers:
            theirs = peer.rings[acquire.pipeline]
            tile: Array = np.ndarray(
                dst.array.shape, dst.array.dtype, theirs.memory.data, at, dst.array.strides
            )
            part = SharedRegion(tile[first : first + share])
            ring.full[stage].bytes += part.array.nbytes

            def land(part: SharedRegion = part) -> None:
                with faults_at(node):
                    part.write(src.read(dst.rows, dst.cols, 0)[first : first + share])

            peer.copies.append(Copy(land, theirs.full[stage], part.array.nbytes))

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
            return GlobalTile(name, self.block.tensors[name], index, windows)
        return self.env[thing] if isinstance(thing, Value) else thing

    def value(self, thing: Any) -> Any:
        """The value of an operand that is read now."""
        if isinstance(thing, tuple):
            return tuple(map(self.value, thing))
        found = self.raw(thing)
        return found.read() if isinstance(found, InFlight) else found


def _typed(value: Value, result: Any, node: Call | None = None) -> Any:
    """What a value holds: a scalar as a number of its dtype; an int32 that overflows is an error."""
    if not isinstance(value.type, SCALAR):
        return result
    match value.dtype.kind:
        case "int":
            if node is not None and node.op.scalar is not None and node.op.scalar.wraps:
                least = int(value.dtype.least)
                result = (int(result) - least) % 2**value.dtype.bits + least
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
