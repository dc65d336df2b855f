"""Masks: each element is kept or replaced, by its coordinates."""

from __future__ import annotations

from pykittens.ir.nodes import Call
from pykittens.ir.values import Value
from pykittens.targets.emitter import Emitter
from pykittens.targets.simt.map import write_elements
from pykittens.targets.target import Lowerings

MASK = Lowerings()


@MASK.lower("mask")
def lower_mask(e: Emitter, call: Call) -> None:
    a = call.args
    (result,) = call.results
    cols, warps = result.type.cols, e.role.warps  # type: ignore[union-attr]
    row, col, width = e.scalar(a["row"]), e.scalar(a["col"]), e.scalar(a["cols"])

    def element(i: str) -> str:
        keeps = f"{col} + tile_col<{cols}>({i}, lane) < {width}"
        if a["causal"]:
            offset = (
                f" + {e.scalar(a['offset'])}"
                if isinstance(a["offset"], Value) or a["offset"] != 0
                else ""
            )
            diagonal = f"{row} + tile_row<{cols}, {warps}>({i}, warp, lane){offset}"
            keeps += f" && {col} + tile_col<{cols}>({i}, lane) <= {diagonal}"
        return f"{keeps} ? {e.element(a['tile'], i, result)} : as_float(0xff800000u)"

    write_elements(e, result, element)
