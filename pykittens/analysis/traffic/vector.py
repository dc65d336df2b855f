"""Scalars of a kernel in many tasks and iterations at once: a lane is one iteration of the innermost open loop.

A value is a number if it is the same in all lanes, an array if it is not, and None if only a running kernel knows it.
Values are computed on demand, so those that only concern registers and barriers are never computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pykittens.ir.evaluate import definition, fold
from pykittens.ir.nodes import Call
from pykittens.ir.values import Scalar, Value
from pykittens.types.dtypes import DType

Column = Any  # a number, an array with a number per lane, or None
IntArray = np.ndarray[Any, np.dtype[np.int64]]

_WIDE: dict[str, Any] = {"int": np.int64, "bool": np.bool_, "float": np.float32}


class Later:
    """A value that is computed on demand."""

    def __init__(self, compute: Callable[[], Column]) -> None:
        self.compute = compute


class Columns:
    """The values of `count` lanes in a block; lane i continues lane `rows[i]` of the parent, or lane i without rows."""

    def __init__(
        self,
        count: int,
        known: Mapping[Value, Column],
        parent: Columns | None = None,
        rows: Any = None,
    ) -> None:
        self.count, self.parent, self.rows = count, parent, rows
        self.known: dict[Value, Column] = dict(known)
        # The number that a call reads from memory, None if it is not known.
        self.reads: Callable[[Call, Columns], Column] = parent.reads if parent else _unread

    def part(self, rows: IntArray) -> Columns:
        """The lanes with these numbers, which may repeat."""
        return Columns(len(rows), {}, self, rows)

    def value(self, thing: Any) -> Column:
        """The number or numbers of a value in these lanes; a tuple of values gives a tuple."""
        if isinstance(thing, tuple):
            return tuple(map(self.value, thing))
        if not isinstance(thing, Value):
            return thing
        if thing not in self.known:
            self.known[thing] = self._found(thing)
        found = self.known[thing]
        if isinstance(found, Later):
            found = self.known[thing] = found.compute()
        return found

    def _found(self, value: Value) -> Column:
        if (call := definition(value)) is not None:
            return self._computed(call, value.dtype)
        if isinstance(value.source, Call):
            return self.reads(value.source, self) if isinstance(value, Scalar) else None
        return None if self.parent is None else taken(self.parent.value(value), self.rows)

    def _computed(self, call: Call, dtype: DType) -> Column:
        with np.errstate(all="ignore"):
            result = fold(call, self.value)
        if result is None:
            return None
        if call.op.scalar is not None and call.op.scalar.wraps:
            result = dtype.wrapped(result)
        return as_column(result, dtype)


def _unread(call: Call, lanes: Columns) -> Column:
    return None


def as_column(value: Any, dtype: DType) -> Column:
    """A result as lanes hold it: integers have 64 bits, so that none overflows."""
    if np.ndim(value):
        return np.asarray(value).astype(_WIDE[dtype.kind], copy=False)
    return {"int": int, "bool": bool, "float": np.float32}[dtype.kind](value)


def taken(value: Column, rows: IntArray | None) -> Column:
    """A value in other lanes: lane i has the number of lane rows[i]."""
    return value[rows] if rows is not None and np.ndim(value) else value


def put(old: Column, rows: IntArray, new: Column, count: int, dtype: DType) -> Column:
    """A value of `count` lanes, with new numbers in the lanes `rows`."""
    if len(rows) == count:
        return new
    if old is None or new is None:
        return None
    whole = np.array(np.broadcast_to(old, count), _WIDE[dtype.kind])
    whole[rows] = new
    return whole
