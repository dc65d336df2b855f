"""Unordered accesses to the same memory: the kind of fault, and what is missing between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pykittens.emulate.finding import Finding, FindingStep, Kind, Level
from pykittens.emulate.group import Group, name_in_launch
from pykittens.emulate.races.shadow import AccessRecord
from pykittens.emulate.watch import Access
from pykittens.ir.op import Engine

Names = tuple[str, str]
Steps = tuple[FindingStep, ...]

_PHASE = (
    "before this line, wait for the phase that the copy completes; the i-th use of one of n semaphores is phase "
    "i // n"
)
_FREED = (
    "let the group that is done with the memory arrive at a semaphore of the block that writes next, with "
    "semaphore.arrive(block=...), and let that block wait for the phase before it writes"
)
# Engines that bring what a phase of a barrier waits for.
_BRING = (Engine.COPY_IN, Engine.SEND)
_DOES = {
    (None, Access.READ): "reads it",
    (None, Access.WRITE): "writes it",
    (None, Access.COMBINE): "combines with it",
    (Engine.COPY_IN, Access.READ): "starts a copy from it",
    (Engine.COPY_IN, Access.WRITE): "starts a copy into it",
    (Engine.COPY_OUT, Access.READ): "starts a store that reads it",
    (Engine.COPY_OUT, Access.WRITE): "starts a store into it",
    (Engine.COPY_OUT, Access.COMBINE): "starts a store that combines with it",
    (Engine.PRODUCT, Access.READ): "starts a product that reads it",
    (Engine.SEND, Access.WRITE): "sends a tile to it",
}


def who(group: Group, several: bool = False) -> str:
    """What a report calls a group, with the number of its block if there are several blocks."""
    if not several:
        return "the block" if group.name == "block" else group.name
    return name_in_launch(group)


def does(record: AccessRecord) -> str:
    """What an access does."""
    if record.of_a_flag and record.call.op.effects.acquires:
        return "reads it atomically" if record.access.reads else "changes it atomically"
    if record.of_a_flag:
        return "waits for it" if record.access.reads else "signals it"
    return _DOES[record.engine, record.access]


def conflict(
    memory: str,
    is_tensor: bool,
    old: AccessRecord,
    new: AccessRecord,
    ordered: bool,
    fenced: bool = True,
) -> Finding | None:
    """The finding for two conflicting accesses, None if they do no harm. Ordered accesses lack a fence.

    fenced: whether pk.fence_async covers the memory.
    """
    apart = old.group.block is not new.group.block
    names = who(old.group, apart), who(new.group, apart)
    found = _conflict(memory, is_tensor, old, new, ordered, fenced, names)
    if found is None or is_tensor or ordered:
        return found
    if Engine.SEND in (old.engine, new.engine):
        return found if found.kind is Kind.UNLANDED_COPY else replace(found, help=_FREED)
    if not apart:
        return found
    return replace(
        found,
        missing=f"after its access, {names[0]} must release a stage that {names[1]} waits for",
        help="in a cluster only stages of pipelines order the accesses of several blocks: let both accesses be to "
        "stages of one pipeline, without `reuse`, or copy without multicast=True",
    )


def _conflict(
    memory: str,
    is_tensor: bool,
    old: AccessRecord,
    new: AccessRecord,
    ordered: bool,
    fenced: bool,
    names: Names,
) -> Finding | None:
    apart = old.group.block is not new.group.block
    steps = (
        FindingStep(names[0], does(old), old.call.loc),
        FindingStep(names[1], does(new), new.call.loc),
    )
    if ordered:
        return _unfenced(memory, is_tensor, old, new, fenced, names, steps)
    tagged_twice = old.access is new.access is Access.WRITE
    if old.is_atomic and new.is_atomic and (old.of_a_flag or new.of_a_flag) and not tagged_twice:
        return None
    if old.access is new.access is Access.COMBINE:
        return _sums(memory, old, steps)
    if _is_one_scatter(old, new):
        return _of_one_index(memory, "rows", "tile", "row", steps)
    if is_tensor and apart:
        if old.of_a_flag or new.of_a_flag:
            return _beside_a_flag(memory, old, new, steps)
        return _between_blocks(memory, old, names, steps)
    if old.engine in _BRING and not old.access.reads:
        found = _unlanded if new.access.reads else _landing
        return found(memory, old, new, names, steps)
    if old.engine in (Engine.PRODUCT, Engine.COPY_OUT) and old.access.reads:
        return _overwritten(memory, old, new, names, steps)
    return _race(memory, old, new, fenced, names, steps)


def _unfenced(
    memory: str,
    is_tensor: bool,
    old: AccessRecord,
    new: AccessRecord,
    fenced: bool,
    names: Names,
    steps: Steps,
) -> Finding:
    by, what = "is stored by lanes", "stored"
    if old.engine is Engine.SEND:
        by, what = "is sent by a block", "sent"
        missing = f"after its wait for the tile, {names[1]} must call pk.fence_async()"
        help = f"call pk.fence_async() in {names[1]} after the wait and before the engine starts"
    elif not fenced:
        missing = (
            "a fence, and this kernel has none for tensors: pk.fence_async() covers them only if the copy engine "
            "fetches from a tensor that the kernel writes"
        )
        help = (
            "write these elements in one way: with pk.store, or with pk.store_async and a pk.store_wait() between the "
            "stores"
        )
    else:
        alone = old.group is new.group
        until = "after which the engine starts" if alone else f"that {names[1]} waits for"
        before = f"the {'pk.sync()' if alone else 'sync or arrival'} {until}"
        missing = f"after the store, {names[0]} must call pk.fence_async(), before {before}"
        help = (
            "call pk.fence_async() after the store and pk.sync() after the fence: a fence covers the stores of its warp"
            + ("" if is_tensor else "; pk.publish stores, fences and syncs in one call")
            if alone
            else f"call pk.fence_async() in {names[0]} after the store, before the .arrive() that {names[1]} waits for"
        )
    then = (
        f"read by an engine, which may not see the {what} values"
        if new.access.reads
        else "written by an engine, and either write may come last"
    )
    return Finding(Kind.MISSING_FENCE, f"{memory} {by} and then {then}", steps, missing, help)


def _sums(memory: str, old: AccessRecord, steps: Steps) -> Finding | None:
    """Sums of floats depend on the order of their terms; integers, maxima and minima do not."""
    tensor = old.call.args["dst"].dtype
    if old.call.args["op"] != "add" or not tensor.is_float:
        return None
    return Finding(
        Kind.SCHEDULE_DEPENDENT,
        f"{memory} adds values of {tensor} in the order of the stores, and nothing fixes that order",
        steps,
        "an order between the two stores",
        "store partial sums to separate tensors and add them in a fixed order, or let the blocks wait for one "
        "another with flags; if the last digits may differ, ignore this",
        Level.WARNING,
    )


def _is_one_scatter(old: AccessRecord, new: AccessRecord) -> bool:
    """Whether two rows of one tile are written to one row of a tensor."""
    same = old.group is new.group and old.call is new.call and old.value == new.value
    return same and old.by_row and new.by_row


def several_values(memory: str, record: AccessRecord) -> Iterator[Finding]:
    """The finding for different values that one operation stores to one element or, if they are floats, adds to it."""
    step = FindingStep(who(record.group), does(record), record.call.loc)
    if record.access is not Access.COMBINE:
        yield _of_one_index(memory, "values", "vector", "element", (step,))
    elif (sums := _sums(memory, record, (step,))) is not None:
        yield sums


def _of_one_index(memory: str, values: str, of: str, place: str, steps: Steps) -> Finding:
    return Finding(
        Kind.SCHEDULE_DEPENDENT,
        f"{values} of one {of} are written to the same {place} of {memory}, and any of them may come last",
        steps[:1],
        "",
        f'let every index occur only once, or combine the {values} with op="add", "max" or "min"; if such {values} are '
        "equal, ignore this",
        Level.WARNING,
    )


def _between_blocks(memory: str, old: AccessRecord, names: Names, steps: Steps) -> Finding:
    over = "pk.store_wait()" if old.engine is Engine.COPY_OUT else "its access"
    both = all(s.what.startswith(("writes", "starts a store")) for s in steps)
    return Finding(
        Kind.BLOCK_CONFLICT,
        f"{memory} is written by two blocks"
        if both
        else f"{memory} is written by one block and read by another",
        steps,
        f"after {over}, {names[0]} must signal a flag that {names[1]} waits for",
        "give every block its own tiles, or pk.signal a flag after the first access and pk.wait for it before the "
        "second (an asynchronous store is done after pk.store_wait)",
    )


def _beside_a_flag(memory: str, old: AccessRecord, new: AccessRecord, steps: Steps) -> Finding:
    """Ordinary accesses to a flag: a read may find any of its values, and a write is no signal."""
    reads = (old if new.of_a_flag else new).access.reads
    flag, ordinary = steps if old.of_a_flag else reversed(steps)
    return Finding(
        Kind.SCHEDULE_DEPENDENT if reads else Kind.BLOCK_CONFLICT,
        f"{memory} is read while blocks still signal it, so the value depends on their order"
        if reads
        else f"{memory} is a flag, and a block writes it as if it were data",
        (flag, ordinary),  # one finding, whichever came first in this run
        f"an order between the two: flags do not order a {'pk.load' if reads else 'pk.store'} of the flag itself",
        "read a flag only after a pk.wait for its last value"
        if reads
        else "set flags with pk.signal, which makes earlier writes visible",
    )


def _unlanded(
    memory: str, old: AccessRecord, new: AccessRecord, names: Names, steps: Steps
) -> Finding:
    return Finding(
        Kind.UNLANDED_COPY,
        f"{memory} is read before the copy into it is known to have landed",
        steps,
        f"a wait of {names[1]} for the phase of {_barrier(old)} that the copy completes",
        _PHASE,
    )


def _overwritten(
    memory: str, old: AccessRecord, new: AccessRecord, names: Names, steps: Steps
) -> Finding:
    product = old.engine is Engine.PRODUCT
    what = "a product" if product else "an asynchronous store"
    call = "pk.mma_wait()" if product else "pk.store_wait(read=True)"
    return Finding(
        Kind.OVERWRITTEN_IN_USE,
        f"{memory} is written while {what} may still read it",
        steps,
        f"{names[0]} must call {call}; {_edge(old, new, names, 'the wait')}",
        f"call {call} before the memory is released: before the .arrive() that frees it, or the next store into it",
    )


def _landing(
    memory: str, old: AccessRecord, new: AccessRecord, names: Names, steps: Steps
) -> Finding:
    return Finding(
        Kind.OVERWRITTEN_IN_USE,
        f"{memory} is written while an earlier copy may still land in it, before its data have been used",
        steps,
        f"{names[1]} must wait until the first copy has landed (the phase of {_barrier(old)}) and its data have "
        "been read",
        f"{_PHASE}, and read the data first"
        if old.group is new.group and new.engine is None
        else "wait until the memory is free: let the group that reads it arrive on a semaphore when it is done",
    )


def _race(
    memory: str, old: AccessRecord, new: AccessRecord, fenced: bool, names: Names, steps: Steps
) -> Finding:
    first, second = past(old), past(new)
    how = f"{first} twice" if first == second else f"{first} and {second}"
    return Finding(
        Kind.RACE,
        f"{memory} is {how}, and nothing orders the two accesses",
        steps,
        _ordering(old, new, names),
        _way(old, new, fenced),
    )


def _ordering(old: AccessRecord, new: AccessRecord, names: Names) -> str:
    """What must happen between two accesses of one block."""
    if old.engine is Engine.COPY_IN:
        return f"{names[1]} must wait for the phase of {_barrier(old)} that the copy completes"
    if old.engine is not Engine.COPY_OUT:
        return _edge(old, new, names)
    if old.group is new.group:
        return f"between the two, {names[0]} must call pk.store_wait()"
    return f"{names[0]} must call pk.store_wait(); {_edge(old, new, names, 'the wait')}"


def _way(old: AccessRecord, new: AccessRecord, fenced: bool) -> str:
    """How to order two accesses of one block."""
    alone = old.group is new.group
    if old.engine is Engine.COPY_IN:
        return _PHASE
    if old.engine is Engine.COPY_OUT:
        how = "call pk.store_wait() between the two, without read=True: it waits until the tensor is written"
        return how if alone else f"{how}; after it, arrive on a semaphore that the second waits for"
    needs_fence = new.engine is not None and not old.access.reads and fenced
    fence = "call pk.fence_async() and then " if needs_fence else ""
    if alone:
        return (
            f"{fence or 'call '}pk.sync() between the two: the warps of a group run independently"
        )
    return (
        f"let the first {fence}arrive on a semaphore after its access, and the second wait for that phase before its "
        "own"
    )


def _edge(old: AccessRecord, new: AccessRecord, names: Names, after: str = "its access") -> str:
    if old.group is new.group:
        return f"after {after}, {names[0]} must call pk.sync(), so that all its warps are done"
    return f"after {after}, {names[0]} must arrive on a barrier that {names[1]} waits on"


def _barrier(record: AccessRecord) -> str:
    """The barrier that a copy completes."""
    return getattr(record.barrier, "name", "its barrier")


def past(record: AccessRecord) -> str:
    """What an access has done to the memory: "read", "written" or "combined with"."""
    if record.access.reads:
        return "read"
    return "written" if record.access is Access.WRITE else "combined with"
