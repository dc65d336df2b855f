"""Outer sums, differences and products of two plain vectors."""

from __future__ import annotations

from typing import Any

from pykittens.ir.values import RegTile, RegVector
from pykittens.lang.std.operands import check_kinds, check_vector
from pykittens.ops.core import composed
from pykittens.ops.creation import check_cols, check_rows
from pykittens.ops.map import common_dtype
from pykittens.ops.shape import spread
from pykittens.types.tiles import Spread, per_column, per_row


@composed
def outer_add(a: RegVector, b: RegVector) -> RegTile:
    """The tile a[i] + b[j] of two plain vectors."""
    down, along = _spread(a, b)
    return down + along


@composed
def outer_sub(a: RegVector, b: RegVector) -> RegTile:
    """The tile a[i] - b[j] of two plain vectors."""
    down, along = _spread(a, b)
    return down - along


@composed
def outer_mul(a: RegVector, b: RegVector) -> RegTile:
    """The tile a[i] * b[j] of two plain vectors."""
    down, along = _spread(a, b)
    return down * along


def _spread(a: Any, b: Any) -> tuple[RegVector, RegVector]:
    for name, x in (("a", a), ("b", b)):
        check_vector(name, x, *Spread)
        check_kinds(name, x)
    common_dtype({"a": a, "b": b})
    check_rows("a.length", a.length)
    check_cols("b.length", b.length)
    return spread(a, per_row), spread(b, per_column)
