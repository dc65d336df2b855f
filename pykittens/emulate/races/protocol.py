"""Obligations of groups: arrivals in the right phase with all their bytes, and waits for what they started."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pykittens.emulate.barriers import Barrier
from pykittens.emulate.block import BlockRun
from pykittens.emulate.finding import Finding, Kind, Step
from pykittens.emulate.group import Group, uneven
from pykittens.emulate.races.clocks import TIME, BarrierClock, Clock, GroupClock
from pykittens.emulate.races.conflicts import who
from pykittens.errors import Loc
from pykittens.ir.nodes import Acquire, Call, Node, Pipeline, Side, walk
from pykittens.ir.values import Value


class Protocol:
    """Looks at each arrival, at each phase that ends, and at what is left when groups and blocks end."""

    def __init__(self, report: Callable[[Finding], None]) -> None:
        self.report = report

    # -- products and stores -------------------------------------------------------------------

    def unwaited(self, group: Group, node: Node, product: Call) -> None:
        """A group reads the result of a product that no wait has completed."""
        name = who(group)
        self.report(
            Finding(
                Kind.UNWAITED_PRODUCT,
                "the result of a product is read before a wait has completed it",
                (
                    Step(name, "starts the product", product.loc),
                    Step(name, "reads its result", _loc(node)),
                ),
                f"pk.mma_wait(n) of {name} that leaves at most the products started behind this one",
                "call pk.mma_wait() before this line, with `pending` the number of products that were started "
                "behind the one that is read",
            )
        )

    def overwrites(self, group: Group, node: Node, value: Value, product: Call) -> None:
        """A group makes a value anew whose registers a product still reads."""
        name = who(group)
        shown = f"the registers of `{value.name}`" if value.name else "registers"
        self.report(
            Finding(
                Kind.OVERWRITTEN_IN_USE,
                f"{shown} are written while a product may still read them",
                (
                    Step(name, "starts a product that reads them", product.loc),
                    Step(name, "writes them", _loc(node)),
                ),
                f"pk.mma_wait() of {name} between the two",
                "call pk.mma_wait() before the next pass of the loop writes the operand again",
            )
        )

    def left_unfinished(self, group: Group) -> None:
        """A group has ended: what it started must be finished."""
        name = who(group)
        for product in group.engines.products:
            self.report(
                Finding(
                    Kind.UNWAITED_PRODUCT,
                    "a product is in flight when its role ends, and nobody waits for it",
                    (Step(name, "starts the product", product.call.loc),),
                    f"pk.mma_wait() of {name} before the end of the role",
                    "call pk.mma_wait() before the role ends",
                )
            )
        for store in group.engines.reading:
            self.report(
                Finding(
                    Kind.OVERWRITTEN_IN_USE,
                    "the block may end while an asynchronous store still reads its shared memory",
                    (Step(name, "starts the store", store.call.loc),),
                    f"pk.store_wait() of {name} before the end of the role",
                    "wait for the stores before the role ends",
                )
            )

    def left_under_way(self, block: BlockRun) -> None:
        """A block has ended: no copy may still be landing in its shared memory."""
        for copy in block.copies:
            self.report(
                Finding(
                    Kind.UNLANDED_COPY,
                    "the block may end while a copy is still landing in its shared memory",
                    (Step(f"block {block.number}", "starts the copy", copy.call.loc),),
                    f"a wait for the phase of {barrier_name(copy.barrier)} that the copy completes",
                    "wait for every copy that is started, or do not start it in the last pass",
                )
            )

    def uneven(self, groups: Sequence[Group], pipelines: Sequence[Pipeline]) -> None:
        """A block has ended: of every pipeline as many stages must have been drained as filled."""
        for pipeline, filled, drained in uneven(groups, pipelines):
            sides: tuple[Side, Side] = ("fill", "drain")
            steps = [
                Step(who(g), f"{side}s it {g.turns[pipeline, side]} times", node.loc)
                for side in sides
                for g in groups
                for node in walk(g.role.body)
                if isinstance(node, Acquire) and (node.pipeline, node.side) == (pipeline, side)
            ]
            self.report(
                Finding(
                    Kind.BARRIER_COUNT,
                    f"the pipeline `{pipeline.name}` was filled {filled} times and drained {drained} times when its "
                    "block ended",
                    tuple(steps),
                    f"{abs(filled - drained)} drains or fills",
                    "let both sides take a stage in the same loops, under the same conditions",
                    operands={"made at": pipeline.loc},
                )
            )

    # -- barriers ------------------------------------------------------------------------------

    def arrives(
        self, group: Group, node: Node, barrier: Barrier, clock: BarrierClock, told: Clock
    ) -> None:
        """An arrival must come after the phase before it, else it may count for that."""
        if not clock.phases or bool((told >= clock.phases[-1]).all()):
            return
        name = who(group)
        self.report(
            Finding(
                Kind.BARRIER_COUNT,
                f"an arrival at {barrier_name(barrier)} may come while the last phase is still open, and count for "
                "that one",
                (Step(name, "arrives", _loc(node)),),
                f"a wait of {name} for the phase before its arrival",
                f"{barrier_name(barrier)} completes a phase after {barrier.expected} arrivals: count every group that "
                "arrives, and let none arrive for the next phase before it knows that this one is over",
                operands={"made at": barrier.loc},
            )
        )

    def passes(
        self, group: Group, call: Call, barrier: Barrier, clock: BarrierClock, waiter: GroupClock
    ) -> None:
        """A wait knows a phase by its parity: the phase before must be over, else it may take one two earlier."""
        if len(clock.phases) < 2 or bool((waiter.done >= clock.phases[-2]).all()):
            return
        name = who(group)
        self.report(
            Finding(
                Kind.BARRIER_COUNT,
                f"a wait for {barrier_name(barrier)} may go on two phases too early, as a wait knows a phase by its "
                "parity alone",
                (Step(name, "waits", call.loc),),
                f"a wait of {name} for the phase before this one",
                "wait for every phase in turn, or before this line for something that comes after the phase before",
                operands={"made at": barrier.loc},
            )
        )

    def completes(
        self,
        barrier: Barrier,
        clock: BarrierClock,
        told: Clock,
        groups: Mapping[Group, GroupClock],
    ) -> None:
        """A phase may be over only when all who wait for the one before have seen that."""
        number = len(clock.phases) - 1
        for group, (phase, time, call) in clock.passed.items():
            if phase == number - 1 and told[groups[group].first + TIME] < time:
                name = who(group)
                arrival = () if clock.last is None else (_arrival(*clock.last),)
                self.report(
                    Finding(
                        Kind.BARRIER_COUNT,
                        f"{barrier_name(barrier)} may complete a second phase while {name} still waits for the one "
                        "before, which it then misses",
                        (Step(name, "waits", call.loc), *arrival),
                        f"an arrival of {name} behind this wait, at something that the next phase waits for",
                        "a phase may begin to complete only when everyone who waits for the one before has gone on: "
                        "let the waiting group arrive at a semaphore that the other waits for",
                        operands={"made at": barrier.loc},
                    )
                )

    def left_over(self, barrier: Barrier, clock: BarrierClock) -> None:
        """The block is over: a phase that has begun and never ends is a miscount."""
        if self.wrong_bytes(barrier, clock) or clock.under_way:
            return
        if barrier.arrived:
            self.report(
                Finding(
                    Kind.BARRIER_COUNT,
                    f"{barrier_name(barrier)} is left with {barrier.arrived} of {barrier.expected} arrivals when the "
                    "block ends",
                    (Step(barrier_name(barrier), "is made here", barrier.loc),),
                    f"{barrier.expected - barrier.arrived} more arrivals, or a count of another number",
                    "make pk.semaphore(arrivals) count what arrives in one phase",
                )
            )

    def wrong_bytes(self, barrier: Barrier, clock: BarrierClock) -> bool:
        """Tell of a phase whose copies have all landed and brought other bytes than it expects."""
        if barrier.bytes == 0 or clock.under_way:
            return False
        expected = barrier.bytes + clock.brought
        steps = [
            Step(name, what, call.loc)
            for (call, what), name in sorted(
                clock.steps.items(), key=lambda s: s[0][1], reverse=True
            )
        ]
        shares = [
            Step(name, what, call.loc)
            for (call, what), name in clock.steps.items()
            if call.args.get("multicast")
        ]
        if shares:
            self.lacks_a_share(barrier, shares)
            return True
        lacking = "copied" if barrier.bytes > 0 else "expected"
        self.report(
            Finding(
                Kind.BYTE_COUNT,
                f"a phase of {barrier_name(barrier)} expects {expected} bytes, and copies bring {clock.brought}",
                tuple(steps) or (Step(barrier_name(barrier), "is made here", barrier.loc),),
                f"the {abs(barrier.bytes)} bytes that are {lacking} too few",
                "expect exactly the tiles that the copies of one phase fill: semaphore.expect(tile, ...) counts them",
                operands={"made at": barrier.loc},
            )
        )
        return True

    def lacks_a_share(self, barrier: Barrier, shares: Sequence[Step]) -> None:
        """The compiler counts the bytes of a stage, so it is a block of the cluster that has brought none."""
        stage = barrier.name.removesuffix(" to be full")
        self.report(
            Finding(
                Kind.BYTE_COUNT,
                f"{stage} gets shares of a tile from some blocks of the cluster only",
                tuple(shares),
                "as many of these loads by one block of the cluster as by another",
                "let every block of a cluster make the same passes and take the same branches: a load with "
                "multicast=True is said by all of them",
                operands={"made at": barrier.loc},
            )
        )


def _arrival(group: Group, node: Node) -> Step:
    return Step(who(group), "arrives", _loc(node))


def barrier_name(barrier: Barrier) -> str:
    """What a report calls a barrier."""
    return barrier.name if "`" in barrier.name else f"`{barrier.name}`"


def _loc(node: Node) -> Loc | None:
    return getattr(node, "loc", None)
