"""Random bits: the generator of groups.cuh, asked for the neighbours that a lane holds."""

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
        place = tile_position(e, result, "i")
        at_row, at_col = f"(u32){row} + {place[0]}", place[1]
    else:
        chunk = plain_chunk(result.type.length, e.role.warps)  # type: ignore[union-attr]
        at_col = vector_position(e, result, "i")
    e.declare(result)
    e.line(
        f"UNROLL for (int i = 0; i < {e.registers(result)}; i += {chunk}) "
        f"random_chunk<{chunk}>({e.array(result)}, i, {key}, {high}, {at_row}, "
        f"(int)((u32){col} + {at_col}), {stream});"
    )
