"""Advice by kind of finding, for findings that carry none of their own."""

from __future__ import annotations

from pykittens.emulate.finding import Kind

ADVICE = {
    Kind.UNLANDED_COPY: "before reading, take the stage with `drain`, or wait for the semaphore that the copy signals",
    Kind.OVERWRITTEN_IN_USE: "give the memory back only after the wait that covers the product or copy that reads it",
    Kind.UNWAITED_PRODUCT: "say pk.mma_wait() before the result is read, or leave out managed=False",
    Kind.RACE: "put a pipeline, a semaphore or pk.sync() between the two accesses",
    Kind.MISSING_FENCE: "say pk.fence_async() after the stores and before the sync or arrive that the reader waits for",
    Kind.DEADLOCK: "let some role fill, drain, arrive at or signal what the others wait for, as often as they wait",
    Kind.BARRIER_COUNT: "let all sides fill, drain and arrive equally often, in the same loops and branches",
    Kind.BYTE_COUNT: "let `expect` ask for the bytes of exactly those copies that signal the semaphore in that phase",
    Kind.UNWRITTEN_MEMORY: "write the memory before it is read, and let the grid cover the whole output",
    Kind.OUT_OF_RANGE: "keep the index inside its axis, with the extents of the tensor as bounds of the loop or grid",
    Kind.BLOCK_CONFLICT: 'let each block write tiles of its own, combine them with op="add", or order blocks by flags',
    Kind.SCHEDULE_DEPENDENT: "put the groups or blocks in an order, with pk.in_turn() or flags",
    Kind.NAMED_BARRIER: "use pk.sync() or pk.semaphore(...), which are checked; the compiler takes barriers from 0 up",
    Kind.RESOURCES: "take smaller tiles, fewer stages or more groups",
    Kind.ALIASING: "pass a copy of one of the two arguments",
    Kind.FAULT: "mend the line that is shown, or the call: the first sentence says what is wrong with it",
}  # fmt: skip
