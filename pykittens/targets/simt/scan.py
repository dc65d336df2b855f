"""Scans, by the functions of groups.cuh, in the type that the dtype is computed in."""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.ir.values import RegTile, Value
from pykittens.targets.emitter import Emitter
from pykittens.targets.simt.reduce import Joining, partial_results, shared_by_warps
from pykittens.targets.simt.scratch import SCRATCH, Partials, scratch, through_scratch
from pykittens.targets.target import Lowerings
from pykittens.types.layouts import BLOCK_ROWS, plain_chunk
from pykittens.types.tiles import RV

SCAN = Lowerings()


@SCAN.lower("row_scan")
def lower_row_scan(e: Emitter, call: Call) -> None:
    tile: Value = call.args["tile"]
    how = Joining.of(call, tile)
    cols = tile.type.cols  # type: ignore[union-attr]
    with partial_results(e, call.results[0], how, e.element(tile, "i", tile)) as name:
        e.line(f"scan_rows<{cols}>({name}, lane, {how.nothing}, {how.function});")


@scratch("col_scan")
def partial_columns(call: Call, warps: int) -> Partials | None:
    """The last partial results of each block of 16 rows, if there are several warps."""
    tile: RegTile = call.args["tile"]
    how = Joining.of(call, tile)
    blocks = tile.rows // (BLOCK_ROWS * warps)
    return Partials(blocks * tile.cols, how.fields, how.bytes) if warps > 1 else None


@SCAN.lower("col_scan")
def lower_col_scan(e: Emitter, call: Call) -> None:
    tile: RegTile = call.args["tile"]
    how, warps, moved = Joining.of(call, tile), e.role.warps, through_scratch(call, e.role.warps)
    size = moved.length * moved.bytes * warps if isinstance(moved, Partials) else 0
    where = shared_by_warps(e, call, how, size)
    with partial_results(e, call.results[0], how, e.element(tile, "i", tile)) as name:
        operands = f"{name}, {where}, lane, {how.nothing}, {how.function}"
        e.line(f"scan_columns<{tile.cols}, {warps}>({operands});")


SCRATCH["scan"] = "one value per warp and chunk: no two lanes meet in a bank"


@SCAN.lower("scan")
def lower_scan(e: Emitter, call: Call) -> None:
    vector: Value = call.args["vector"]
    assert isinstance(vector.type, RV)
    if not vector.type.length:
        e.declare(call.results[0])
        return
    how, warps, count = Joining.of(call, vector), e.role.warps, e.registers(vector)
    chunk = plain_chunk(vector.type.length, warps)
    where = shared_by_warps(e, call, how, count // chunk * warps * how.bytes)
    with partial_results(e, call.results[0], how, e.element(vector, "i", vector)) as name:
        operands = f"{name}, {where}, lane, {how.nothing}, {how.function}"
        e.line(f"scan_vector<{chunk}, {warps}>({operands});")
