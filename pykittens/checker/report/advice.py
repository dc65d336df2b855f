"""Advice by kind of finding, for findings without specific advice."""

from __future__ import annotations

from pykittens.emulate.finding import Kind

ADVICE = {
    Kind.UNLANDED_COPY: "before reading, take the stage with `drain`, or wait for the semaphore that the copy signals",
    Kind.OVERWRITTEN_IN_USE: "release the memory only after the wait for the product or copy that reads it",
    Kind.UNWAITED_PRODUCT: "call pk.mma_wait() before the result is read, or omit managed=False",
    Kind.RACE: "put a pipeline, a semaphore or pk.sync() between the two accesses",
    Kind.MISSING_FENCE: "call pk.fence_async() after the stores, before the sync or arrive that the reader waits for",
    Kind.DEADLOCK: "for each wait, some role must fill, drain, arrive or signal",
    Kind.BARRIER_COUNT: "fill, drain and arrive equally often on all sides, in the same loops and branches",
    Kind.BYTE_COUNT: "`expect` exactly the bytes of the copies that signal the semaphore in that phase",
    Kind.UNWRITTEN_MEMORY: "write the memory before it is read; the grid must cover the whole output",
    Kind.OUT_OF_RANGE: "keep the index inside its axis: bound the loop or grid by the extents of the tensor",
    Kind.BLOCK_CONFLICT: 'let blocks write separate tiles, combine the writes with op="add", or order blocks by flags',
    Kind.SCHEDULE_DEPENDENT: "order the groups or blocks, with pk.in_turn() or flags",
    Kind.NON_FINITE: "before these lines, subtract a maximum, guard a division by 0, or use a dtype of larger range",
    Kind.NAMED_BARRIER: "use pk.sync() or pk.semaphore(...), which are checked; the compiler takes barriers from 0 up",
    Kind.RESOURCES: "use smaller tiles, fewer stages or more groups",
    Kind.ALIASING: "pass a copy of one of the two arguments",
    Kind.MULTICAST: "omit multicast=True for a tile of the block's own",
    Kind.SPEED: "use smaller tiles, more groups or another layout of the operands",
    Kind.UNUSED: "remove it, or use it: an operand may have been forgotten",
    Kind.FAULT: "fix the line shown, or the call; the first sentence says what is wrong",
}  # fmt: skip
