"""Integer division rounded up or down, of coordinates and extents, and element by element.

Python numbers are divided at once, also outside kernels. Division of a scalar by 0 is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import numpy as np

from pykittens.errors import AccessError
from pykittens.ir.combining import Operand, binary
from pykittens.ir.op import Family, Mismatch, Op, ScalarMeaning
from pykittens.ir.values import Int, Scalar, describe
from pykittens.ops.core import op, typed
from pykittens.ops.map import INT, Registers, RegisterType, common_dtype, map_numpy, together
from pykittens.types.tiles import SCALAR, with_dtype


def _integer_type(op: Op[Any], args: dict[str, Any]) -> RegisterType:
    for name, a in args.items():
        is_int = a.dtype.is_int if isinstance(a, Registers) else isinstance(a, int)
        if not is_int or isinstance(a, bool):
            raise Mismatch(
                f"`{name}` must be an integer, not {describe(a)}",
                help="use `/` for floats"
                if op.name == "floor_div"
                else f"convert it: `{name}.to(pk.int32)`"
                if isinstance(a, Registers)
                else None,
            )
    type_ = with_dtype(together(args), common_dtype(args))
    if isinstance(type_, SCALAR) and isinstance(args["b"], int) and args["b"] == 0:
        raise Mismatch("`b` must be nonzero, not 0")
    return type_


INTEGER = Family("integer", _integer_type, map_numpy, by_element=True)


def _division(
    name: str, c: str, quotient: str, function: Callable[[Any, Any], Any]
) -> ScalarMeaning:
    """The meaning of a division that gives 0 for elements divided by 0, and raises for a number divided by 0."""

    def divide(a: Any, b: Any) -> Any:
        if isinstance(b, np.ndarray):
            return np.where(b == 0, 0, function(a, np.where(b == 0, 1, b)))
        if b == 0:
            raise AccessError(f"{name}: {a} is divided by 0")
        return function(a, b)

    return ScalarMeaning(divide, c, kinds=INT, quotient=quotient)


_FLOOR_DIV = _division("floor_div", "floor_div({0}, {1})", "{0} // {1}", lambda a, b: a // b)
_FLOOR_MOD = _division("floor_mod", "floor_mod({0}, {1})", "{0} % {1}", lambda a, b: a % b)
_CEIL_DIV = _division("cdiv", "ceil_div({0}, {1})", "-(-{0} // {1})", lambda a, b: -(-a // b))


@op(family=INTEGER, scalar=_FLOOR_DIV, operator="//")
@binary
def floor_div(a: Operand, b: Operand) -> Any:
    """The largest integer not above a / b. In tiles and vectors, x // 0 is 0, and the smallest integer // -1 wraps."""


@op(family=INTEGER, scalar=_FLOOR_MOD, operator="%")
@binary
def floor_mod(a: Operand, b: Operand) -> Any:
    """a - b * (a // b), which has the sign of b. In tiles and vectors, x % 0 is 0."""


class CeilDiv:
    """The type of `cdiv`, for type checkers."""

    @overload
    def __call__(self, a: int, b: int) -> int: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, a: Int, b: Int) -> Scalar: ...
    def __call__(self, a: Any, b: Any) -> Any:
        """See `cdiv`."""


@op(family=INTEGER, scalar=_CEIL_DIV, operator="cdiv")
@typed(CeilDiv)
def cdiv(a: Int, b: Int) -> Any:
    """The smallest integer not below a / b: the number of tiles of b that cover a. For scalars only."""


@cdiv.type
def _cdiv_type(a: Any, b: Any) -> RegisterType:
    type_ = _integer_type(cdiv, {"a": a, "b": b})
    if not isinstance(type_, SCALAR):
        name, other = ("b", b) if isinstance(a, int | Scalar) else ("a", a)
        raise Mismatch(
            f"`{name}` must be a scalar, not {describe(other)}",
            help="-(-a // b) rounds up element by element",
        )
    return type_
