"""Places the waits for matrix products and gives stages back.

A product with shared operands runs on after its instruction; its result is in flight, the stages it reads stay
held. Products finish in the order of issue, so a wait names how many may stay unfinished. The pass walks each
role once with the state below, loop bodies until the state at their head no longer changes.

 - Reading a tile in flight waits for it, with as much as possible pending behind it. Accumulating is no read.
 - A drained stage that a product still reads is given back at the first wait that covers the product. After
   the next product on the same pipeline the pass waits for the older ones, so one product is always queued.
 - At most stages - 1 stages of a pipeline stay held; and before an acquire that other roles could not serve
   while stages are held back (`order.py` finds out), they are given back first.
 - A product that reads registers made in a loop is completed at the back edge: the next pass writes them again.
 - A run-time `if` or `while`, and the end of a role, completes everything.
 - A tile in flight over a back edge may be accumulated into, or read after a wait for all; what is read after
   a wait that leaves something pending is completed at the back edge, else ptxas serialises every product.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from pykittens.ir.nodes import (
    Acquire,
    Block,
    Call,
    Carried,
    For,
    ForTasks,
    GiveBack,
    If,
    Kernel,
    Leave,
    Node,
    Pipeline,
    Role,
    WaitProducts,
    WaitStores,
    While,
    blocks,
    inputs,
    leaving,
    operands,
    walk,
)
from pykittens.ir.op import Engine
from pykittens.ir.passes.order import find_stalls
from pykittens.ir.values import RegTile, SharedTile, Value

# A wait can name no more products than this (CUTLASS, `warpgroup_wait`).
MOST_PENDING = 7


def place_waits(kernel: Kernel) -> None:
    """Put waits and releases into every role of a kernel, with as few early releases as progress allows."""
    bodies = {role: list_nodes(role.body) for role in kernel.roles}
    early: set[Acquire] = set()
    while True:
        for role, nodes in bodies.items():
            restore(nodes)
            _Placement(early).role(role)
        stalled = find_stalls(kernel) - early
        if not stalled:
            return
        early |= stalled


Snapshot = list[tuple[Block, list[Node]]]


def list_nodes(block: Block) -> Snapshot:
    """The nodes of a block and of all blocks inside, to restore them by."""
    found: Snapshot = [(block, list(block.nodes))]
    for node in block.nodes:
        for inner in blocks(node):
            found += list_nodes(inner)
    return found


def restore(snapshot: Snapshot) -> None:
    """Undo what a placement inserted."""
    for block, nodes in snapshot:
        block.nodes[:] = nodes


@dataclass(eq=False)
class _Held:
    """A stage taken by `drain` and not given back. `sure`: on every path."""

    pipeline: Pipeline
    acquire: Acquire
    open: bool = True
    sure: bool = True


@dataclass(eq=False)
class _Product:
    """A product not known to be complete: the names of its result, the stages and registers it reads."""

    results: set[Value]
    stages: list[_Held]
    registers: list[Value]
    sure: bool = True


@dataclass
class _State:
    queue: list[_Product] = field(default_factory=list)  # oldest first
    held: dict[Pipeline, list[_Held]] = field(default_factory=dict)  # oldest first

    def key(self) -> object:
        """Equal for states that lead to the same placement."""
        place = {h: (p, len(hs) - i) for p, hs in self.held.items() for i, h in enumerate(hs)}
        return (
            tuple(
                (frozenset(q.results), tuple(place[h] for h in q.stages if h in place), q.sure)
                for q in self.queue
            ),
            frozenset(
                (p, tuple((h.acquire, h.open, h.sure) for h in hs))
                for p, hs in self.held.items()
                if hs
            ),
        )

    def copy(self) -> _State:
        held = {h: replace(h) for hs in self.held.values() for h in hs}
        queue = [
            _Product(set(q.results), [held[h] for h in q.stages if h in held], q.registers, q.sure)
            for q in self.queue
        ]
        return _State(queue, {p: [held[h] for h in hs] for p, hs in self.held.items()})


def _join(a: _State, b: _State) -> _State:
    """What holds on both paths; what is only on one is not sure. Entries are aligned from the newest."""
    a, b = a.copy(), b.copy()
    same: dict[_Held, _Held] = {}
    held: dict[Pipeline, list[_Held]] = {}
    for pipeline in {**a.held, **b.held}:
        left, right = a.held.get(pipeline, []), b.held.get(pipeline, [])
        longer, shorter = (left, right) if len(left) >= len(right) else (right, left)
        extra = len(longer) - len(shorter)
        for i, h in enumerate(longer):
            if i < extra:
                h.sure = False
            else:
                other = shorter[i - extra]
                same[other] = h
                h.sure = h.sure and other.sure
                h.open = h.open or other.open
        held[pipeline] = longer
    queue: list[_Product] = []
    while a.queue and b.queue and a.queue[-1].results & b.queue[-1].results:
        p, q = a.queue.pop(), b.queue.pop()
        stages = list(dict.fromkeys(same.get(h, h) for h in p.stages + q.stages))
        registers = list(dict.fromkeys(p.registers + q.registers))
        queue.insert(0, _Product(p.results | q.results, stages, registers, p.sure and q.sure))
    for q in reversed(a.queue + b.queue):
        queue.insert(0, _Product(q.results, [same.get(h, h) for h in q.stages], q.registers, False))
    return _State(_distinct(queue), held)


def _distinct(queue: list[_Product]) -> list[_Product]:
    """Of products that are alike and may be unfinished, the newest: a wait for it covers the others."""
    kept: list[_Product] = []
    seen: set[object] = set()
    for q in reversed(queue):
        like = (frozenset(q.results), frozenset(q.stages), frozenset(q.registers))
        if q.sure or like not in seen:
            kept.insert(0, q)
        if not q.sure:
            seen.add(like)
    return kept


class _Placement:
    def __init__(self, early: set[Acquire]) -> None:
        self.early = early
        self.state = _State()
        self.out: list[Node] = []
        self.stored = False
        self.place: dict[Value, int] = {}  # sets have no order, texts must
        self.uses: Counter[Value] = Counter()
        # Carried values that must not be in flight over the back edge of their loop.
        self.settled: set[Carried] = set()
        self.over_back_edge: dict[Value, Carried] = {}
        self.retry = False

    def role(self, role: Role) -> None:
        self.uses.update(v for n in walk(role.body) for v in (*inputs(n), *leaving(n)))
        self.stored = any(
            isinstance(n, Call) and n.op.effects.engine is Engine.COPY_OUT for n in walk(role.body)
        )
        made = (v for n in walk(role.body) for v in _results(n))
        self.place = {v: i for i, v in enumerate(made)}
        while True:
            self.state, self.retry = _State(), False
            nodes = self.block(role.body.nodes, role)
            if not self.retry:
                break
        role.body.nodes[:] = nodes

    def block(self, nodes: list[Node], end: object = None) -> list[Node]:
        """The nodes with waits between them; `end` asks to complete everything at the end."""
        outer, self.out = self.out, []
        for node in nodes:
            self.node(node)
        if end is not None:
            self.complete_all(None)
            if isinstance(end, Role) and self.stored:
                self.out.append(WaitStores(False))
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
            case If():
                self.complete_all(node)
                for inner in (node.then, node.otherwise):
                    inner.nodes[:] = self.block(inner.nodes, node)
                self.out.append(node)
            case While():
                self.complete_all(node)
                for inner in (node.test, node.body):
                    inner.nodes[:] = self.block(inner.nodes, node)
                self.out.append(node)
            case For() | ForTasks():
                self.loop(node)
            case _:
                self.out.append(node)

    def call(self, node: Call) -> None:
        effects = node.op.effects
        accumulator = node.args.get(effects.accumulates or "")
        if isinstance(accumulator, Value) and self.uses[accumulator] > 1:
            accumulator = None  # it must outlive this product, so the product works on a copy
        node.onto_flight = any(accumulator in q.results for q in self.state.queue)
        for value in operands(node.args):
            if value is not accumulator:
                self.read(value, node)
        self.out.append(node)
        if effects.engine is not Engine.PRODUCT:
            return
        tiles = [a for a in node.args.values() if isinstance(a, SharedTile)]
        acquires = {t.stage.acquire for t in tiles if t.stage is not None}
        stages = [
            h for hs in self.state.held.values() for h in hs if h.open and h.acquire in acquires
        ]
        registers: list[Value] = [
            a for a in node.args.values() if isinstance(a, RegTile) and a is not accumulator
        ]
        newest = _Product(set(node.results), stages, registers)
        self.state.queue.append(newest)
        older = {
            h
            for s in stages
            for h in self.state.held[s.pipeline]
            if not h.open and any(h in q.stages for q in self.state.queue)
        }
        last = max(
            (
                i
                for i, q in enumerate(self.state.queue)
                if q is not newest and older & set(q.stages)
            ),
            default=None,
        )
        if last is not None:
            self.wait_for(last, node)

    def read(self, value: Value, node: Node) -> None:
        newest = max(
            (i for i, q in enumerate(self.state.queue) if value in q.results), default=None
        )
        if newest is None:
            return
        pending = sum(q.sure for q in self.state.queue[newest + 1 :])
        carried = self.over_back_edge.get(value)
        if carried is not None and pending:
            self.settled.add(carried)
            self.retry = True
        self.wait_for(newest, node)

    def wait_for(self, index: int, node: Node | None) -> None:
        """Complete the product at this place of the queue, leaving pending what was surely issued after it."""
        queue = self.state.queue
        pending = min(MOST_PENDING, sum(q.sure for q in queue[index + 1 :]))
        done: list[_Product] = []
        left: list[_Product] = []
        for i, q in enumerate(queue):
            (done if sum(r.sure for r in queue[i + 1 :]) >= pending else left).append(q)
        for i, q in enumerate(left):
            q.sure = q.sure and len(left) - i - 1 < pending
        self.state.queue = left
        completes = sorted({v for q in done for v in q.results}, key=self.place.__getitem__)
        frees = list(dict.fromkeys(r for q in done for r in q.registers))
        leaves = sorted({v for q in left for v in q.results}, key=self.place.__getitem__)
        self.out.append(WaitProducts(pending, completes, frees, leaves, getattr(node, "loc", None)))
        self.give_back()

    def complete_all(self, node: Node | None) -> None:
        if self.state.queue:
            self.wait_for(len(self.state.queue) - 1, node)
        self.give_back()

    def give_back(self) -> None:
        """Give back, oldest first, what has been left and is read by no unfinished product."""
        for pipeline, held in self.state.held.items():
            busy = {h for q in self.state.queue for h in q.stages}
            count = 0
            while count < len(held) and not held[count].open and held[count] not in busy:
                count += 1
            if count:
                exact = all(h.sure for h in held)
                given, self.state.held[pipeline] = held[:count], held[count:]
                keep = len(self.state.held[pipeline])
                self.out.append(GiveBack(pipeline, keep, count, exact, given[-1].acquire.loc))

    def acquire(self, node: Acquire) -> None:
        if node in self.early and any(not h.open for hs in self.state.held.values() for h in hs):
            self.complete_all(node)
        if node.side == "drain":
            held = self.state.held.setdefault(node.pipeline, [])
            while len(held) >= node.pipeline.stages and not held[0].open:
                self._complete_stage(held[0], node)
                held = self.state.held[node.pipeline]
            held.append(_Held(node.pipeline, node))
        self.out.append(node)

    def leave(self, node: Leave) -> None:
        if node.acquire.side == "fill":
            self.out.append(node)
            return
        held = self.state.held[node.acquire.pipeline]
        stage = next(h for h in reversed(held) if h.acquire is node.acquire and h.open)
        stage.open = False
        if self._stored_from(node.acquire):
            self.out.append(WaitStores(True, node.loc))
        if node.acquire.pipeline.stages == 1:
            self._complete_stage(stage, node)
        self.give_back()

    def _complete_stage(self, stage: _Held, node: Node) -> None:
        last = max((i for i, q in enumerate(self.state.queue) if stage in q.stages), default=None)
        if last is not None:
            self.wait_for(last, node)

    def _stored_from(self, acquire: Acquire) -> bool:
        return self.stored and any(
            isinstance(n, Call)
            and n.op.effects.engine is Engine.COPY_OUT
            and any(
                isinstance(a, SharedTile) and a.stage and a.stage.acquire is acquire
                for a in n.args.values()
            )
            for n in walk(Block(self.out))
        )

    # -- loops ---------------------------------------------------------------------------------

    def loop(self, node: For | ForTasks) -> None:
        for c in node.carried:
            if c in self.settled and isinstance(c.init, Value):
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
            inside = {r for n in walk(Block(original)) for r in _results(n)}
            body = self.loop_body(node, original, inside | {c.param for c in node.carried})
            back = self.state
            for q in back.queue:
                carried = {c.param for c in node.carried if c.next in q.results}
                q.results = {r for r in q.results if r not in inside} | carried
            joined = _join(head, back)
            if joined.key() == head.key() or self.retry:
                break
            head = joined
        self.over_back_edge = outer_edges
        node.body.nodes[:] = body
        self.state = head.copy()
        for q in self.state.queue:
            q.results |= {c.result for c in node.carried if c.param in q.results}
        self.out.append(node)

    def loop_body(self, node: For | ForTasks, original: list[Node], made: set[Value]) -> list[Node]:
        outer, self.out = self.out, []
        for inner in original:
            self.node(inner)
        for c in node.carried:
            if c in self.settled and isinstance(c.next, Value):
                self.read(c.next, node)
        # The next pass makes these registers anew.
        reading = [i for i, q in enumerate(self.state.queue) if not made.isdisjoint(q.registers)]
        if reading:
            self.wait_for(reading[-1], node)
        done, self.out = self.out, outer
        return done


def _results(node: Node) -> list[Value]:
    match node:
        case Call():
            return node.results
        case For() | ForTasks() | While():
            return [v for c in node.carried for v in (c.param, c.result)]
        case If():
            return [m.result for m in node.merged]
        case _:
            return []
