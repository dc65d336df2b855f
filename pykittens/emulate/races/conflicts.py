"""Unordered accesses to the same memory: the kind of fault, and what is missing between them."""

from __future__ import annotations

from pykittens.emulate.barriers import Barrier
from pykittens.emulate.finding import Finding, Kind, Level, Step
from pykittens.emulate.group import Group, name_in_launch
from pykittens.emulate.races.shadow import Record
from pykittens.emulate.watch import Access
from pykittens.ir.op import Engine

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
}


def who(group: Group, several: bool = False) -> str:
    """What a report calls a group, with the number of its block where there are several."""
    if not several:
        return "the block" if group.name == "block" else group.name
    return name_in_launch(group)


def does(record: Record) -> str:
    """What an access does, in words."""
    if record.of_a_flag:
        return "waits for it" if record.access.reads else "signals it"
    return _DOES[record.engine, record.access]


def conflict(
    memory: str, is_tensor: bool, old: Record, new: Record, ordered: bool
) -> Finding | None:
    """The finding for two accesses that conflict; those in order lack a fence. None where it does no harm."""
    apart = old.group.block is not new.group.block
    names = who(old.group, apart), who(new.group, apart)
    steps = (Step(names[0], does(old), old.call.loc), Step(names[1], does(new), new.call.loc))
    if ordered:
        return _unfenced(memory, new, names, steps)
    if old.is_atomic and new.is_atomic and (old.of_a_flag or new.of_a_flag):
        return None
    if old.access is new.access is Access.COMBINE:
        return _sums(memory, old, steps)
    if _is_one_scatter(old, new):
        return _rows_of_one_index(memory, steps)
    if is_tensor and apart:
        return _between_blocks(memory, old, new, names, steps)
    if old.engine is Engine.COPY_IN and not old.access.reads and new.access.reads:
        return _unlanded(memory, old, names, steps)
    if old.engine in (Engine.PRODUCT, Engine.COPY_OUT) and old.access.reads:
        return _overwritten(memory, old, new, names, steps)
    if old.engine is Engine.COPY_IN and not old.access.reads:
        return _landing(memory, old, new, names, steps)
    return _race(memory, old, new, names, steps)


Names = tuple[str, str]
Steps = tuple[Step, ...]


def _unfenced(memory: str, new: Record, names: Names, steps: Steps) -> Finding:
    return Finding(
        Kind.MISSING_FENCE,
        f"{memory} is stored by lanes and used by an engine, which need not see what they stored"
        if new.access.reads
        else f"{memory} is stored by lanes and then written by an engine, and either may come last",
        steps,
        f"pk.fence_async() of {names[0]} behind the store and before the sync or arrival that {names[1]} starts behind",
        "call pk.fence_async() after the store, before the pk.sync() or .arrive() behind which the engine starts",
    )


def _sums(memory: str, old: Record, steps: Steps) -> Finding | None:
    """Sums of floats depend on the order of their terms; integers, maxima and minima do not."""
    tensor = old.call.args["dst"].dtype
    if old.call.args["op"] != "add" or not tensor.is_float:
        return None
    return Finding(
        Kind.SCHEDULE_DEPENDENT,
        f"{memory} sums {tensor} in the order in which the stores come, which is open",
        steps,
        "an order between the two stores",
        "store parts to tensors of their own and add them in a fixed order, or have the blocks wait for one "
        "another with flags; if the last places may differ, ignore this",
        Level.WARNING,
    )


def _is_one_scatter(old: Record, new: Record) -> bool:
    """Whether two rows of one tile are written to one row of a tensor."""
    same = old.group is new.group and old.call is new.call and old.value == new.value
    return same and old.by_row and new.by_row


def _rows_of_one_index(memory: str, steps: Steps) -> Finding:
    return Finding(
        Kind.SCHEDULE_DEPENDENT,
        f"rows of one tile go to the same row of {memory}, and which of them wins is open",
        steps[:1],
        "",
        'let every index occur once, or combine the rows with op="add", "max" or "min"; if such rows are equal, '
        "ignore this",
        Level.WARNING,
    )


