"""Values computed in registers without operands: constants, and the positions of elements."""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.targets.emitter import Emitter
from pykittens.targets.simt.exchange import vector_position
from pykittens.targets.simt.map import write_elements
from pykittens.targets.target import Lowerings

CREATION = Lowerings()


@CREATION.lower("creation")
def lower_creation(e: Emitter, call: Call) -> None:
    (result,) = call.results
    value = call.args.get("value", 0)
    write_elements(e, result, lambda i: e.element(value, i, result))


@CREATION.lower("iota", "row_index", "col_index")
def lower_index(e: Emitter, call: Call) -> None:
    (result,) = call.results
    write_elements(e, result, lambda i: vector_position(e, result, i))
