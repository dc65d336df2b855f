"""Masks: each element is kept or replaced, by its coordinates.

The columns that a row keeps are an interval. A lane computes once for each of its rows which of its elements lie
outside, as bits of words, so that an element costs a select by a known bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykittens.ir.nodes import Call
from pykittens.ir.values import RegVector
from pykittens.targets.emitter import Emitter
from pykittens.targets.index import Index
from pykittens.targets.simt.map import write_elements
from pykittens.targets.target import Lowerings

MASK = Lowerings()
COVERED = 128  # columns of a row of which a lane has 32


@MASK.lower("mask")
def lower_mask(e: Emitter, call: Call) -> None:
    (result,), tile = call.results, call.args["tile"]
    rows, cols = result.type.rows, result.type.cols  # type: ignore[union-attr]
    slots, words = rows // (8 * e.role.warps), -(-cols // COVERED)  # rows of a lane, words of each

    def element(row: str, j: str, i: str) -> str:
        """Register i of the result, element j of a row of the lane."""
        word = f"hidden[{row}]" if words == 1 else f"hidden[({row}) * {words} + {j} / 32]"
        shift = j if words == 1 else f"{j} % 32"
        return f"{word} & 1u << {shift} ? as_float(0xff800000u) : {e.element(tile, i, result)}"

    e.declare(result)
    with e.braces("{"):
        e.line(f"u32 hidden[{slots * words}];")
        with e.braces(f"UNROLL for (int at_row = 0; at_row < {slots}; ++at_row) {{"):
            for word in range(words):
                at = "at_row" if words == 1 else f"at_row * {words} + {word}"
                e.line(f"hidden[{at}] = {_hidden(e, call.args, word * COVERED)};")
        if result.dtype.packing > 1:
            write_elements(
                e, result, lambda i: element(f"row_of<{cols}>({i})", f"col_of<{cols}>({i})", i)
            )
            return
        # Row by row, so that ptxas moves several bits to predicates at once (R2P).
        e.line(f"UNROLL for (int at_row = 0; at_row < {slots}; ++at_row)")
        with e.braces(f"UNROLL for (int at_col = 0; at_col < {cols // 4}; ++at_col) {{"):
            e.line(
                f"const int i = at_row / 2 * {cols // 2} + at_row % 2 * 2 + at_col / 2 * 4 + at_col % 2;"
            )
            e.line(f"{e.array(result)}[i] = {element('at_row', 'at_col', 'i')};")


def _hidden(e: Emitter, a: Mapping[str, Any], start: int) -> str:
    """The bits of the columns that the mask replaces in row `at_row` of a lane, from column `start` of the tile."""
    col = Index(e.index(a["col"])) + start

    def bound(x: Any) -> str:
        return str(Index(f"{e.array(x)}[at_row]" if isinstance(x, RegVector) else e.index(x)) - col)

    ends = [] if a["cols"] is None else [bound(a["cols"])]
    if a["causal"]:
        row = Index(e.index(a["row"])) + f"row_position<{e.role.warps}>(at_row, warp, lane)"
        ends.append(str(row + e.index(a["offset"]) + 1 - col))
    end = f"min({', '.join(ends)})" if ends[1:] else "".join(ends)
    parts = [f"bits_from({end}, lane)"] if ends else []
    if a["first"] is not None:
        parts.append(f"bits_before({bound(a['first'])}, lane)")
    return " | ".join(parts) or "0u"
