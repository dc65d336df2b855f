"""The user's CUDA C++, with operands for its numbered holes."""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.targets.cuda.emitter import CudaEmitter
from pykittens.targets.simt.map import write
from pykittens.targets.target import Lowerings

INLINE = Lowerings()


@INLINE.lower("inline_cuda")
def lower_inline_cuda(e: CudaEmitter, call: Call) -> None:
    text: str = call.args["text"]
    operands = call.args["operands"]
    like = call.args["like"]
    (result,) = call.results

    def element(i: str) -> str:
        return "(" + text.format(*(e.element(x, i, result, like.dtype) for x in operands)) + ")"

    write(e, call, element)


@INLINE.lower("inline_cuda_statement")
def lower_inline_cuda_statement(e: CudaEmitter, call: Call) -> None:
    text = call.args["text"].format(*(e.scalar(x) for x in call.args["operands"]))
    e.line(f"{{ {text} }}")
