"""The derivative of an elementwise function of scores, from the operations that it has recorded.

A derivative is None where it is 0, a number, or a tile; the rules below are those of a forward mode, from the argument
to the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pykittens as pk
from pykittens.errors import LanguageError
from pykittens.ir.nodes import Call
from pykittens.ir.values import RegTile, Value

Slope = Any  # None, a number or a tile


def derivative(y: Any, x: RegTile) -> Slope:
    """dy / dx element by element, for a y that operations of RULES have made of x."""
    return _slope(y, x, {x: 1.0})


def _slope(y: Any, x: RegTile, known: dict[Any, Slope]) -> Slope:
    if not isinstance(y, Value) or getattr(y, "dtype", None) == pk.bool_:
        return None
    if y not in known:
        call = y.source
        args = call.args if isinstance(call, Call) else {}
        slopes = {name: _slope(a, x, known) for name, a in args.items()}
        known[y] = None
        if any(slope is not None for slope in slopes.values()):
            assert isinstance(call, Call)
            rule = RULES.get(call.op.name)
            if rule is None:
                raise LanguageError(
                    f"attention: the derivative of pk.{call.op.shown} is not known, and the score's function uses it",
                    loc=call.loc,
                    help="pass score_gradient=, a function of the same arguments: the derivative by s",
                )
            known[y] = rule(y, list(args.values()), list(slopes.values()))
    return known[y]


def _times(slope: Slope, factor: Any) -> Slope:
    return (
        None
        if slope is None
        else factor
        if isinstance(slope, float) and slope == 1
        else slope * factor
    )


def _sum(a: Slope, b: Slope) -> Slope:
    return b if a is None else a if b is None else a + b


def _chosen(y: Any, condition: Any, a: Slope, b: Slope) -> Slope:
    def tile(slope: Slope) -> Any:
        if isinstance(slope, RegTile):
            return slope
        return pk.full(pk.f32, 0.0 if slope is None else slope, y.rows, y.cols)

    return pk.where(condition, tile(a), tile(b))


def _of(factor: Callable[[Any, Any], Any]) -> Callable[..., Slope]:
    """The rule of a function of one operand a, whose derivative is factor(y, a)."""
    return lambda y, args, slopes: _times(slopes[0], factor(y, args[0]))


def _quotient(y: Any, args: Any, slopes: Any) -> Slope:
    above, below = _times(slopes[0], 1.0 / args[1]), _times(slopes[1], -y / args[1])
    return _sum(above, below)


def _power(y: Any, args: Any, slopes: Any) -> Slope:
    by_exponent = _times(slopes[1], y * pk.log(args[0])) if slopes[1] is not None else None
    return _sum(_times(slopes[0], args[1] * pk.pow(args[0], args[1] - 1.0)), by_exponent)


def _clamped(y: Any, args: Any, slopes: Any) -> Slope:
    a, low, high = args
    return _chosen(y, (a >= low) & (a <= high), slopes[0], None)


RULES: dict[str, Callable[..., Slope]] = {
    "add": lambda y, args, d: _sum(d[0], d[1]),
    "sub": lambda y, args, d: _sum(d[0], _times(d[1], -1.0)),
    "mul": lambda y, args, d: _sum(_times(d[0], args[1]), _times(d[1], args[0])),
    "fma": lambda y, args, d: _sum(_sum(_times(d[0], args[1]), _times(d[1], args[0])), d[2]),
    "div": _quotient,
    "pow": _power,
    "clamp": _clamped,
    "neg": lambda y, args, d: _times(d[0], -1.0),
    "abs": lambda y, args, d: _chosen(y, args[0] < 0.0, _times(d[0], -1.0), d[0]),
    "maximum": lambda y, args, d: _chosen(y, args[0] >= args[1], d[0], d[1]),
    "minimum": lambda y, args, d: _chosen(y, args[0] <= args[1], d[0], d[1]),
    "where": lambda y, args, d: _chosen(y, args[0], d[1], d[2]),
    "to": lambda y, args, d: d[0],
    "exp": _of(lambda y, a: y),
    "exp2": _of(lambda y, a: y * math.log(2)),
    "expm1": _of(lambda y, a: y + 1.0),
    "log": _of(lambda y, a: 1.0 / a),
    "log2": _of(lambda y, a: 1.0 / (a * math.log(2))),
    "log1p": _of(lambda y, a: 1.0 / (a + 1.0)),
    "sqrt": _of(lambda y, a: 0.5 / y),
    "rsqrt": _of(lambda y, a: -0.5 * y / a),
    "sin": _of(lambda y, a: pk.cos(a)),
    "cos": _of(lambda y, a: -pk.sin(a)),
    "tanh": _of(lambda y, a: 1.0 - y * y),
    "erf": _of(lambda y, a: pk.exp(-a * a) * (2 / math.sqrt(math.pi))),
    "sigmoid": _of(lambda y, a: y * (1.0 - y)),
    "silu": _of(lambda y, a: y + pk.sigmoid(a) * (1.0 - y)),
    "softplus": _of(lambda y, a: pk.sigmoid(a)),
    "relu": lambda y, args, d: _chosen(y, args[0] > 0.0, d[0], None),
}
