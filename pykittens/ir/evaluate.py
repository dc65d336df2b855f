"""Values that the host knows: extents, scalar arguments and what is computed from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykittens.errors import KernelError
from pykittens.ir.nodes import Call, For, ForTasks, Grid, Role
from pykittens.ir.values import Scalar, Value


def host_value(value: Any, known: Mapping[Value, Any]) -> Any:
    """The number a value has for these arguments, None if only a running kernel knows it."""
    if isinstance(value, tuple):
        found = tuple(host_value(v, known) for v in value)
        return None if None in found else found
    if not isinstance(value, Value):
        return value
    if value in known:
        return known[value]
    if not isinstance(value, Scalar) or not isinstance(value.source, Call):
        return None
    args = {name: host_value(a, known) for name, a in value.source.args.items()}
    if any(a is None for a in args.values()):
        return None
    try:
        return value.source.op.evaluate(args)
    except KernelError as fault:
        fault.loc = value.source.loc  # in the kernel, not where it is called
        raise


def depends_on(value: Any, parameters: set[Value]) -> bool:
    """Whether a host value is computed from one of these parameters."""
    if not isinstance(value, Value):
        return False
    if value in parameters:
        return True
    return isinstance(value.source, Call) and any(
        depends_on(a, parameters) for a in value.source.args.values()
    )


def is_natural(value: Any) -> bool:
    """Whether a run-time int is never negative, as far as its origin tells: a coordinate of a task or of the grid."""
    if not isinstance(value, Value):
        return bool(value >= 0)
    match node := value.source:
        case Role():
            return True
        case Grid() | ForTasks():
            return any(value is index for index in node.index)
        case For():
            return value is node.index and node.step > 0 and is_natural(node.start)
        case _:
            return False
