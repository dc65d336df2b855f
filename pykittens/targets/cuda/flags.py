"""Flags between blocks: stores that release what was written before, loads that acquire it.

Source: PTX ISA, "Memory Consistency Model" and "fence.proxy".
"""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.ir.values import Global, TileRef
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.sync import meet
from pykittens.targets.debug_sites import check_element, named, standing
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
        e.line(f"{word}({_address(e, call.args['flag'])}, {e.scalar(call.args['value'])});")


@FLAGS.lower("wait")
def lower_wait(e: CudaEmitter, call: Call) -> None:
    with e.one_thread():
        flag, value = call.args["flag"], call.args["value"]
        address, index = _address(e, flag), flag.first.index
        who = standing(e, f"at {{loc}} for {_told(flag)}", *index, value)
        last = f"<{len(index) + 1}>" if who else ""
        e.line(f"flag_wait{last}({address}, {e.scalar(value)}{who});")
    meet(e)
    e.line("fence_engines();")


def _address(e: CudaEmitter, flag: TileRef | Global) -> str:
    at = address_of(e, flag, 1, 1)
    check_element(e, flag, at)
    return str(Index(at.matrix) + at.row * at.stride + at.col)


def _told(flag: TileRef | Global) -> str:
    """What a wait lacks, with holes for the indices, the value that is awaited and the one that is there."""
    rank = len(flag.first.index)
    return f"{named(flag)} to be at least {{{rank}}}, it is {{{rank + 1}}}"
