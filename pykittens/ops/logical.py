"""Logic on bools: tiles and vectors element by element, and run-time conditions.

Operations on Python's bools are computed at once, also outside kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.ir.combining import Operand, X, binary
from pykittens.ir.op import Family, Mismatch, Op, ScalarMeaning
from pykittens.ir.values import describe
from pykittens.ops.core import op
from pykittens.ops.map import COMPARED, Registers, RegisterType, together
from pykittens.types.dtypes import bool_
from pykittens.types.tiles import with_dtype


def _truth_type(op: Op[Any], args: dict[str, Any]) -> RegisterType:
    for name, a in args.items():
        if not (isinstance(a, Registers) and a.dtype == bool_) and not isinstance(a, bool):
            raise Mismatch(f"`{name}` must be a bool, not {describe(a)}", help=COMPARED)
    return with_dtype(together(args), bool_)


def _truth_numpy(op: Op[Any], args: dict[str, Any]) -> Any:
    assert op.scalar is not None
    return op.scalar.numpy(*args.values())


TRUTH = Family("truth", _truth_type, _truth_numpy, by_element=True)


def _truth(function: Any, c: str) -> ScalarMeaning:
    return ScalarMeaning(function, c, kinds=("bool",), hint=COMPARED)


@op(family=TRUTH, scalar=_truth(np.logical_and, "{0} && {1}"), operator="and")
@binary
def logical_and(a: Operand, b: Operand) -> Any:
    """Whether both are true; `and` in a kernel."""


@op(family=TRUTH, scalar=_truth(np.logical_or, "{0} || {1}"), operator="or")
@binary
def logical_or(a: Operand, b: Operand) -> Any:
    """Whether at least one is true; `or` in a kernel."""


@op(family=TRUTH, scalar=_truth(np.logical_xor, "{0} != {1}"))
@binary
def logical_xor(a: Operand, b: Operand) -> Any:
    """Whether exactly one is true."""


@op(family=TRUTH, scalar=_truth(np.logical_not, "!{0}"), operator="not")
def logical_not(a: X) -> X:
    """Whether `a` is false; `not` in a kernel."""
