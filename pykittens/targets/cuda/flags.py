"""Flags between blocks: stores that release earlier writes, and loads that acquire them.

Source: PTX ISA, "Memory Consistency Model" and "fence.proxy".
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext

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
    whole_or_cut,
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
    dst, value, tag = call.args["dst"], call.args["value"], e.scalar(call.args["tag"])
    at = address_of(e, dst, *extents(value))
    held = chunks(e, value, at)
    store = f"store_tagged<{{template}}>({e.array(value)}, i, {{row}}, {{col}}, {{cols}}, {tag});"
    with e.braces(f"if ({held.owner}) {{") if held.owner else nullcontext():
        for is_whole in _whole_or_cut(e, value, at, held):
            each_of(e, value, at, store, held, is_whole)


@FLAGS.lower("load_tagged")
def lower_load_tagged(e: CudaEmitter, call: Call) -> None:
    """All elements are on their way at once, and are loaded again until all are there."""
    src, (result,), tag = call.args["src"], call.results, e.scalar(call.args["tag"])
    at = address_of(e, src, *extents(result))
    e.declare(result)
    held, array, count = chunks(e, result, at), e.array(result), e.registers(result)
    load = f"load_tagged<{{template}}>({array}, i, {{row}}, {{col}}, {{cols}}, {tag});"
    name = literal(src.first.tensor.name)
    debug = wait_arguments(e, f"at {{loc}} for {name} to have the tag {{0}}", f"{tag} & 15")
    with e.braces("{"):
        if debug:
            e.line("const i64 start = nanoseconds();")
        for is_whole in _whole_or_cut(e, result, at, held):
            with e.braces("for (bool waits = true; waits;) {"):
                each_of(e, result, at, load, held, is_whole)
                e.line("u32 missing = 0;")
                e.each(count, f"see_tag(missing, {array}[i], {tag});")
                e.line("waits = missing & 15;")
                if debug:
                    e.line(f"if (waits) wait_on(start{debug});")
        if debug:
            e.line("debug.go_on();")
        e.each(count, f"{array}[i] = with_tag({array}[i], 0);")


def _whole_or_cut(e: CudaEmitter, vector: Value, at: TileAddress, held: Chunks) -> Iterable[bool]:
    """Branches for vectors that no side of the tensor cuts, and others: tests of chunks cost more than the accesses."""
    assert isinstance(vector.type, RV), vector
    spread, warps = vector.type.spread, e.role.warps
    fills = spread is Spread.PER_COLUMN
    if spread is Spread.PLAIN:  # nothing past the end of the vector
        fills = vector.type.length % (vector.type.chunk(warps) * LANES * warps) == 0
    return whole_or_cut(e, vector, at, held) if fills else (False,)


def address_of_flag(e: CudaEmitter, flag: TileRef | Global) -> str:
    """The address of a flag, as a C++ expression."""
    at = address_of(e, flag, 1, 1)
    check_element(e, flag, at)
    return str(Index(at.matrix) + at.row * at.stride + at.col * at.pitch)