def _between_blocks(memory: str, old: Record, new: Record, names: Names, steps: Steps) -> Finding:
    if old.of_a_flag or new.of_a_flag:
        return _beside_a_flag(memory, old, new, steps)
    both = all(s.what.startswith(("writes", "starts a store")) for s in steps)
    return Finding(
        Kind.BLOCK_CONFLICT,
        f"{memory} is written by two blocks"
        if both
        else f"{memory} is written by one block and read by another",
        steps,
        f"{names[1]} does not wait for a flag that {names[0]} signals when it is done",
        "give every block tiles of its own, or pk.signal a flag after the one and pk.wait for it before the other "
        "(an asynchronous store is done after pk.store_wait)",
    )


def _beside_a_flag(memory: str, old: Record, new: Record, steps: Steps) -> Finding:
    """Ordinary accesses to a flag: a read finds any of its values, a write is no signal."""
    reads = (old if new.of_a_flag else new).access.reads
    flag, ordinary = steps if old.of_a_flag else reversed(steps)
    return Finding(
        Kind.SCHEDULE_DEPENDENT if reads else Kind.BLOCK_CONFLICT,
        f"{memory} is read while blocks still signal it, so its value depends on who comes first"
        if reads
        else f"{memory} is a flag, and a block writes it as if it were data",
        (flag, ordinary),  # one finding, whichever of them happened to come first
        f"an order between the two, as {'pk.load' if reads else 'pk.store'} takes no part in that of flags",
        "read a flag only behind a pk.wait for the last value that it gets"
        if reads
        else "set flags with pk.signal, which makes what was written before it seen",
    )


def _unlanded(memory: str, old: Record, names: Names, steps: Steps) -> Finding:
    barrier = old.barrier
    awaited = barrier.name if isinstance(barrier, Barrier) else "its barrier"
    return Finding(
        Kind.UNLANDED_COPY,
        f"{memory} is read before the copy into it is known to have landed",
        steps,
        f"a wait of {names[1]} for the phase of {awaited} that the copy completes",
        "wait for the phase that the copy completes before this line; the i-th use of one of n semaphores is phase "
        "i // n",
    )


def _overwritten(memory: str, old: Record, new: Record, names: Names, steps: Steps) -> Finding:
    product = old.engine is Engine.PRODUCT
    what = "a product" if product else "an asynchronous store"
    word = "pk.mma_wait()" if product else "pk.store_wait(read=True)"
    return Finding(
        Kind.OVERWRITTEN_IN_USE,
        f"{memory} is written while {what} may still read it",
        steps,
        f"{word} of {names[0]}, and then {_edge(old, new, names)}",
        f"call {word} before the memory is given up: before the .arrive() that frees it, or the next store into it",
    )


def _landing(memory: str, old: Record, new: Record, names: Names, steps: Steps) -> Finding:
    awaited = old.barrier.name if isinstance(old.barrier, Barrier) else "its barrier"
    return Finding(
        Kind.OVERWRITTEN_IN_USE,
        f"{memory} is written while an earlier copy may still land in it, and before it has been used",
        steps,
        f"a wait of {names[1]} for who reads what the first copy brings, behind the phase of {awaited}",
        "wait until the memory has been given back: who reads it arrives at a semaphore when it is done with it",
    )


def _race(memory: str, old: Record, new: Record, names: Names, steps: Steps) -> Finding:
    if old.group is new.group:
        way = "call pk.sync() between the two: the warps of a group run on their own"
    else:
        way = "let the first arrive at a semaphore after its access and the second wait for that phase before its own"
    return Finding(
        Kind.RACE,
        f"{memory} is {_both(old, new)}, and nothing says which comes first",
        steps,
        _edge(old, new, names),
        way,
    )


def _edge(old: Record, new: Record, names: Names) -> str:
    if old.group is new.group:
        return f"pk.sync() of {names[0]}, so that all its warps are done with it"
    return f"an arrival of {names[0]} behind its access that {names[1]} waits for"


def _both(old: Record, new: Record) -> str:
    first, second = past(old), past(new)
    return f"{first} twice" if first == second else f"{first} and {second}"


def past(record: Record) -> str:
    """What has been done to the memory, in a word."""
    if record.access.reads:
        return "read"
    return "written" if record.access is Access.WRITE else "combined with"
