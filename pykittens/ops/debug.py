"""Prints and assertions inside a kernel.

Lines look the same from the emulator and from a GPU: floats have six digits as with `%g`, bools are 0 and 1.
"""

from __future__ import annotations

import string
from contextvars import ContextVar
from typing import Any

import numpy as np

from pykittens.errors import AssertError
from pykittens.ir.combining import Operand
from pykittens.ir.op import Effects, Mismatch
from pykittens.ir.values import RegTile, RegVector, Scalar, describe
from pykittens.ops.arguments import check_text
from pykittens.ops.core import op
from pykittens.ops.map import Registers, check_registers, together
from pykittens.types.dtypes import bool_

# Whether pk.print prints: a check runs a kernel several times and prints its lines once at most.
shows: ContextVar[bool] = ContextVar("shows", default=True)


@op(effects=Effects(shows=True))
def print_(format: str, *values: Operand) -> None:
    """Print `format` with a value in place of each `{}`, as in pk.print("row {} has {}", row, total).

    Scalars print one line per group. Tiles and vectors print one line per element of their common shape, which begins
    with its coordinates, `[row, column] ` or `[index] `. The emulator prints lines row by row; on a GPU the order is
    undefined, and lines that do not fit the driver's buffer of a megabyte are lost.
    """


def pieces(format: str) -> list[str]:
    """The text before, between and after the fields of a format; raises Mismatch if a field is not `{}`."""
    texts, text = [], ""
    for literal, field, spec, conversion in string.Formatter().parse(format):
        text += literal
        if field is not None:
            if field or spec or conversion:
                raise Mismatch(
                    f"`format` must have `{{}}` as its only kind of field, not {{{field}}}",
                    help="double the braces that are text",
                )
            texts.append(text)
            text = ""
    return [*texts, text]


@print_.type
def _print_type(format: Any, values: Any) -> None:
    check_text("format", format)
    try:
        wanted = len(pieces(format)) - 1
    except ValueError as error:
        raise Mismatch(f"`format`: {error}") from None
    if wanted != len(values):
        raise Mismatch(
            f"`format` must have a field for each of the {len(values)} values, not {wanted}"
        )
    for position, value in enumerate(values):
        check_registers(f"values[{position}]", value)
    if arrays := spread_values(values):
        together(arrays)


def spread_values(values: Any) -> dict[str, Any]:
    """The tiles and vectors among the printed values, by name."""
    found = enumerate(values)
    return {f"values[{i}]": v for i, v in found if isinstance(v, RegTile | RegVector)}


@print_.numpy
def _print_numpy(format: str, values: Any) -> None:
    if not shows.get():
        return
    texts = pieces(format)
    shape = np.broadcast_shapes(*(np.shape(v) for v in values))
    spread = [np.broadcast_to(np.asarray(v), shape) for v in values]
    for index in np.ndindex(shape):
        line = f"{_position(index, shape)} " if shape else ""
        for text, value in zip(texts, spread, strict=False):
            line += text + shown(value[index])
        print(line + texts[-1])  # noqa: T201


def _position(index: Any, shape: tuple[int, ...]) -> str:
    """The coordinates of an element. A per-row vector is one column, a per-column vector one row: neither counts."""
    return f"[{', '.join(str(i) for i, n in zip(index, shape, strict=True) if n > 1)}]"


def shown(value: Any) -> str:
    """A number as pk.print prints it."""
    if np.issubdtype(type(value), np.integer) or isinstance(value, np.bool_):
        return str(int(value))
    return f"{float(value):g}"


@op(effects=Effects(shows=True))
def assert_(condition: RegTile | RegVector | Scalar, message: str) -> None:
    """Stop the kernel with this message unless the condition, a bool or a tile or vector of bools, is true everywhere.

    The emulator always checks it; a GPU checks it only in a launch for debugging.
    """


@assert_.type
def _assert_type(condition: Any, message: Any) -> None:
    if not isinstance(condition, Registers) or condition.dtype != bool_:
        known = isinstance(condition, bool)
        raise Mismatch(
            f"`condition` must be a run-time bool, not {describe(condition)}",
            help="Python's `assert` checks conditions that are known when the kernel is recorded"
            if known
            else "compare it, as in `x > 0`",
        )
    check_text("message", message)


@assert_.numpy
def _assert_numpy(condition: Any, message: str) -> None:
    holds = np.asarray(condition)
    if holds.all():
        return
    failed = np.argwhere(~holds)
    operands = {}
    if holds.ndim:
        where = _position(failed[0], holds.shape)
        operands = {"fails at": f"{where}, {len(failed)} of {holds.size} elements"}
    raise AssertError(message, operands=operands)
