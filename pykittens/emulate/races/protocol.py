"""Obligations of groups: arrivals in the right phase with all their bytes, and waits for what they started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pykittens.emulate.barriers import Barrier
from pykittens.emulate.block import BlockRun
from pykittens.emulate.finding import Finding, FindingStep, Kind
from pykittens.emulate.group import Group, uneven
from pykittens.emulate.races.clocks import BarrierClock, Clock, GroupClock
from pykittens.emulate.races.conflicts import who
from pykittens.errors import Loc
from pykittens.ir.nodes import Call, Node, walk
from pykittens.ir.stages import Acquire, Pipeline, Side
from pykittens.ir.values import Value

Findings = Iterator[Finding]

# -- products and stores -----------------------------------------------------------------------


def unwaited(group: Group, node: Node, product: Call) -> Finding:
    """A group reads the result of a product that no wait has completed."""
    name = who(group)
    return Finding(
        Kind.UNWAITED_PRODUCT,
        "the result of a product is read before a wait has completed it",
        (
            FindingStep(name, "starts the product", product.loc),
            FindingStep(name, "reads its result", _loc(node)),
        ),
        f"before its read, {name} must call pk.mma_wait(n), with n at most the number of products started after "
        "this one",
        "call pk.mma_wait() before this line, with `pending` the number of products that were started after the "
        "one that is read",
    )


def overwrites(group: Group, node: Node, value: Value, product: Call) -> Finding:
    """A group writes registers that a product may still read."""
    name = who(group)
    shown = f"the registers of `{value.name}`" if value.name else "registers"
    return Finding(
        Kind.OVERWRITTEN_IN_USE,
        f"{shown} are written while a product may still read them",
        (
            FindingStep(name, "starts a product that reads them", product.loc),
            FindingStep(name, "writes them", _loc(node)),
        ),
        f"between the two, {name} must call pk.mma_wait()",
        "call pk.mma_wait() before the next pass of the loop writes the operand again",
    )


def unfinished(group: Group) -> Findings:
    """A group has ended: its products must be complete, and its stores must have read their tiles."""
    name = who(group)
    for product in group.engines.products:
        yield Finding(
            Kind.UNWAITED_PRODUCT,
            "a product is in flight when its role ends, and nothing waits for it",
            (FindingStep(name, "starts the product", product.call.loc),),
            f"before the end of the role, {name} must call pk.mma_wait()",
            "call pk.mma_wait() before the role ends",
        )
    for store in group.engines.reading:
        yield Finding(
            Kind.OVERWRITTEN_IN_USE,
            "the block may end while an asynchronous store still reads its shared memory",
            (FindingStep(name, "starts the store", store.call.loc),),
            f"before the end of the role, {name} must call pk.store_wait()",
            "wait for the stores before the role ends",
        )


def unlanded(block: BlockRun) -> Findings:
    """A block has ended: all copies into its shared memory must have landed."""
    # In a cluster, another block may have started the copy.
    to_block = len(block.cluster) > 1
    who, what = (
        ("this line", f"starts the copy into {block.name}")
        if to_block
        else (block.name, "starts the copy")
    )
    for copy in block.copies:
        yield Finding(
            Kind.UNLANDED_COPY,
            "the block may end while a copy is still landing in its shared memory",
            (FindingStep(who, what, copy.call.loc),),
            f"a wait for the phase of {barrier_name(copy.barrier)} that the copy completes",
            "wait for every copy that is started, or do not start it in the last pass",
        )


def uneven_sides(groups: Sequence[Group], pipelines: Sequence[Pipeline]) -> Findings:
    """A block has ended: each pipeline must have been drained as often as it was filled."""
    for pipeline, filled, drained in uneven(groups, pipelines):
        sides: tuple[Side, Side] = ("fill", "drain")
        steps = [
            FindingStep(who(g), f"{side}s it {g.taken[pipeline, side]} times", node.loc)
            for side in sides
            for g in groups
            for node in walk(g.role.body)
            if isinstance(node, Acquire) and (node.pipeline, node.side) == (pipeline, side)
        ]
        yield Finding(
            Kind.BARRIER_COUNT,
            f"the pipeline `{pipeline.name}` was filled {filled} times and drained {drained} times when its "
            "block ended",
            tuple(steps),
            f"{abs(filled - drained)} drains or fills",
            "let both sides take a stage in the same loops, under the same conditions",
            operands={"made at": pipeline.loc},
        )


# -- barriers ----------------------------------------------------------------------------------


def early_arrival(
    group: Group, node: Node, barrier: Barrier, clock: BarrierClock, arrival: Clock
) -> Findings:
    """An arrival must come after the phase before it, otherwise it may count for that phase."""
    if clock.phases and not clock.is_over(-1, arrival):
        name = who(group)
        yield Finding(
            Kind.BARRIER_COUNT,
            f"an arrival on {barrier_name(barrier)} may come while the phase before is still open, and count for "
            "that phase",
            (FindingStep(name, "arrives", _loc(node)),),
            f"a wait of {name} for the phase before its arrival",
            f"{barrier_name(barrier)} completes a phase after {barrier.expected} arrivals: count every group that "
            "arrives, and let none arrive for the next phase before it knows that this phase is over",
            operands={"made at": barrier.loc},
        )


def early_bytes(
    group: Group, call: Call, barrier: Barrier, clock: BarrierClock, known: Clock
) -> Findings:
    """A tile must be sent after the phase before, otherwise its bytes may count for that phase."""
    if clock.phases and not clock.is_over(-1, known):
        name = who(group, several=True)
        yield Finding(
            Kind.BYTE_COUNT,
            f"bytes that are sent may come to {barrier_name(barrier)} while the phase before is still open, and count "
            "for that phase",
            (FindingStep(name, "sends a tile", call.loc),),
            f"a wait of {name} for something that comes after the phase before",
            "let the receiving block arrive, after its wait, at a semaphore of the sender, with "
            "semaphore.arrive(block=...), for which the sender waits before its next pk.send",
            operands={"made at": barrier.loc},
        )


def ambiguous_wait(
    group: Group, call: Call, barrier: Barrier, clock: BarrierClock, waiter: GroupClock
) -> Findings:
    """A wait knows a phase by its parity: the phase before must be over, or the wait may end two phases early."""
    if len(clock.phases) >= 2 and not clock.is_over(-2, waiter.done):
        name = who(group)
        yield Finding(
            Kind.BARRIER_COUNT,
            f"a wait for {barrier_name(barrier)} may end two phases too early, as a wait knows a phase only by its "
            "parity",
            (FindingStep(name, "waits", call.loc),),
            f"a wait of {name} for the phase before this one",
            "wait for every phase in order, or before this line for something that comes after the phase before",
            operands={"made at": barrier.loc},
        )


def missed_phase(
    barrier: Barrier, clock: BarrierClock, completion: Clock, groups: Mapping[Group, GroupClock]
) -> Findings:
    """A phase may complete only after every group that waits for the phase before has seen that one complete."""
    number = len(clock.phases) - 1
    for group, (phase, time, call) in clock.passed.items():
        if phase == number - 1 and completion[groups[group].progress] < time:
            name = who(group)
            steps = [FindingStep(name, "waits", call.loc)]
            if clock.last is not None:
                other, node = clock.last
                steps.append(FindingStep(who(other), "arrives", _loc(node)))
            yield Finding(
                Kind.BARRIER_COUNT,
                f"{barrier_name(barrier)} may complete a second phase while {name} still waits for the phase "
                "before, which it then misses",
                tuple(steps),
                f"after this wait, {name} must arrive on a barrier that the next phase waits for",
                "the next phase may complete only after every group that waits for the phase before has passed its "
                "wait: let the waiting group arrive on a semaphore that the other waits for",
                operands={"made at": barrier.loc},
            )


def unfinished_phase(barrier: Barrier, clock: BarrierClock) -> Findings:
    """The block is over: a phase that has begun and never completes is a miscount."""
    found = list(wrong_bytes(barrier, clock))
    if not found and not clock.under_way and barrier.arrived:
        yield Finding(
            Kind.BARRIER_COUNT,
            f"{barrier_name(barrier)} has {barrier.arrived} of {barrier.expected} arrivals when the block ends",
            (FindingStep(barrier_name(barrier), "is made here", barrier.loc),),
            f"{barrier.expected - barrier.arrived} more arrivals, or a semaphore that expects fewer",
            "make pk.semaphore(arrivals) count the arrivals of one phase",
        )
    yield from found


def wrong_bytes(barrier: Barrier, clock: BarrierClock) -> Findings:
    """A phase whose copies have all landed must have brought as many bytes as it expects."""
    if barrier.bytes == 0 or clock.under_way:
        return
    steps = [
        (call, FindingStep(name, what, call.loc))
        for (call, what), name in sorted(clock.steps.items(), key=lambda s: s[0][1], reverse=True)
    ]
    if shares := tuple(step for call, step in steps if call.args.get("multicast")):
        # The compiler counts the bytes of a stage, so a block of the cluster has brought no share.
        yield Finding(
            Kind.BYTE_COUNT,
            f"{barrier.name.removesuffix(' to be full')} gets shares of a tile from only some blocks of the cluster",
            shares,
            "equally many of these loads by each block of the cluster",
            "let every block of a cluster make the same passes and take the same branches: all of them must make a "
            "load with multicast=True",
            operands={"made at": barrier.loc},
        )
        return
    expected = barrier.bytes + clock.brought
    lacking = "copied" if barrier.bytes > 0 else "expected"
    yield Finding(
        Kind.BYTE_COUNT,
        f"a phase of {barrier_name(barrier)} expects {expected} bytes, and copies bring {clock.brought}",
        tuple(step for _, step in steps)
        or (FindingStep(barrier_name(barrier), "is made here", barrier.loc),),
        f"the {abs(barrier.bytes)} bytes that are {lacking} too few",
        "expect exactly the tiles that the copies of one phase fill: semaphore.expect(tile, ...) counts them",
        operands={"made at": barrier.loc},
    )


def barrier_name(barrier: Barrier) -> str:
    """What a report calls a barrier."""
    return barrier.name if "`" in barrier.name else f"`{barrier.name}`"


def _loc(node: Node) -> Loc | None:
    return getattr(node, "loc", None)
