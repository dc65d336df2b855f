"""Random bits, by the generator of groups.cuh, for the neighbouring elements that each lane holds."""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.targets.emitter import Emitter
from pykittens.targets.simt.exchange import tile_position, vector_position
from pykittens.targets.target import Lowerings
from pykittens.types.layouts import plain_chunk
from pykittens.types.tiles import RT

RANDOM = Lowerings()


@RANDOM.lower("random_bits")
def lower_random_bits(e: Emitter, call: Call) -> None:
    (result,) = call.results
    key, high, row, col, stream = (
        e.scalar(call.args[name]) for name in ("seed", "seed_high", "row", "col", "stream")
    )
    chunk, at_row = 2, row
    if isinstance(result.type, RT):
        at_row, at_col = tile_position(e, result, "i")
        at_row = f"(u32){row} + {at_row}"
    else:
        chunk = plain_chunk(result.type.length, e.role.warps)  # type: ignore[union-attr]
        at_col = vector_position(e, result, "i")
    e.declare(result)
    operands = f"{key}, {high}, {at_row}, (int)((u32){col} + {at_col}), {stream}"
    statement = f"random_chunk<{chunk}>({e.array(result)}, i, {operands});"
    e.each(e.registers(result), statement, chunk)
