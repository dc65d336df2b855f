"""Functions of scores: `attention(q, k, v, score=soft_cap, tensors=(50.0,))`.

A function (s, place, *tensors) takes a tile of scaled scores in f32 and returns what the softmax takes. `place` says
where the tile lies (`Place`): `place.b`, `place.h`, the vectors of positions `place.i` and `place.j`, and the elements
of tensors there, `place.tile(tensor)`, `place.of_heads(tensor)`, `place.of_queries(tensor)`, `place.of_keys(tensor)`.
The backward pass takes the derivative by s from the operations that the function records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pykittens as pk

F = Callable[..., Any]


def by_row(function: F) -> F:
    """Decorator: the function may get tiles whose rows are queries of several heads, as a call with few queries has.

    `place.h` is then a vector with the head of each row, which `place.of_heads(tensor)` takes into account, and
    `place.row` raises an error. Without the decorator each head has tiles of its own.

    >>> by_row(soft_cap).by_row
    True
    """
    setattr(function, "by_row", True)  # noqa: B010 # a function of any kind
    return function


@by_row
@pk.function
def soft_cap(s: Any, place: Any, cap: Any) -> Any:
    """cap tanh(s / cap): scores between -cap and cap."""
    return pk.tanh(s / cap) * cap


@by_row
@pk.function
def linear_bias(s: Any, place: Any, slopes: Any) -> Any:
    """s - slopes[h] |i - j|, ALiBi; slopes: f32 (heads,). Source: Press et al., "Train Short, Test Long", 2021."""
    return s - pk.abs(place.i - place.j).to(pk.f32) * place.of_heads(slopes)


@by_row
@pk.function
def bias(s: Any, place: Any, table: Any) -> Any:
    """s + table; table: (batch, heads, queries, keys), of any float."""
    return s + place.tile(table).to(pk.f32)


@by_row
@pk.function
def allowed(s: Any, place: Any, table: Any) -> Any:
    """s where the table is not 0, else -inf; table: int8 or uint8 (batch, heads, queries, keys)."""
    return pk.where(place.tile(table).to(pk.int32) != 0, s, -pk.inf)


@by_row
@pk.function
def same_document(s: Any, place: Any, documents: Any) -> Any:
    """s where query and key have one document, else -inf; documents: int32 (batch, length)."""
    return pk.where(place.of_queries(documents) == place.of_keys(documents), s, -pk.inf)
