"""Functions of scores: `attention(q, k, v, score=soft_cap, tensors=(50.0,))`.

A function (s, place, *tensors) takes a tile of scaled scores in f32 and returns what the softmax takes. `place` says
where the tile lies (`Place`): `place.b`, `place.h`, the vectors of positions `place.i` and `place.j`, and
`place.tile(tensor)`. The backward pass takes the derivative by s from the operations that the function records.
"""

from __future__ import annotations

from typing import Any

import pykittens as pk


@pk.function
def soft_cap(s: Any, place: Any, cap: Any) -> Any:
    """cap tanh(s / cap): scores between -cap and cap."""
    return pk.tanh(s / cap) * cap


@pk.function
def linear_bias(s: Any, place: Any, slopes: Any) -> Any:
    """s - slopes[h] |i - j|, ALiBi; slopes: f32 (heads,). Source: Press et al., "Train Short, Test Long", 2021."""
    return s - pk.abs(place.i - place.j).to(pk.f32) * pk.load(slopes[place.h])


@pk.function
def bias(s: Any, place: Any, table: Any) -> Any:
    """s + table; table: (batch, heads, queries, keys), of any float."""
    return s + place.tile(table).to(pk.f32)


@pk.function
def allowed(s: Any, place: Any, table: Any) -> Any:
    """s where the table is not 0, else -inf; table: int8 or uint8 (batch, heads, queries, keys)."""
    return pk.where(place.tile(table).to(pk.int32) != 0, s, -pk.inf)


@pk.function
def same_document(s: Any, place: Any, documents: Any) -> Any:
    """s where query and key have one document, else -inf; documents: int32 (batch, length)."""
    row = pk.load(documents[place.b, place.row], cols=place.rows, spread=_spread(place, False))
    column = pk.load(
        documents[place.b, place.column], cols=place.columns, spread=_spread(place, True)
    )
    return pk.where(row == column, s, -pk.inf)


def _spread(place: Any, is_of_keys: bool) -> Any:
    return pk.per_row if place.transposed == is_of_keys else pk.per_column
