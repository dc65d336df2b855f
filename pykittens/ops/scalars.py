"""Integer division rounded up or down, of coordinates and extents, and element by element.

On Python numbers they are done at once, also outside kernels. A scalar divided by 0 is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pykittens.errors import AccessError
from pykittens.ir.op import Family, Mismatch, Op, ScalarMeaning
from pykittens.ir.values import Scalar, describe
from pykittens.ops.core import op
from pykittens.ops.map import (
    INT,
    Operand,
    Registers,
    RegisterType,
    common_dtype,
    map_numpy,
    together,
)
from pykittens.types.tiles import SCALAR, with_dtype


def _integer_type(op: Op[..., Any], args: dict[str, Any]) -> RegisterType:
    for name, a in args.items():
        is_int = a.dtype.is_int if isinstance(a, Registers) else isinstance(a, int)
        if not is_int or isinstance(a, bool):
            raise Mismatch(
                f"`{name}` must be an integer, not {describe(a)}",
                help="floats are divided with `/`"
                if op.name == "floor_div"
                else f"`{name}.to(pk.int32)` is one"
                if isinstance(a, Registers)
                else None,
            )
    type_ = with_dtype(together(args), common_dtype(args))
    if isinstance(type_, SCALAR) and isinstance(args["b"], int) and args["b"] == 0:
        raise Mismatch("`b` must be other than 0, not 0")
    return type_


INTEGER = Family("integer", _integer_type, map_numpy)


def _divided(name: str, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A division that gives 0 for elements divided by 0, and for a number a fault in place of Python's own."""

    def divide(a: Any, b: Any) -> Any:
        if isinstance(b, np.ndarray):
            return np.where(b == 0, 0, function(a, np.where(b == 0, 1, b)))
        if b == 0:
            raise AccessError(f"{name}: {a} is divided by 0")
        return function(a, b)

    return divide


@op(
    family=INTEGER,
    scalar=ScalarMeaning(
        _divided("floor_div", lambda a, b: a // b),
        "floor_div({0}, {1})",
        kinds=INT,
        quotient="{0} // {1}",
    ),
    operator="//",
)
def floor_div(a: Operand, b: Operand) -> Any:
    """The largest integer not above a / b. In tiles and vectors 0 where b is 0, and the least integer by -1 stays."""


@op(
    family=INTEGER,
    scalar=ScalarMeaning(
        _divided("floor_mod", lambda a, b: a % b),
        "floor_mod({0}, {1})",
        kinds=INT,
        quotient="{0} % {1}",
    ),
    operator="%",
)
def floor_mod(a: Operand, b: Operand) -> Any:
    """a - b * (a // b): it has the sign of b. In tiles and vectors 0 where b is 0."""


@op(
    family=INTEGER,
    scalar=ScalarMeaning(
        _divided("cdiv", lambda a, b: -(-a // b)),
        "ceil_div({0}, {1})",
        kinds=INT,
        quotient="-(-{0} // {1})",
    ),
    operator="cdiv",
)
def cdiv(a: Any, b: Any) -> Any:
    """The smallest integer not below a / b: how many tiles of b cover a. Of scalars only."""


@cdiv.type
def _cdiv_type(a: Any, b: Any) -> RegisterType:
    type_ = _integer_type(cdiv, {"a": a, "b": b})
    if not isinstance(type_, SCALAR):
        name, other = ("b", b) if isinstance(a, int | Scalar) else ("a", a)
        raise Mismatch(
            f"`{name}` must be a scalar, not {describe(other)}", help="-(-a // b) rounds up, too"
        )
    return type_
