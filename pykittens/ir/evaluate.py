"""Values that the host knows: extents, scalar arguments and what is computed from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykittens.ir.nodes import Call
from pykittens.ir.values import Scalar, Value


def host_value(value: Any, known: Mapping[Value, Any]) -> Any:
    """The number a value has for these arguments, None if only a running kernel knows it."""
    if not isinstance(value, Value):
        return value
    if value in known:
        return known[value]
    if not isinstance(value, Scalar) or not isinstance(value.source, Call):
        return None
    args = {name: host_value(a, known) for name, a in value.source.args.items()}
    if any(a is None for a in args.values()):
        return None
    return value.source.op.evaluate(args)


def depends_on(value: Any, parameters: set[Value]) -> bool:
    """Whether a host value is computed from one of these parameters."""
    if not isinstance(value, Value):
        return False
    if value in parameters:
        return True
    return isinstance(value.source, Call) and any(
        depends_on(a, parameters) for a in value.source.args.values()
    )
