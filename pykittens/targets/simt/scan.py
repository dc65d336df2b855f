"""Scans, by the functions of groups.cuh, in the type that the dtype is computed in."""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.ir.values import Value
from pykittens.targets.emitter import Emitter
from pykittens.targets.simt.reduce import Joining, partial_results
from pykittens.targets.simt.scratch import SCRATCH
from pykittens.targets.target import Lowerings
from pykittens.types.layouts import plain_chunk
from pykittens.types.tiles import RV

SCAN = Lowerings()


@SCAN.lower("row_scan")
def lower_row_scan(e: Emitter, call: Call) -> None:
    tile: Value = call.args["tile"]
    how = Joining.of(call, tile)
    cols = tile.type.cols  # type: ignore[union-attr]
    with partial_results(e, call.results[0], how, e.element(tile, "i", tile)) as name:
        e.line(f"scan_rows<{cols}>({name}, lane, {how.nothing}, {how.function});")


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
    held, barrier, warp = f"({how.type}*)0", "0", "0"
    if warps > 1:
        at = e.scratch(count // chunk * warps * how.bytes, call)
        held, barrier, warp = f"({how.type}*)(shared + {at})", e.group_barrier, "warp"
    with partial_results(e, call.results[0], how, e.element(vector, "i", vector)) as name:
        operands = f"{name}, {held}, {barrier}, {warp}, lane, {how.nothing}, {how.function}"
        e.line(f"scan_vector<{chunk}, {warps}>({operands});")
