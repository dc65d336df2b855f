"""Rows of the operations element by element, creations of values, reductions and scans."""

from __future__ import annotations

from inspect import signature

import pykittens as pk
from pykittens.ir.op import ScalarMeaning
from pykittens.ops.core import OPS
from pykittens.ops.map import MAP
from tests.mistakes.operands import (
    HANDLE,
    Rule,
    all_of,
    any_of,
    dtype_word,
    fits,
    in_registers,
    index,
    nothing,
    one_of,
    placed,
    python_number,
    register_tile,
    register_vector,
    same_as_tile,
    size,
)
from tests.mistakes.rows import ANY, FLOAT, NUMBER, TABLE, row, row_of_rows, row_with
from tests.mistakes.things import THINGS

# -- element by element ----------------------------------------------------------------------------


def unary(kinds: tuple[str, ...]) -> Rule:
    return any_of(in_registers(*kinds), python_number(*kinds))


row(
    "gelu",
    "pk.gelu({a}, {approximate})",
    a=("tile", unary(FLOAT)),
    approximate=('"none"', one_of()),
)
row_with("gelu_erf", "pk.gelu({a})", {"a": ("tile", unary(FLOAT))}, shown="gelu")
row_with("gelu_tanh", 'pk.gelu({a}, "tanh")', {"a": ("tile", unary(FLOAT))}, shown="gelu")
row_with("neg", "-{a}", {"a": ("tile", in_registers(*NUMBER))}, of={"a": HANDLE})
row_with("bitwise_not", "~{a}", {"a": ("int_tile", in_registers("int", "bool"))}, of={"a": HANDLE})
row("logical_not", "pk.logical_not({a})", a=("bool_tile", unary(("bool",))))
row("to", "{x}.to({dtype})", x=("tile", in_registers(*ANY)), dtype=("pk.bf16", dtype_word()))
TABLE["to"].of["x"] = HANDLE

_BINARY = {
    "add": ("+", "tile"), "sub": ("-", "tile"), "mul": ("*", "tile"), "div": ("/", "tile"),
    "less": ("<", "tile"), "less_equal": ("<=", "tile"), "greater": (">", "tile"),
    "greater_equal": (">=", "tile"), "equal": ("==", "tile"), "not_equal": ("!=", "tile"),
    "floor_div": ("//", "int_tile"), "floor_mod": ("%", "int_tile"), "bitwise_and": ("&", "int_tile"),
    "bitwise_or": ("|", "int_tile"), "bitwise_xor": ("^", "int_tile"), "pow": ("**", "tile"),
    "shift_left": ("<<", "int_tile"), "shift_right": (">>", "int_tile"),
}  # fmt: skip
for _name, (_symbol, _good) in _BINARY.items():
    _rule = fits(THINGS[_good].dtype)
    if _symbol in ("//", "%"):
        _rule = all_of(_rule, lambda t: t.name != "True")
    # Of other things on the left `==` is Python's own.
    _own = in_registers(*ANY) if _symbol in ("==", "!=") else HANDLE
    row_with(
        _name,
        f"{{a}} {_symbol} {{b}}",
        {"a": (_good, all_of(HANDLE, _rule)), "b": (_good, _rule)},
        of={"a": _own},
        blames={"b": "n"},
    )
for _name, _op in OPS.items():
    # The other operations of the family follow from their kinds.
    if _op.family is MAP and _name not in TABLE:
        assert isinstance(_op.scalar, ScalarMeaning)
        _operands = tuple(signature(_op.function).parameters)
        _rule = unary(_op.scalar.kinds) if len(_operands) == 1 else same_as_tile
        _call = f"pk.{_name}({', '.join(f'{{{x}}}' for x in _operands)})"
        row(_name, _call, **dict.fromkeys(_operands, ("tile", _rule)))
for _name in ("logical_and", "logical_or", "logical_xor"):
    _rule = all_of(fits(pk.bool_), lambda t: t.kind != "number" or t.name == "True")
    row(_name, f"pk.{_name}({{a}}, {{b}})", a=("bool_tile", _rule), b=("bool_tile", _rule))
_rule = all_of(fits(pk.int32, tile=False), lambda t: t.name != "True")
row_with(
    "cdiv",
    "pk.cdiv({a}, {b})",
    {"a": ("count", _rule), "b": ("count", all_of(_rule, lambda t: t.name != "0"))},
    scalars=True,
)
row(
    "where",
    "pk.where({condition}, {a}, {b})",
    condition=(
        "bool_tile",
        all_of(in_registers("bool"), lambda t: t.kind == "scalar" or placed(t)),
    ),
    a=("tile", same_as_tile),
    b=("tile", same_as_tile),
)

# -- making ----------------------------------------------------------------------------------------

row_of_rows(
    "zeros",
    "pk.zeros({dtype}, {rows}, {cols}, spread={spread})",
    dtype=("pk.f32", dtype_word()), rows=("64", size(64)), cols=("64", any_of(size(16), nothing)),
    spread=("pk.plain", one_of()),
)  # fmt: skip
row_of_rows(
    "full",
    "pk.full({dtype}, {value}, {rows}, {cols}, spread={spread})",
    dtype=("pk.f32", dtype_word()), value=("3", fits(pk.f32, tile=False)),
    rows=("64", size(64)), cols=("64", any_of(size(16), nothing)), spread=("pk.plain", one_of()),
)  # fmt: skip
row("iota", "pk.iota({length})", length=("64", size()))
row_of_rows("row_index", "pk.row_index({rows})", rows=("64", size(64)))
row("col_index", "pk.col_index({cols})", cols=("64", size(16)))
row_of_rows(
    "random_bits",
    "pk.random_bits({seed}, {row}, {col}, rows={rows}, cols={cols}, stream={stream}, seed_high={seed_high})",
    rows=("64", any_of(size(64), nothing)), cols=("64", size(16)),
    **dict.fromkeys(("seed", "row", "col", "stream", "seed_high"), ("3", index())),
)  # fmt: skip

# -- reductions and scans --------------------------------------------------------------------------

_REDUCTIONS = {
    **dict.fromkeys(("sum", "prod", "max", "min", "argmax", "argmin"), NUMBER),
    **dict.fromkeys(("any", "all"), ("bool",)),
}
for _name, _kinds in _REDUCTIONS.items():
    _good = "bool_tile" if _kinds == ("bool",) else "tile"
    for _side in ("row", "col"):
        row(
            f"{_side}_{_name}",
            f"pk.{_side}_{_name}({{tile}})",
            tile=(_good, register_tile(*_kinds)),
        )
    _rule = all_of(in_registers(*_kinds), lambda t: t.kind != "scalar")
    row(_name, f"pk.{_name}({{x}})", x=(_good, _rule))
for _name in ("cumsum", "cumprod", "cummax", "cummin"):
    _rule = all_of(register_vector("plain"), in_registers(*NUMBER))
    row(_name, f"pk.{_name}({{vector}})", vector=("vector", _rule))
    for _side in ("row", "col"):
        _rule = register_tile(*NUMBER)
        row(f"{_side}_{_name}", f"pk.{_side}_{_name}({{tile}})", tile=("tile", _rule))
