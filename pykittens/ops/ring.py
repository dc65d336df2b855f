"""Questions about rings of shared stages."""

from __future__ import annotations

from typing import Any

from pykittens.ir.build import current
from pykittens.ir.op import Effects, Mismatch
from pykittens.ir.stages import Pipeline
from pykittens.ir.values import Scalar
from pykittens.ops.arguments import check_between
from pykittens.ops.core import op
from pykittens.types.dtypes import bool_
from pykittens.types.tiles import SCALAR

MOST_CYCLES = 2**20  # that a question may wait


@op(effects=Effects(stays=True))
def is_full(ring: Pipeline, after: int) -> Scalar:
    """`ring.is_full(after)`: whether the next fill of a ring would wait, and would after so many cycles of the clock.

    It returns as soon as a stage is free. Only a role of one warp that fills the ring may ask.
    """


@is_full.type
def _is_full_type(ring: Any, after: Any) -> SCALAR:
    check_between("after", after, 0, MOST_CYCLES)
    if (warps := current("is_full").warps) > 1:
        raise Mismatch(f"must be in a group of 1 warp, not of {warps}, all of which take part")
    return SCALAR(bool_)


@is_full.numpy
def _is_full_numpy(ring: Any, after: int) -> bool:
    return bool(ring)  # the machine that runs the role puts the answer in the place of the ring
