"""Scans: in the type they are computed in, by the functions of groups.cuh."""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.ir.values import Value
from pykittens.ops.scan import Scan
from pykittens.targets.emitter import Emitter
from pykittens.targets.simt.map import write_elements
from pykittens.targets.simt.reduce import Joining, joining
from pykittens.targets.simt.scratch import SCRATCH
from pykittens.targets.target import Lowerings
from pykittens.types.layouts import plain_chunk
from pykittens.types.tiles import RV

SCAN = Lowerings()


@SCAN.lower("row_scan")
def lower_row_scan(e: Emitter, call: Call) -> None:
    tile: Value = call.args["tile"]
    how = _joining(call, tile)
    cols = tile.type.cols  # type: ignore[union-attr]
    _scan(e, call, tile, f"scan_rows<{cols}>({{0}}, lane, {how.nothing}, {how.function});", how)


SCRATCH["scan"] = "one value a warp and chunk: no two lanes meet in a bank"


@SCAN.lower("scan")
def lower_scan(e: Emitter, call: Call) -> None:
    vector: Value = call.args["vector"]
    assert isinstance(vector.type, RV)
    if not vector.type.length:
        e.declare(call.results[0])
        return
    how, warps, count = _joining(call, vector), e.role.warps, e.registers(vector)
    chunk = plain_chunk(vector.type.length, warps)
    held, barrier, warp = "(" + how.type + "*)0", "0", "0"
    if warps > 1:
        at = e.scratch(count // chunk * warps * how.bytes, call)
        held, barrier, warp = f"({how.type}*)(shared + {at})", e.group_barrier, "warp"
    where = f"{held}, {barrier}, {warp}, lane"
    scan = f"scan_vector<{chunk}, {warps}>({{0}}, {where}, {how.nothing}, {how.function});"
    _scan(e, call, vector, scan, how)


def _joining(call: Call, operand: Value) -> Joining:
    assert isinstance(call.op.scalar, Scan)
    return joining(call.op.scalar, operand.dtype)


def _scan(e: Emitter, call: Call, x: Value, scan: str, how: Joining) -> None:
    """Copy the elements, scan the copy in place, and round it where the dtype is narrow."""
    (result,) = call.results
    count, packed = e.registers(x), e.is_packed(result)
    name = "partial" if packed else e.array(result)
    e.declare(result)
    with e.braces("{"):
        if packed:
            e.line(f"{how.type} partial[{count}];")
        e.line(f"UNROLL for (int i = 0; i < {count}; ++i) {name}[i] = {e.element(x, 'i', x)};")
        # The braces of the function in the text are not for format.
        e.line(scan.replace("{0}", name))
        if packed:
            write_elements(e, result, lambda i: f"partial[{i}]")
