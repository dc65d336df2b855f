"""Flags between blocks: stores that release earlier writes, and loads that acquire them.

Source: PTX ISA, "Memory Consistency Model" and "fence.proxy".
"""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.ir.values import Global, TileRef
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.sync import meet
from pykittens.targets.debug_sites import check_element, element_text, wait_arguments
from pykittens.targets.index import Index
from pykittens.targets.simt.memory import address_of
from pykittens.targets.target import Lowerings

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
        debug = wait_arguments(e, f"at {{loc}} for {awaited}", *index, value)
        last = f"<{rank + 1}>" if debug else ""
        e.line(f"flag_wait{last}({address}, {e.scalar(value)}{debug});")
    meet(e)
    e.line("fence_engines();")


def address_of_flag(e: CudaEmitter, flag: TileRef | Global) -> str:
    """The address of a flag, as a C++ expression."""
    at = address_of(e, flag, 1, 1)
    check_element(e, flag, at)
    return str(Index(at.matrix) + at.row * at.stride + at.col * at.pitch)
