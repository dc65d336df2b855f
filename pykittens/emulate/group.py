"""One group of a role: a coroutine over the nodes of its body, with its values and what it has in flight."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from pykittens.emulate.barriers import Copy
from pykittens.emulate.block import BlockRun
from pykittens.emulate.memory import Array, GlobalTile, SharedRegion
from pykittens.errors import AccessError, KernelError
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
)
from pykittens.ir.op import Engine
from pykittens.ir.orders import decode
from pykittens.ir.values import Global, SharedTile, TileRef, Value
from pykittens.types.tiles import SCALAR

_ROW_MAJOR = Order("row_major")


class _InFlight:
    """The result of a product that has been issued; `value` is there once a wait covered it."""

    __slots__ = ("value",)
    value: Array | None

    def __init__(self) -> None:
        self.value = None


@dataclass
class _Product:
    result: _InFlight
    compute: Callable[[], Array]


class Group:
    """The warps of one group of one role, as a coroutine."""

    def __init__(self, block: BlockRun, role: Role, index: int, env: dict[Value, Any]) -> None:
        self.block, self.role, self.env = block, role, env
        alike = [r for r in block.kernel.roles if r.kind == role.kind]
        self.name = role.kind if role.groups == 1 else f"{role.kind} {index}"
        if len(alike) > 1:
            self.name += f" of {role.loc}"
        if role.index is not None:
            env[role.index] = index
        self.turns: dict[tuple[Pipeline, str], int] = defaultdict(int)
        self.given: dict[Pipeline, int] = defaultdict(int)
        self.filling: dict[Acquire, int] = {}
        self.products: deque[_Product] = deque()
        self.stores: list[Callable[[], None]] = []
        self.steps = self.run(role.body)
        self.waits_for: Acquire | None = None

    def ready(self) -> bool:
        node = self.waits_for
        return node is None or self.block.rings[node.pipeline].ready(
            node.side, self.turns[node.pipeline, node.side]
        )

    def advance(self) -> bool:
        """Go on to the next stage to be taken; False at the end."""
        self.waits_for = next(self.steps, None)
        return self.waits_for is not None

    # -- nodes ---------------------------------------------------------------------------------

    def run(self, block: Block) -> Iterator[Acquire]:
        for node in block.nodes:
            match node:
                case Call():
                    self.call(node)
                case Acquire():
                    yield node
                    self.acquire(node)
                case WaitProducts():
                    while len(self.products) > node.pending:
                        product = self.products.popleft()
                        product.result.value = product.compute()
                case GiveBack():
                    self.give_back(node)
                case Leave():
                    turn = self.filling.pop(node.acquire)
                    ring = self.block.rings[node.acquire.pipeline]
                    ring.full[turn % node.acquire.pipeline.stages].arrive()
                case WaitStores():
                    for store in self.stores:
                        store()
                    self.stores.clear()
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

    def loop(self, node: For | ForTasks, turns: Any, index: list[Any]) -> Iterator[Acquire]:
        self._carry(node.carried, [c.init for c in node.carried], head=True)
        for turn in turns:
            self.env.update(zip(index, turn, strict=True))
            yield from self.run(node.body)
            self._carry(node.carried, [c.next for c in node.carried], head=True)
        self._carry(node.carried, [c.param for c in node.carried], head=False)

    def loop_while(self, node: While) -> Iterator[Acquire]:
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

    def call(self, node: Call) -> None:
        match node.op.effects.engine:
            case None:
                try:
                    result = node.op.evaluate(
                        {name: self.value(a) for name, a in node.args.items()}
                    )
                except KernelError as fault:
                    fault.loc = node.loc
                    raise
                for r in node.results:
                    self.env[r] = _typed(r, result, node)
            case Engine.PRODUCT:
                self.issue(node)
            case Engine.COPY_IN:
                self.copy_in(node)
            case Engine.COPY_OUT:
                args = {name: self.value(a) for name, a in node.args.items()}
                self.stores.append(_located(lambda: node.op.evaluate(args), node))

    def issue(self, node: Call) -> None:
        """Queue a product; its operands are read when a wait covers it, its accumulator then is complete."""
        args = {name: self.raw(a) for name, a in node.args.items()}
        result = _InFlight()

        def compute() -> Array:
            done: Array = node.op.evaluate(
                {n: a.value if isinstance(a, _InFlight) else a for n, a in args.items()}
            )
            return done

        self.products.append(_Product(result, compute))
        self.env[node.results[0]] = result

    def copy_in(self, node: Call) -> None:
        """Start a copy into the stage being filled; with multicast, this block's share to every block."""
        args = {name: self.value(a) for name, a in node.args.items()}
        tile: SharedTile = node.args["dst"]
        acquire = tile.stage.acquire
        stage = self.filling[acquire] % acquire.pipeline.stages
        ring = self.block.rings[acquire.pipeline]
        if args["multicast"]:
            self._multicast(node, args, acquire, stage)
            return
        ring.full[stage].copies += 1
        copy = _located(lambda: node.op.evaluate(args), node)
        self.block.copies.append(Copy(copy, ring.full[stage]))

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
            ring.full[stage].copies += 1

            def land(part: SharedRegion = part) -> None:
                part.write(src.read(dst.rows, dst.cols, 0)[first : first + share])

            peer.copies.append(Copy(_located(land, node), theirs.full[stage]))

    def raw(self, thing: Any) -> Any:
        """The value of an operand; a tile in flight stays so."""
        if isinstance(thing, TileRef):
            index = tuple(self.value(i) for i in thing.index)
            return GlobalTile(thing.tensor.name, self.block.tensors[thing.tensor.name], index)
        if isinstance(thing, Global):
            leading = tuple(self.value(i) for i in thing.leading)
            index = leading + (0,) * thing.rank
            return GlobalTile(thing.name, self.block.tensors[thing.name], index)
        return self.env[thing] if isinstance(thing, Value) else thing

    def value(self, thing: Any) -> Any:
        """The value of an operand that is read now."""
        found = self.raw(thing)
        if isinstance(found, _InFlight):
            assert found.value is not None, (
                "a tile in flight is read before its wait: the wait pass is wrong"
            )
            return found.value
        return found


def _typed(value: Value, result: Any, node: Call | None = None) -> Any:
    """What a value holds: a scalar as a number of its dtype; an int32 that overflows is an error."""
    if not isinstance(value.type, SCALAR):
        return result
    match value.dtype.kind:
        case "int":
            if not value.dtype.least <= result <= value.dtype.largest:
                what = f"{node.op.name}: " if node is not None else ""
                raise AccessError(
                    f"{what}{int(result)} overflows an {value.dtype}", loc=getattr(node, "loc", None)
                )
            return int(result)
        case "bool":
            return bool(result)
        case "float":
            return value.dtype.numpy.type(result)


def _located(action: Callable[[], Any], node: Call) -> Callable[[], None]:
    """The action, with faults told at the line that started it."""

    def run() -> None:
        try:
            action()
        except KernelError as fault:
            fault.loc = node.loc
            raise

    return run
