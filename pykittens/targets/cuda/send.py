"""Stores of register tiles to the shared memory of other blocks of a cluster."""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.cuda.shared import write_pairs
from pykittens.targets.debug_sites import check_block
from pykittens.targets.target import Lowerings

SEND = Lowerings()


@SEND.lower("send")
def lower_send(e: CudaEmitter, call: Call) -> None:
    """Each lane starts its stores; addresses of another block are as far apart as those of this one."""
    tile, value, block = call.args["dst"], call.args["value"], e.scalar(call.args["block"])
    check_block(e, call.args["block"])
    with e.braces("{"):
        e.line(f"const u32 there = in_block({e.names(call.args['signal'])}, {block});")
        write = "send({to}, {pair}, there);"
        write_pairs(e, tile, value, write, f"in_block({{}}, {block})")
