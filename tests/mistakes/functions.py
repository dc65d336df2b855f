"""Rows of the functions composed of operations."""

from __future__ import annotations

import pykittens as pk
from tests.mistakes.operands import (
    Rule,
    all_of,
    any_of,
    boolean,
    dtype_word,
    fits,
    in_registers,
    index,
    one_of,
    register_tile,
    register_vector,
    same_as_tile,
)
from tests.mistakes.rows import NUMBER, row, row_of_rows, row_with

_POSITION: Rule = any_of(index(), one_of("int_tile", "int_rows"))
_ON_A_SIDE: Rule = any_of(index(), one_of("int_rows"))
_TILE: Rule = one_of("tile", "wide")

for _name in ("tril", "triu"):
    row(
        _name,
        f"pk.{_name}({{tile}}, {{diagonal}}, {{fill}})",
        tile=("tile", _TILE), diagonal=("3", _POSITION), fill=("rows", same_as_tile),
    )  # fmt: skip
for _name, _bound in (("left", "col"), ("right", "col"), ("upper", "row"), ("lower", "row")):
    row(
        f"{_name}_fill",
        f"pk.{_name}_fill({{tile}}, {{{_bound}}}, {{value}})",
        **{"tile": ("tile", _TILE), _bound: ("3", _POSITION), "value": ("rows", same_as_tile)},
    )
for _name in ("outer_add", "outer_sub", "outer_mul"):
    _vector = all_of(register_vector(dtype=pk.f32), lambda t: t.name != "odd")
    row_of_rows(_name, f"pk.{_name}({{a}}, {{b}})", a=("vector", _vector), b=("vector", _vector))
for _name, _index in (("with_column", "j"), ("with_row", "i")):
    row(
        _name,
        f"pk.{_name}({{tile}}, {{{_index}}}, {{vector}})",
        **{"tile": ("tile", _TILE), _index: ("3", _POSITION), "vector": ("rows", same_as_tile)},
    )
row(
    "diagonal",
    "pk.diagonal({tile})",
    tile=("tile", all_of(register_tile(), lambda t: t.name != "tall")),
)
row(
    "diagonal_matrix",
    "pk.diagonal_matrix({vector})",
    vector=("rows", register_vector("per row", "per column")),
)
row(
    "uniform",
    "pk.uniform({bits})",
    bits=("int_tile", all_of(in_registers("int"), lambda t: t.dtype == pk.int32)),
)
for _name in ("rotate_half", "rotate_pairs"):
    row(_name, f"pk.{_name}({{x}})", x=("tile", register_tile(*NUMBER)))
row(
    "rotary",
    "pk.rotary({x}, {cos}, {sin}, {interleaved})",
    x=("tile", one_of("tile")), cos=("tile", same_as_tile), sin=("tile", same_as_tile), interleaved=("True", boolean),
)  # fmt: skip
_ROWS: Rule = all_of(fits(pk.f32), lambda t: t.lies == "per row")
row(
    "online_softmax",
    "pk.online_softmax({s}, {scale}, {m}, {l}, to={to})",
    s=("tile", _TILE), scale=("1.5", same_as_tile), m=("rows", _ROWS), l=("rows", _ROWS),
    to=("pk.bf16", dtype_word("float")),
)  # fmt: skip
row_with(
    "publish",
    "pk.publish({dst}, {value}, transposed={transposed})",
    dict(dst=("shared_tile", one_of("shared_tile", "filled", "drained")), value=("tile", one_of("tile")),
    transposed=("False", boolean)),
    blames={"dst": "value"},
)  # fmt: skip
row("normalize", "pk.normalize({o}, {l})", o=("tile", _TILE), l=("rows", _ROWS))
