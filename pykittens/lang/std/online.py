"""Online softmax: a softmax along rows whose parts arrive one at a time."""

from __future__ import annotations

import math
from typing import Any, overload

from pykittens.ir.combining import Number
from pykittens.ir.op import Mismatch
from pykittens.ir.values import RegTile, RegVector, describe
from pykittens.lang.control import function
from pykittens.lang.std.operands import check_tile_of, check_together, check_vector
from pykittens.ops.arguments import check_dtype
from pykittens.ops.arithmetic import maximum
from pykittens.ops.compare import where
from pykittens.ops.core import composed
from pykittens.ops.functions import exp2
from pykittens.ops.map import FLOAT
from pykittens.ops.reduce import row_max, row_sum
from pykittens.types.dtypes import DType
from pykittens.types.tiles import per_row

inf = math.inf
log2e = math.log2(math.e)


@overload
def online_softmax(
    s: RegTile, scale: Number, *, to: DType
) -> tuple[RegTile, RegVector, RegVector, None]: ...
@overload
def online_softmax(
    s: RegTile, scale: Number, m: RegVector, l: RegVector, *, to: DType
) -> tuple[RegTile, RegVector, RegVector, RegVector]: ...
@overload
def online_softmax(
    s: RegTile, scale: Number, m: RegVector | None, l: RegVector | None, *, to: DType
) -> tuple[RegTile, RegVector, RegVector, RegVector | None]: ...
@composed
@function
def online_softmax(
    s: RegTile,
    scale: Number,
    m: RegVector | None = None,
    l: RegVector | None = None,  # noqa: E741
    *,
    to: DType,
) -> tuple[RegTile, RegVector, RegVector, RegVector | None]:
    """One step of a softmax along rows whose parts arrive one at a time: (p, m, l, alpha).

    p = 2^((s - m) scale) rounded to `to`; m is the row maximum so far, unscaled; l is the sum of p so far, in f32
    before the rounding; alpha is the factor by which to multiply earlier sums, None in the first step. `scale` > 0
    includes log2(e). A row of -inf only gives p = 0.
    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
    """
    _check_softmax(s, scale, m, l, to)
    highest = row_max(s) if m is None else maximum(m, row_max(s))
    shift = where(highest == -inf, 0.0, highest) * scale
    p = exp2(s * scale - shift)
    if m is None or l is None:
        return p.to(to), highest, row_sum(p), None
    alpha = exp2(m * scale - shift)
    return p.to(to), highest, l * alpha + row_sum(p), alpha


@composed
@function
def normalize(o: RegTile, l: RegVector) -> RegTile:  # noqa: E741
    """o / l row by row, and 0 where l is 0, as in a row of -inf only."""
    check_tile_of(FLOAT, "o", o)
    check_vector("l", l, per_row)
    check_together(o=o, l=l)
    empty = l == 0.0
    inverse = where(empty, 0.0, 1.0 / where(empty, 1.0, l))
    return o * inverse


def _check_softmax(s: Any, scale: Any, m: Any, l: Any, to: Any) -> None:  # noqa: E741
    check_tile_of(FLOAT, "s", s)
    check_together(s=s, scale=scale)
    if (m is None) != (l is None):
        raise Mismatch(
            f"`m` and `l` must both be given or neither, not {describe(m)} and {describe(l)}",
            help="pass the `m` and `l` that the previous step returned",
        )
    if m is not None:
        for name, vector in (("m", m), ("l", l)):
            check_vector(name, vector, per_row)
            check_together(s=s, **{name: vector})
    check_dtype("to", to, *FLOAT)
