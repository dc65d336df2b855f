"""Flags between blocks: stores that release earlier writes, and loads that acquire them.

Source: PTX ISA, "Memory Consistency Model" and "fence.proxy".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

from pykittens.ir.nodes import Call
from pykittens.ir.values import Global, TileRef, Value
from pykittens.targets.address import TileAddress
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.sync import meet
from pykittens.targets.debug_sites import check_element, element_text, literal, wait_arguments
from pykittens.targets.index import Index
from pykittens.targets.simt.memory import (
    Chunks,
    address_of,
    chunks,
    each_of,
    extents,
    is_whole,
)
from pykittens.targets.target import Lowerings
from pykittens.types.layouts import LANES
from pykittens.types.tiles import RV, Spread

FLAGS = Lowerings()


@FLAGS.lower("signal")
def lower_signal(e: CudaEmitter, call: Call) -> None:
    e.line("fence_engines();")
    meet(e)
    with e.one_thread():
        word = f"flag_{call.args['op']}"
        e.line(f"{word}({address_of_flag(e, call.args['flag'])}, {e.scalar(call.args['value'])});")


@FLAGS.lower("wait")
def lower_wait(e: CudaEmitter, call: Call) -> None:
    with e.one_thread():
        flag, value = call.args["flag"], call.args["value"]
        address, index = address_of_flag(e, flag), flag.first.index
        rank = len(index)
        awaited = f"{element_text(flag)} to be at least {{{rank}}}, it is {{{rank + 1}}}"
        debug = wait_arguments(e, f"at {{loc}} for {awaited}", *index, value, 0)  # what it is
        last = f"<{rank + 1}>" if debug else ""
        e.line(f"flag_wait{last}({address}, {e.scalar(value)}{debug});")
    meet(e)
    e.line("fence_engines();")


@FLAGS.lower("store_tagged")
def lower_store_tagged(e: CudaEmitter, call: Call) -> None:
    moved = Tagged.of(e, call.args["dst"], call.args["value"], call)
    with e.braces(f"if ({moved.held.owner}) {{") if moved.held.owner else nullcontext():
        for whole in _branches(e, moved):
            moved.write(e, whole)


@FLAGS.lower("load_tagged")
def lower_load_tagged(e: CudaEmitter, call: Call) -> None:
    """All elements of loads side by side are on their way at once, and are loaded again until all are there."""
    calls = [call] if e.debug else e.together.get(call, ())
    if not calls:
        return  # written with the first
    loads = [Tagged.of(e, c.args["src"], c.results[0], c) for c in calls]
    for load in loads:
        e.declare(load.vector)
    tag = loads[0].tag
    name = literal(call.args["src"].first.tensor.name)
    debug = wait_arguments(e, f"at {{loc}} for {name} to have the tag {{0}}", f"{tag} & 15")
    with e.braces("{"):
        if debug:
            e.line("const i64 start = nanoseconds();")
        for whole in _branches(e, *loads):
            for load in loads:  # without the tag, so that each is loaded
                e.each(load.count, f"{load.array}[i] = with_tag(0.0f, ~({load.tag}));")
            with e.braces("for (bool waits = true; waits;) {"):
                for load in loads:
                    load.write(e, whole)
                e.line("u32 missing = 0;")
                for load in loads:
                    e.each(load.count, f"see_tag(missing, {load.array}[i], {load.tag});")
                e.line("waits = missing & 15;")
                if debug:
                    e.line(f"if (waits) wait_on(start{debug});")
        if debug:
            e.line("debug.go_on();")
        for load in loads:
            e.each(load.count, f"{load.array}[i] = with_tag({load.array}[i], 0);")


@dataclass(frozen=True)
class Tagged:
    """A vector with tags that moves, its address and its chunks.

    condition: that none of these needs a test, if there is one; that is so if the vector is whole.
    """

    op: str
    vector: Value
    at: TileAddress
    held: Chunks
    array: str
    count: int
    tag: str
    condition: str
    whole: bool

    @staticmethod
    def of(e: CudaEmitter, tensor: TileRef | Global, vector: Value, call: Call) -> Tagged:
        """The vector of a call."""
        assert isinstance(vector.type, RV), vector
        at, warps = address_of(e, tensor, *extents(vector)), e.role.warps
        held, spread = chunks(e, vector, at), vector.type.spread
        fills = spread is Spread.PER_COLUMN
        if spread is Spread.PLAIN:  # no lane holds what is past the end of the vector
            fills = vector.type.length % (vector.type.chunk(warps) * LANES * warps) == 0
        fills = fills and not at.is_strided
        condition = is_whole(vector, at, held) if fills else ""
        tag, array, count = e.scalar(call.args["tag"]), e.array(vector), e.registers(vector)
        is_known = fills and call.args["whole"] and not e.debug
        return Tagged(call.op.name, vector, at, held, array, count, tag, condition, is_known)

    def write(self, e: CudaEmitter, whole: bool) -> None:
        """Write the loop over its chunks, which need no test if it is whole."""
        move = f"{self.op}<{{template}}>({self.array}, i, {{row}}, {{col}}, {{cols}}, {self.tag});"
        each_of(e, self.vector, self.at, move, self.held, whole)


def _branches(e: CudaEmitter, *moved: Tagged) -> Iterator[bool]:
    """A branch for vectors that no side of a tensor cuts, if there can be one, and one for others."""
    conditions = [some.condition for some in moved if not some.whole]
    if not all(conditions) or not conditions:
        yield not conditions
        return
    with e.braces(f"if ({' && '.join(conditions)}) {{", None):
        yield True
    with e.braces("} else {"):
        yield False


def address_of_flag(e: CudaEmitter, flag: TileRef | Global) -> str:
    """The address of a flag, as a C++ expression."""
    at = address_of(e, flag, 1, 1)
    check_element(e, flag, at)
    return str(Index(at.matrix) + at.row * at.stride + at.col * at.pitch)
