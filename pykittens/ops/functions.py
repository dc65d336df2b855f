"""Functions of floats element by element. Each states its error and where it holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.ops.core import op
from pykittens.ops.map import MAP, Operand, float_map


@op(family=MAP, scalar=float_map(np.exp, "exp_fast({0})"))
def exp(a: Operand) -> Any:
    """e to the power a, as 2 to the power a log2(e): relative error below 2**-21 + |a| 2**-24; 0 below -87.3."""


@op(family=MAP, scalar=float_map(np.exp2, "exp2_fast({0})"))
def exp2(a: Operand) -> Any:
    """2 to the power a: relative error below 2**-22; results below 2**-126 are 0 (PTX `ex2.approx.ftz`)."""


@op(family=MAP, scalar=float_map(lambda a: np.float32(1) / np.sqrt(a), "rsqrt_fast({0})"))
def rsqrt(a: Operand) -> Any:
    """1 / sqrt(a): relative error below 2**-22; infinity at 0, NaN below (PTX `rsqrt.approx.ftz`)."""
