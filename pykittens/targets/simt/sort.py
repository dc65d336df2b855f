"""Rows in order: each element becomes an integer key with its column, and the least key comes first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pykittens.ir.nodes import Call
from pykittens.ir.values import RegTile, Value
from pykittens.ops.sort import MOST_TAKEN, after_the_last
from pykittens.targets.emitter import Emitter
from pykittens.targets.simt.exchange import tile_position
from pykittens.targets.simt.map import write_elements
from pykittens.targets.source import number
from pykittens.targets.target import Lowerings
from pykittens.types.dtypes import DType

SORT = Lowerings()


@dataclass(frozen=True)
class Keys:
    """C++ of the keys of elements: their type, a key past the last, and the key of a rank {0} in a column {1}.

    rank, at: the rank and the column of a key. shift: the low bits of a float's rank that are left out.
    """

    type: str
    last: str
    make: str
    rank: str
    at: str = ""
    shift: int = 0

    def of(self, x: str, dtype: DType, col: str, descending: bool) -> str:
        """The key of an element."""
        rank = f"rank_of<{self.shift}>({x})" if dtype.is_float else x
        return self.make.format(f"~({rank})" if descending else rank, col)

    def value(self, key: str, dtype: DType, descending: bool) -> str:
        """The element of a key."""
        rank = f"{'~' * descending}{self.rank.format(key)}"
        return f"of_rank<{self.shift}>({rank})" if dtype.is_float else rank


_GREATEST = f"{2**63 - 1}ll"
# Ranks of narrow elements have at most 19 bits, those of f16, and columns 13: a comparison is one instruction. Those of
# 32 bits take two, and need no columns if no index is used, because equal elements are alike.
_NARROW = Keys("int", f"{2**31 - 1}", "({0}) * 8192 + {1}", "({0} >> 13)", "({0} & 8191)", 13)
_WIDE = Keys("i64", _GREATEST, f"({{0}}) * {2**32}ll + {{1}}", "(int)({0} >> 32)", "(int){0}")
_ALONE = Keys("int", f"{2**31 - 1}", "{0}", "{0}")
_LONG = Keys(
    "Found<i64>",
    f"Found<i64>{{{_GREATEST}, {2**31 - 1}}}",
    "Found<i64>{{{0}, {1}}}",
    "{0}.value",
    "{0}.at",
)


def _keys(dtype: DType, with_columns: bool) -> Keys:
    if dtype.packing > 1:
        return _NARROW
    if dtype.bits == 64:
        return _LONG
    return _WIDE if with_columns else _ALONE


@SORT.lower("row_topk")
def lower_row_topk(e: Emitter, call: Call) -> None:
    _lower(e, call, call.args["k"], call.args["largest"])


@SORT.lower("row_sort")
def lower_row_sort(e: Emitter, call: Call) -> None:
    _lower(e, call, call.args["tile"].cols, call.args["descending"])


def _lower(e: Emitter, call: Call, count: int, descending: bool) -> None:
    """The first `count` elements of each row; rows of at most 32 elements are sorted as their first 32 are taken."""
    tile: RegTile = call.args["tile"]
    values, indices = call.results
    keys, dtype = _keys(tile.dtype, indices in e.uses), tile.dtype
    for result in call.results:
        if result in e.uses:
            e.declare(result)
    with e.braces("{"):
        e.line(f"{keys.type} ranked[{e.registers(values)}];")
        _, col = tile_position(e, tile, "i")
        key = keys.of(e.element(tile, "i", tile), dtype, col, descending)
        if count <= MOST_TAKEN:
            function = f"top_rows<{tile.cols}, {1 << (count - 1).bit_length()}>"
        else:
            function = f"sort_rows<{tile.cols}>"
        e.line(f"{function}(ranked, lane, {keys.last}, [&](int i) {{ return {key}; }});")

        def write(result: Value, shown: str, last: Any) -> None:
            if result in e.uses:
                inside = f"{tile_position(e, result, '{0}')[1]} < {count} ? " if count % 16 else ""
                outside = f" : {number(last, result.dtype.compute)}" if count % 16 else ""
                form = f"{inside}{shown}{outside}"
                write_elements(e, result, lambda i: form.format(i))

        write(
            values, keys.value("ranked[{0}]", dtype, descending), after_the_last(dtype, descending)
        )
        write(indices, keys.at.format("ranked[{0}]"), -1)
