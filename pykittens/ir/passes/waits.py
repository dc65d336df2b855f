"""Places the waits for matrix products and gives stages back.

A product with shared operands runs on after its instruction: its result is in flight, and the stages that it reads
stay held. Products finish in the order of issue, so a wait states how many may stay unfinished. The pass walks each
role once with the state of `flight.py`, and a loop body until the state at its head no longer changes.

 - Reading a tile in flight waits for it, with as many later products pending as possible. Accumulating is no read.
 - A drained stage that a product still reads is given back at the first wait that covers the product. After
   the next product on the same pipeline the pass waits for the older ones, so one product is always queued.
 - At most stages - 1 stages of a pipeline stay held. Before an acquire that other roles could not serve while
   stages are held back (`order.py` finds these), the stages are given back.
 - A value that a loop carries stays in flight over the back edge only if it is accumulated in place; else a copy
   would read registers that a product still writes.
 - A product that reads registers defined in a loop is completed at the back edge: the next iteration writes them again.
 - A run-time `if` or `while`, and the end of a role, complete everything.
 - A product that reads shared memory outside pipelines is completed before an operation that writes such memory, where
   the warps of the group meet, which may write it afterwards, and before an operation that signals other groups, which
   may write it, too, unless each group has its own part.
 - Everything is completed before a fill of a pipeline that takes over the memory of another.
 - The user waits for a product with managed=False; waits for other products may cover it, too. Before an operation
   that waits for other roles or blocks, stages that are held back are given back.
 - A tile in flight over a back edge may be accumulated into, or read after a wait for all. If it is read after a wait
   that leaves products pending, it is completed at the back edge; otherwise ptxas serialises every product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from pykittens.ir.nodes import (
    Block,
    Call,
    Carried,
    For,
    ForTasks,
    If,
    Kernel,
    Node,
    Role,
    WaitProducts,
    WaitStores,
    While,
    all_blocks,
    blocks,
    calls,
    operands,
    walk,
)
from pykittens.ir.op import Engine
from pykittens.ir.passes.flight import HeldStage, PendingProduct, State, join
from pykittens.ir.passes.order import find_stalls
from pykittens.ir.passes.ownership import own_memory
from pykittens.ir.stages import Acquire, GiveBack, Leave, Pipeline
from pykittens.ir.structure import definitions, memory_of, uses
from pykittens.ir.values import RegTile, SharedTile, Turns, Value


def place_waits(kernel: Kernel) -> None:
    """Insert waits and releases into every role of a kernel, with as few early releases as progress allows."""
    bodies = {role: list_nodes(role.body) for role in kernel.roles}
    early: set[Acquire] = set()
    own = own_memory(kernel)
    while True:
        for role, nodes in bodies.items():
            restore(nodes)
            Placement(early, own).role(role)
        stalled = find_stalls(kernel) - early
        if not stalled:
            return
        early |= stalled


Snapshot = list[tuple[Block, list[Node]]]


def list_nodes(block: Block) -> Snapshot:
    """The nodes of a block and of all blocks inside, to restore them by."""
    return [(inner, list(inner.nodes)) for inner in all_blocks(block)]


def restore(snapshot: Snapshot) -> None:
    """Undo what a placement inserted."""
    for block, nodes in snapshot:
        block.nodes[:] = nodes


class Placement:
    """The walk over one role.

    early: the acquires before which no stage may be held back. own: shared memory of which each group has a part.
    """

    def __init__(self, early: set[Acquire], own: set[SharedTile]) -> None:
        self.early, self.own = early, own
        self.state = State()
        self.out: list[Node] = []
        self.stored = False
        self.rewritten: set[Pipeline] = set()  # whose drained stages lanes write
        self.position: dict[Value, int] = {}  # sorts sets of values for the text
        self.uses: Counter[Value] = Counter()
        # Carried values that must not be in flight over the back edge of their loop.
        self.settled: set[Carried] = set()
        self.over_back_edge: dict[Value, Carried] = {}
        self.retry = False

    def role(self, role: Role) -> None:
        self.uses.update(v for n in walk(role.body) for v in uses(n))
        self.stored = any(_stores(role.body))
        self.rewritten = _rewritten(role.body)
        self.position = {v: i for i, v in enumerate(definitions(role.body))}
        while True:
            self.state, self.retry = State(), False
            nodes = self.block(role.body.nodes)
            if not self.retry:
                break
        role.body.nodes[:] = [*nodes, WaitStores(False)] if self.stored else nodes

    def block(self, nodes: list[Node]) -> list[Node]:
        """The nodes with waits between them, everything complete at the end."""
        outer, self.out = self.out, []
        for node in nodes:
            self.node(node)
        self.complete_all(None)
        done, self.out = self.out, outer
        return done

    def node(self, node: Node) -> None:
        match node:
            case Call():
                self.call(node)
            case Acquire():
                self.acquire(node)
            case Leave():
                self.leave(node)
            case If() | While():
                self.complete_all(node)
                for inner in blocks(node):
                    inner.nodes[:] = self.block(inner.nodes)
                self.out.append(node)
            case For() | ForTasks():
                self.loop(node)
            case _:
                self.out.append(node)

    def call(self, node: Call) -> None:
        effects = node.op.effects
        # The group that signals may need a stage first. Groups that take turns all hold theirs alike.
        elsewhere = any(not isinstance(node.args[name], Turns) for name in effects.waits)
        if elsewhere and any(not h.open for hs in self.state.held.values() for h in hs):
            self.complete_all(node)
        accumulator = node.args.get(effects.accumulates or "")
        if isinstance(accumulator, Value) and self.uses[accumulator] > 1:
            accumulator = None  # it is read again, so the product works on a copy
        node.onto_flight = any(accumulator in q.results for q in self.state.queue)
        for value in operands(node.args):
            if value is not accumulator:
                self.read(value, node)
        if effects.meets or _writes_loose_memory(node):
            self.complete(lambda q: q.loose, node)
        elif effects.signals:
            self.complete(lambda q: q.handed_over, node)
        self.out.append(node)
        if effects.engine is not Engine.PRODUCT:
            return
        if not node.managed:
            # Its accumulator may be in flight: only the user knows.
            node.onto_flight |= accumulator is not None and _is_unmanaged(accumulator)
            return
        tiles = [a for a in node.args.values() if isinstance(a, SharedTile)]
        acquires = {t.stage.acquire for t in tiles if t.stage is not None}
        stages = [
            h for hs in self.state.held.values() for h in hs if h.open and h.acquire in acquires
        ]
        registers: list[Value] = [
            a for a in node.args.values() if isinstance(a, RegTile) and a is not accumulator
        ]
        loose = [memory_of(t) for t in tiles if t.stage is None]
        newest = PendingProduct(set(node.results), stages, registers)
        newest.loose, newest.handed_over = bool(loose), not self.own.issuperset(loose)
        self.state.queue.append(newest)
        older = {
            h
            for s in stages
            for h in self.state.held[s.pipeline]
            if not h.open and any(h in q.stages for q in self.state.queue)
        }
        self.complete(lambda q: q is not newest and not older.isdisjoint(q.stages), node)

    def read(self, value: Value, node: Node) -> None:
        newest = self.state.last(lambda q: value in q.results)
        if newest is None:
            return
        carried = self.over_back_edge.get(value)
        if carried is not None and self.state.surely_after(newest):
            self.settled.add(carried)
            self.retry = True
        self.wait_for(newest, node)

    def complete(self, matches: Callable[[PendingProduct], bool], node: Node) -> None:
        """Wait for the newest product that matches, if there is one."""
        last = self.state.last(matches)
        if last is not None:
            self.wait_for(last, node)

    def wait_for(self, index: int, node: Node | None) -> None:
        """Complete the product at this index of the queue; products surely issued after it stay pending."""
        pending, done = self.state.finish(index)
        completes = self.in_order(v for q in done for v in q.results)
        frees = list(dict.fromkeys(r for q in done for r in q.registers))
        leaves = self.in_order(v for q in self.state.queue for v in q.results)
        self.out.append(WaitProducts(pending, completes, frees, leaves, node.loc if node else None))
        self.give_back()

    def in_order(self, values: Iterable[Value]) -> list[Value]:
        return sorted(set(values), key=self.position.__getitem__)

    def complete_all(self, node: Node | None) -> None:
        if self.state.queue:
            self.wait_for(len(self.state.queue) - 1, node)
        self.give_back()

    def give_back(self) -> None:
        """Give back, oldest first, the stages that the user has left and no unfinished product reads."""
        for pipeline, held in self.state.held.items():
            if count := self.state.free(pipeline):
                exact = all(h.sure for h in held)
                given, self.state.held[pipeline] = held[:count], held[count:]
                keep = len(self.state.held[pipeline])
                loc, fences = given[-1].acquire.loc, pipeline in self.rewritten
                self.out.append(GiveBack(pipeline, keep, count, exact, loc, fences))

    def acquire(self, node: Acquire) -> None:
        if node.side == "fill" and node.pipeline.reuse is not None:
            # The warps meet before they write memory that products of other warps may still read.
            self.complete_all(node)
        if node in self.early and any(not h.open for hs in self.state.held.values() for h in hs):
            self.complete_all(node)
        if node.side == "drain":
            held = self.state.held.setdefault(node.pipeline, [])
            while len(held) >= node.pipeline.stages and not held[0].open:
                self.complete_readers(held[0], node)
                held = self.state.held[node.pipeline]
            held.append(HeldStage(node.pipeline, node))
        self.out.append(node)

    def leave(self, node: Leave) -> None:
        if node.acquire.side == "fill":
            self.out.append(node)
            return
        held = self.state.held[node.acquire.pipeline]
        stage = next(h for h in reversed(held) if h.acquire is node.acquire and h.open)
        stage.open = False
        if self.stored_from(node.acquire):
            self.out.append(WaitStores(True, node.loc))
        if node.acquire.pipeline.stages == 1:
            self.complete_readers(stage, node)
        self.give_back()

    def complete_readers(self, stage: HeldStage, node: Node) -> None:
        self.complete(lambda q: stage in q.stages, node)

    def stored_from(self, acquire: Acquire) -> bool:
        return self.stored and any(
            isinstance(a, SharedTile) and a.stage and a.stage.acquire is acquire
            for call in _stores(Block(self.out))
            for a in call.args.values()
        )

    # -- loops ---------------------------------------------------------------------------------

    def loop(self, node: For | ForTasks) -> None:
        for c in node.carried:
            if not isinstance(c.init, Value):
                continue
            # A value that is also used elsewhere is copied to the loop's accumulator.
            if c in self.settled or self.uses[c.init] > 1 or not self.in_place(c):
                self.read(c.init, node)
        head = self.state.copy()
        for q in head.queue:
            q.results |= {c.param for c in node.carried if c.init in q.results}
        original = list(node.body.nodes)
        snapshot = list_nodes(node.body)
        outer_edges = dict(self.over_back_edge)
        while True:
            restore(snapshot)
            self.state = head.copy()
            self.over_back_edge = {**outer_edges, **{c.param: c for c in node.carried}}
            inside = set(definitions(Block(original)))
            body = self.loop_body(node, original, inside | {c.param for c in node.carried})
            back = self.state
            for q in back.queue:
                carried = {c.param for c in node.carried if c.next in q.results}
                q.results = {r for r in q.results if r not in inside} | carried
            joined = join(head, back)
            if joined.key() == head.key() or self.retry:
                break
            head = joined
        self.over_back_edge = outer_edges
        node.body.nodes[:] = body
        self.state = head.copy()
        for q in self.state.queue:
            q.results |= {c.result for c in node.carried if c.param in q.results}
        self.out.append(node)

    def loop_body(
        self, node: For | ForTasks, original: list[Node], inside: set[Value]
    ) -> list[Node]:
        outer, self.out = self.out, []
        for inner in original:
            self.node(inner)
        for c in node.carried:
            if isinstance(c.next, Value) and (c in self.settled or not self.in_place(c)):
                self.read(c.next, node)
        # The next iteration writes these registers again.
        self.complete(lambda q: not inside.isdisjoint(q.registers), node)
        done, self.out = self.out, outer
        return done

    def in_place(self, carried: Carried) -> bool:
        """Whether a carried value is accumulated in its own registers, so that no copy reads it in flight."""
        value = carried.next
        while value is not carried.param:
            source = value.source if isinstance(value, Value) and self.uses[value] == 1 else None
            match source:
                case Call() if source.op.effects.accumulates:
                    value = source.args[source.op.effects.accumulates]
                case For() | ForTasks():
                    value = next((c.init for c in source.carried if c.result is value), None)
                case _:
                    return False
        return self.uses[carried.param] == 1


def _stores(block: Block) -> Iterator[Call]:
    """The stores of the copy engine in a block."""
    return (c for c in calls(block) if c.op.effects.engine is Engine.COPY_OUT)


def _rewritten(block: Block) -> set[Pipeline]:
    """The pipelines to whose drained stages lanes write without a fence of the user before the end of their `with`."""
    found: set[Pipeline] = set()

    def visit(block: Block, written: set[Pipeline]) -> None:
        for node in block.nodes:
            before = set(written)
            for inner in blocks(node):
                side = set(before)
                visit(inner, side)
                written |= side
            if isinstance(node, Leave):
                found.update(written & {node.acquire.pipeline})
            elif isinstance(node, Call):
                if "shared" in node.op.effects.fences:
                    written.clear()
                tiles = (node.args[name] for name in node.op.effects.writes)
                stages = (t.stage.acquire for t in tiles if isinstance(t, SharedTile) and t.stage)
                written.update(s.pipeline for s in stages if s.side == "drain")

    visit(block, set())
    return found


def _writes_loose_memory(node: Call) -> bool:
    """Whether an operation writes shared memory outside pipelines."""
    written = (node.args[name] for name in node.op.effects.writes)
    return any(isinstance(tile, SharedTile) and tile.stage is None for tile in written)


def _is_unmanaged(value: Value) -> bool:
    """Whether a tile is the result of a product that the user waits for, or may be because a loop carries it."""
    source = value.source
    return source.managed is False if isinstance(source, Call) else source is not None
