"""Elements that move between lanes: written to the group's shared memory by place, read by another.

Narrow elements travel as they lie in memory, never converted.
"""

from __future__ import annotations

from collections.abc import Callable

from pykittens.ir.nodes import Call
from pykittens.ir.values import Value
from pykittens.targets.emitter import Emitter
from pykittens.targets.simt.map import write_elements
from pykittens.targets.simt.memory import owner
from pykittens.targets.simt.scratch import Exchange, Put, Strides, declared, through_scratch
from pykittens.targets.source import C_TYPES
from pykittens.types.layouts import plain_chunk
from pykittens.types.tiles import RT, RV, Spread

PACKED_TYPES = {2: "unsigned short", 4: "unsigned char"}


def memory_type(value: Value) -> str:
    """The C++ type of one element as it lies in memory."""
    return PACKED_TYPES.get(value.dtype.packing, C_TYPES[value.dtype.name])


def bits(e: Emitter, value: Value, i: str) -> str:
    """Element i of a value as it lies in memory."""
    match value.dtype.packing:
        case 1:
            return f"{e.array(value)}[{i}]"
        case 2:
            return f"half_at({e.array(value)}, {i})"
        case _:
            return f"byte_at({e.array(value)}, {i})"


def write_bits(e: Emitter, result: Value, element: Callable[[str], str]) -> None:
    """Give each register of a result its elements as they lie in memory; they may not lie in the result itself."""
    write_elements(
        e, result, element, join="two_halves" if result.dtype.packing == 2 else "four_bytes"
    )


# -- places ----------------------------------------------------------------------------------------


def tile_position(e: Emitter, tile: Value, i: str) -> tuple[str, str]:
    """Row and column of register i of a tile."""
    assert isinstance(tile.type, RT)
    cols = tile.type.cols
    return f"tile_row<{cols}, {e.role.warps}>({i}, warp, lane)", f"tile_col<{cols}>({i}, lane)"


def vector_position(e: Emitter, vector: Value, i: str) -> str:
    """Position of register i of a vector."""
    assert isinstance(vector.type, RV)
    warps = e.role.warps
    match vector.type.spread:
        case Spread.PER_ROW:
            return f"row_at<{warps}>({i}, warp, lane)"
        case Spread.PER_COLUMN:
            return f"col_at({i}, lane)"
        case Spread.PLAIN:
            return f"vector_at<{plain_chunk(vector.type.length, warps)}, {warps * 32}>({i}, thread)"


def holds_alone(e: Emitter, vector: Value, i: str) -> str | None:
    """Whether a lane is the one that speaks for register i of a vector; None if every lane is.

    A plain vector may have padding after its end.
    """
    assert isinstance(vector.type, RV)
    if vector.type.spread is not Spread.PLAIN:
        return owner(vector.type.spread, e.role.warps)
    length = vector.type.length
    whole = e.registers(vector) * e.role.warps * 32 == length
    return None if whole else f"{vector_position(e, vector, i)} < {length}"


def sync(e: Emitter) -> str:
    """The statement at which the threads of a group meet, shared memory included."""
    warps = e.role.warps
    return "__syncwarp();" if warps == 1 else f"group_sync({e.group_barrier}, {warps * 32});"


# -- the exchange ----------------------------------------------------------------------------------


def exchange(e: Emitter, call: Call) -> bool:
    """Write elements to their places, meet, read the result's from theirs, meet again: what the operation declares.

    Returns whether the call exchanges elements. Where there is not room for all places they go in turns of a multiple
    of a unit, which asks for the registers of both. Elsewhere a tile takes the share of shared memory that it takes of
    the registers: no fewer blocks fit.
    """
    assert declared(call.op), f"{call.op.name} declares no exchange"
    moved = through_scratch(call, e.role.warps)
    if not isinstance(moved, Exchange):
        return False
    (result,) = call.results
    places, size = moved.places(result, e.role.warps), min(result.dtype.bytes, 8)
    turn = places
    if places * size > e.scratch_room:
        turn = max(e.scratch_room // size // moved.unit, 1) * moved.unit
    e.declare(result)
    with e.braces("{"):
        kind = memory_type(result)
        at = e.scratch(turn * size, call)
        e.line(f"{kind}* const held = ({kind}*)(shared + {at});")
        if turn >= places:
            for put in moved.puts:
                guard = _when(e, put)
                condition = f"if ({guard}) " if guard else ""
                e.line(
                    f"UNROLL for (int i = 0; i < {e.registers(put.value)}; ++i) "
                    f"{condition}held[{_position(e, put.value, put.at)}] = {bits(e, put.value, 'i')};"
                )
            e.line(sync(e))
            write_bits(e, result, lambda i: f"held[{_position(e, result, moved.take, i)}]")
            e.line(sync(e))
        else:
            _in_turns(e, result, moved, places, turn)
    return True


def _position(e: Emitter, value: Value, at: Strides, i: str = "i") -> str:
    """The place of register i of a value."""
    if isinstance(value.type, RT):
        return at.text(*tile_position(e, value, i))
    return at.text("0", vector_position(e, value, i))


def _when(e: Emitter, put: Put) -> str | None:
    """The condition under which a lane writes register i of a value; None if every lane does."""
    if not isinstance(put.value.type, RT):
        return holds_alone(e, put.value, "i")
    return (
        None if put.row is None else f"{tile_position(e, put.value, 'i')[0]} == {e.scalar(put.row)}"
    )


def _in_turns(e: Emitter, result: Value, moved: Exchange, places: int, turn: int) -> None:
    name, packing = e.array(result), result.dtype.packing
    # Registers that are read in a later turn must not be written in an earlier one.
    shared = [p for p in moved.puts if e.storage.same(p.value, result)]
    to = "moved" if shared else name
    if shared:
        e.line(f"{e.declaration(result, to)};")
    if packing > 1:
        e.line(f"UNROLL for (int i = 0; i < {e.array_length(result)}; ++i) {to}[i] = 0;")
    with e.braces(f"UNROLL for (int first = 0; first < {places}; first += {turn}) {{"):
        for put in moved.puts:
            with e.braces(f"UNROLL for (int i = 0; i < {e.registers(put.value)}; ++i) {{"):
                e.line(f"const int at = {_position(e, put.value, put.at)} - first;")
                guard = _when(e, put)
                inside = f"at >= 0 && at < {turn}" + (f" && {guard}" if guard else "")
                e.line(f"if ({inside}) held[at] = {bits(e, put.value, 'i')};")
        e.line(sync(e))
        with e.braces(f"UNROLL for (int i = 0; i < {e.registers(result)}; ++i) {{"):
            e.line(f"const int at = {_position(e, result, moved.take)} - first;")
            width = 32 // packing
            taken = (
                f"{to}[i] = held[at]"
                if packing == 1
                else f"{to}[i / {packing}] |= (u32)held[at] << i % {packing} * {width}"
            )
            e.line(f"if (at >= 0 && at < {turn}) {taken};")
        e.line(sync(e))
    if shared:
        e.copy_registers(to, name, result)
