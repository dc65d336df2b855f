"""Arithmetic element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.ir.op import ScalarMeaning
from pykittens.ops.core import op
from pykittens.ops.map import FLOAT, MAP, Operand, computed, rounded


@op(family=MAP, scalar=ScalarMeaning(lambda a, b: a + b, "{0} + {1}"), operator="+")
def add(a: Operand, b: Operand) -> Any:
    """a + b."""


@op(family=MAP, scalar=ScalarMeaning(lambda a, b: a - b, "{0} - {1}"), operator="-")
def sub(a: Operand, b: Operand) -> Any:
    """a - b."""


@op(family=MAP, scalar=ScalarMeaning(lambda a, b: a * b, "{0} * {1}"), operator="*")
def mul(a: Operand, b: Operand) -> Any:
    """a * b."""


@op(
    family=MAP,
    scalar=ScalarMeaning(
        lambda a, b: a / b,
        "{0} / {1}",
        kinds=FLOAT,
        hint="integers are divided with `//`, which floors",
    ),
    operator="/",
)
def div(a: Operand, b: Operand) -> Any:
    """a / b. Where b is one value for many of a (a vector beside a tile, a scalar beside either) it is
    a * (1 / b): one reciprocal each, within 1.5 units in the last place of the quotient."""


@div.numpy
def _div(a: Any, b: Any) -> Any:
    x, y = computed([a, b])
    if np.size(y) < np.size(x):
        return rounded(x * (np.float32(1) / y), [a, b])
    return rounded(x / y, [a, b])


@op(family=MAP, scalar=ScalarMeaning(lambda a: -a, "-{0}"), operator="neg")
def neg(a: Operand) -> Any:
    """-a."""


@op(family=MAP, scalar=ScalarMeaning(np.maximum, "max_nan({0}, {1})"))
def maximum(a: Operand, b: Operand) -> Any:
    """The larger of a and b; NaN if one of them is."""


@op(family=MAP, scalar=ScalarMeaning(np.minimum, "min_nan({0}, {1})"))
def minimum(a: Operand, b: Operand) -> Any:
    """The smaller of a and b; NaN if one of them is."""
