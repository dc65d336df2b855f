"""Parses types: `rt<bf16, 64x64>`, `rv<f32, 64, per row>`; `parse(str(t)) == t`.

The text of a tensor or a shared tile has neither alignment nor owner: a parsed type is aligned and no view.
"""

from __future__ import annotations

import re

from pykittens.errors import ArgumentError
from pykittens.types.dtypes import DTYPES, DType
from pykittens.types.tiles import GL, RT, RV, SCALAR, Spread, Type, shared_tile

_TYPE = re.compile(r"(?P<kind>gl|st|rt|rv)\s*<(?P<parts>[^<>]*)>")
_FORMS = {
    "gl": "gl<dtype, rank>, such as gl<bf16, 2>",
    "st": "st<dtype, ROWSxCOLS>, such as st<bf16, 64x64>",
    "rt": "rt<dtype, ROWSxCOLS>, such as rt<f32, 64x256>",
    "rv": "rv<dtype, length, spread>, such as rv<f32, 64, per row>; spreads are "
    + ", ".join(map(str, Spread)),
}


def parse(text: str) -> Type:
    """The type that prints as `text`; raises ArgumentError if there is none."""
    stripped = text.strip()
    if stripped in DTYPES:
        return SCALAR(DTYPES[stripped])
    match = _TYPE.fullmatch(stripped)
    if match is None:
        raise ArgumentError(f"`{text}` is not a type", help="; ".join(_FORMS.values()))
    kind, parts = match["kind"], [" ".join(p.split()) for p in match["parts"].split(",")]
    dtype = _dtype(text, parts[0])
    match kind, parts[1:]:
        case "gl", [rank] if _is_size(rank):
            return GL(dtype, int(rank))
        case (("st" | "rt"), [shape]) if len(sides := _sides(shape)) == 2:
            return shared_tile(dtype, *sides) if kind == "st" else RT(dtype, *sides)
        case "rv", [length, spread] if _is_size(length) and spread in map(str, Spread):
            return RV(dtype, int(length), Spread(spread))
    raise ArgumentError(f"`{text}` is not a type", help=f"the form is {_FORMS[kind]}")


def _dtype(text: str, name: str) -> DType:
    if name not in DTYPES:
        raise ArgumentError(
            f"`{text}`: there is no dtype `{name}`", help=f"the dtypes are {', '.join(DTYPES)}"
        )
    return DTYPES[name]


def _sides(shape: str) -> tuple[int, ...]:
    """The numbers of `64x256`; none if one of them is no size."""
    sides = [side.strip() for side in shape.split("x")]
    return tuple(map(int, sides)) if all(map(_is_size, sides)) else ()


def _is_size(text: str) -> bool:
    return re.fullmatch("[1-9][0-9]*", text) is not None
