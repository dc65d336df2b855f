"""Exchanges of elements between lanes, through the scratch memory of the group.

Narrow elements keep their bits: they are never converted.
"""

from __future__ import annotations

from collections.abc import Callable

from pykittens.ir.nodes import Call
from pykittens.ir.values import Value
from pykittens.targets.emitter import Emitter
from pykittens.targets.lines import unrolled
from pykittens.targets.simt.map import write_elements
from pykittens.targets.simt.memory import owner
from pykittens.targets.simt.scratch import Exchange, Put, Strides, declared, through_scratch
from pykittens.targets.source import memory_type
from pykittens.types.tiles import RT, RV, Spread


def bits(e: Emitter, value: Value, i: str) -> str:
    """The bits of element i of a value."""
    match value.dtype.packing:
        case 1:
            return f"{e.array(value)}[{i}]"
        case 2:
            return f"half_at({e.array(value)}, {i})"
        case _:
            return f"byte_at({e.array(value)}, {i})"


def write_bits(e: Emitter, result: Value, element: Callable[[str], str]) -> None:
    """Write the bits of a result's elements to its registers; the bits must not come from those registers."""
    write_elements(
        e, result, element, join="two_halves" if result.dtype.packing == 2 else "four_bytes"
    )


# -- positions -------------------------------------------------------------------------------------


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
        case Spread.PLAIN | Spread.LANE_ORDER:
            return f"vector_at<{vector.type.chunk(warps)}, {warps * 32}>({i}, thread)"


def sync(e: Emitter) -> str:
    """The statement that synchronises the threads of a group and their accesses to shared memory."""
    warps = e.role.warps
    return "__syncwarp();" if warps == 1 else f"group_sync({e.group_barrier}, {warps * 32});"


# -- the exchange ----------------------------------------------------------------------------------


def exchange(e: Emitter, call: Call) -> bool:
    """Write the exchange that an operation declares: elements to slots, a barrier, reads from slots, a barrier.

    Returns whether the call exchanges elements. A tile takes the same share of shared memory as of registers, so that
    no fewer blocks fit. If there is not room for all slots, the exchange takes several passes, during which the
    registers of both the operands and the result are needed.
    """
    assert declared(call.op), f"{call.op.name} declares no exchange"
    moved = through_scratch(call, e.role.warps)
    if not isinstance(moved, Exchange):
        return False
    (result,) = call.results
    slots, size = moved.slots(result, e.role.warps), min(result.dtype.bytes, 8)
    room = slots
    if slots * size > e.scratch_room:
        room = max(e.scratch_room // size // moved.unit, 1) * moved.unit
    e.declare(result)
    with e.braces("{"):
        kind = memory_type(result.dtype)
        at = e.scratch(room * size, call)
        e.line(f"{kind}* const held = ({kind}*)(shared + {at});")
        if room < slots:
            _exchange_in_passes(e, result, moved, slots, room)
            return True
        for put in moved.puts:
            condition = f"if ({guard}) " if (guard := _writer(e, put)) else ""
            slot = _slot(e, put.value, put.at)
            e.each(e.registers(put.value), f"{condition}held[{slot}] = {bits(e, put.value, 'i')};")
        e.line(sync(e))
        write_bits(e, result, lambda i: f"held[{_slot(e, result, moved.take, i)}]")
        e.line(sync(e))
    return True


def _slot(e: Emitter, value: Value, at: Strides, i: str = "i") -> str:
    """The slot of register i of a value."""
    if isinstance(value.type, RT):
        return at.text(*tile_position(e, value, i))
    return at.text("0", vector_position(e, value, i))


def _writer(e: Emitter, put: Put) -> str | None:
    """The condition under which a lane writes register i of a value; None if every lane does."""
    value, warps = put.value, e.role.warps
    if isinstance(value.type, RT):
        row, _ = tile_position(e, value, "i")
        return None if put.row is None else f"{row} == {e.scalar(put.row)}"
    assert isinstance(value.type, RV)
    if value.type.spread.repeats:
        return owner(value.type.spread, warps)
    length = value.type.length
    # A plain vector may end with padding.
    padded = e.registers(value) * warps * 32 > length
    return f"{vector_position(e, value, 'i')} < {length}" if padded else None


def _exchange_in_passes(e: Emitter, result: Value, moved: Exchange, slots: int, room: int) -> None:
    """The exchange of `slots` slots in passes of `room` slots."""
    name, packing = e.array(result), result.dtype.packing
    # Registers that a later pass reads must not be written by an earlier one.
    shared = any(e.storage.same(p.value, result) for p in moved.puts)
    to = "moved" if shared else name
    if shared:
        e.line(f"{e.declaration(result, to)};")
    if packing > 1:
        e.each(e.array_length(result), f"{to}[i] = 0;")
    with e.braces(f"{unrolled(slots, 'first', step=room)} {{"):
        for put in moved.puts:
            with e.braces(f"{unrolled(e.registers(put.value))} {{"):
                e.line(f"const int at = {_slot(e, put.value, put.at)} - first;")
                guard = _writer(e, put)
                inside = f"at >= 0 && at < {room}" + (f" && {guard}" if guard else "")
                e.line(f"if ({inside}) held[at] = {bits(e, put.value, 'i')};")
        e.line(sync(e))
        with e.braces(f"{unrolled(e.registers(result))} {{"):
            e.line(f"const int at = {_slot(e, result, moved.take)} - first;")
            read = f"{to}[i] = held[at]"
            if packing > 1:
                read = f"{to}[i / {packing}] |= (u32)held[at] << i % {packing} * {32 // packing}"
            e.line(f"if (at >= 0 && at < {room}) {read};")
        e.line(sync(e))
    if shared:
        e.copy_registers(to, name, result)
