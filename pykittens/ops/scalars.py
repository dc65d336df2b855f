"""Operations on run-time integers and truths: the arithmetic of coordinates and conditions.

On Python numbers they are done at once, also outside kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykittens.errors import AccessError
from pykittens.ir.op import Family, Mismatch, Op, ScalarMeaning
from pykittens.ir.values import Scalar, describe
from pykittens.ops.core import op
from pykittens.types.dtypes import bool_, int32
from pykittens.types.tiles import SCALAR


def _integer_type(op: Op[..., Any], args: dict[str, Any]) -> SCALAR:
    for name, a in args.items():
        if not (isinstance(a, Scalar) and a.dtype == int32) and not (
            isinstance(a, int) and not isinstance(a, bool)
        ):
            raise Mismatch(f"`{name}` must be an int32, not {describe(a)}")
    return SCALAR(int32)


def _truth_type(op: Op[..., Any], args: dict[str, Any]) -> SCALAR:
    for name, a in args.items():
        if not (isinstance(a, Scalar) and a.dtype == bool_) and not isinstance(a, bool):
            raise Mismatch(
                f"`{name}` must be a bool, not {describe(a)}", help="compare it, as in `x != 0`"
            )
    return SCALAR(bool_)


def _scalar_numpy(op: Op[..., Any], args: dict[str, Any]) -> Any:
    assert op.scalar is not None
    return op.scalar.numpy(*args.values())


INTEGER = Family("integer", _integer_type, _scalar_numpy)
TRUTH = Family("truth", _truth_type, _scalar_numpy)


def _divided(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A division with a fault of the language in place of Python's own."""

    def divide(a: Any, b: Any) -> Any:
        if b == 0:
            raise AccessError(f"{a} is divided by 0")
        return function(a, b)

    return divide


@op(
    family=INTEGER,
    scalar=ScalarMeaning(_divided(lambda a, b: a // b), "floor_div({0}, {1})"),
    operator="//",
)
def floor_div(a: Any, b: Any) -> Any:
    """The largest integer not above a / b."""


@op(
    family=INTEGER,
    scalar=ScalarMeaning(_divided(lambda a, b: a % b), "floor_mod({0}, {1})"),
    operator="%",
)
def floor_mod(a: Any, b: Any) -> Any:
    """a - b * (a // b): it has the sign of b."""


@op(
    family=INTEGER,
    scalar=ScalarMeaning(_divided(lambda a, b: -(-a // b)), "ceil_div({0}, {1})"),
    operator="cdiv",
)
def cdiv(a: Any, b: Any) -> Any:
    """The smallest integer not below a / b: how many tiles of b cover a."""


@op(family=TRUTH, scalar=ScalarMeaning(lambda a, b: a and b, "{0} && {1}"), operator="and")
def logical_and(a: Any, b: Any) -> Any:
    """Whether both hold; `and` in a kernel."""


@op(family=TRUTH, scalar=ScalarMeaning(lambda a, b: a or b, "{0} || {1}"), operator="or")
def logical_or(a: Any, b: Any) -> Any:
    """Whether one of them holds; `or` in a kernel."""


@op(family=TRUTH, scalar=ScalarMeaning(lambda a: not a, "!{0}"), operator="not")
def logical_not(a: Any) -> Any:
    """Whether it does not hold; `not` in a kernel."""
