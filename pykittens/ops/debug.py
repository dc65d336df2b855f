"""Prints and assertions inside a kernel.

What is printed looks the same in the emulator and on a GPU: integers as they are, floats with six digits as `%g`
has them, truths as 0 and 1.
"""

from __future__ import annotations

import string
from contextvars import ContextVar
from typing import Any

import numpy as np

from pykittens.errors import AssertError
from pykittens.ir.op import Effects, Mismatch
from pykittens.ir.values import RegTile, RegVector, Scalar, describe
from pykittens.ops.core import op
from pykittens.ops.map import check_registers, together
from pykittens.types.dtypes import bool_

# Whether pk.print shows lines here: who runs a kernel many times over has them shown at most once.
shows: ContextVar[bool] = ContextVar("shows", default=True)


@op(effects=Effects(shows=True))
def print_(format: str, *values: Any) -> None:
    """Print a line: `format` with a value in place of each `{}`, as in pk.print("row {} has {}", row, total).

    Scalars make one line a group. Tiles and vectors make one an element of their common shape, behind its place:
    `[row, column] ` or `[index] `. The emulator prints them in the order of rows; on a GPU the lanes print side by
    side, and what does not fit the driver's buffer of a megabyte is lost.
    """


def pieces(format: str) -> list[str]:
    """The text before, between and behind the places of the values; Mismatch if it has other fields than `{}`."""
    texts, text = [], ""
    for literal, field, spec, conversion in string.Formatter().parse(format):
        text += literal
        if field is not None:
            if field or spec or conversion:
                raise Mismatch(
                    f"`format` has the field {{{field}}}, it may have `{{}}` only",
                    help="braces of the text itself are written twice",
                )
            texts.append(text)
            text = ""
    return [*texts, text]


@print_.type
def _print_type(format: Any, values: Any) -> None:
    if not isinstance(format, str):
        raise Mismatch(f"`format` must be a string, not {describe(format)}")
    try:
        wanted = len(pieces(format)) - 1
    except ValueError as error:
        raise Mismatch(f"`format`: {error}") from None
    if wanted != len(values):
        raise Mismatch(f"`format` has {wanted} places for {len(values)} values")
    for position, value in enumerate(values):
        check_registers(f"values[{position}]", value)
    if arrays := spread_values(values):
        together(arrays)


def spread_values(values: Any) -> dict[str, Any]:
    """The tiles and vectors among values that are printed, by their position."""
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
        # A per-row vector is a column, a per-column one a row: the axis of one is no coordinate.
        place = [i for i, extent in zip(index, shape, strict=True) if extent > 1]
        line = f"[{', '.join(map(str, place))}] " if shape else ""
        for text, value in zip(texts, spread, strict=False):
            line += text + shown(value[index])
        print(line + texts[-1])  # noqa: T201


def shown(value: Any) -> str:
    """A number as a line has it."""
    if np.issubdtype(type(value), np.integer) or isinstance(value, np.bool_):
        return str(int(value))
    return f"{float(value):g}"


@op(effects=Effects(shows=True))
def assert_(condition: Any, message: str) -> None:
    """Stop with this message unless the condition, a bool or a tile or vector of them, holds everywhere.

    The emulator checks it always; on a GPU it is left out unless the launch is one for debugging.
    """


@assert_.type
def _assert_type(condition: Any, message: Any) -> None:
    if not isinstance(condition, RegTile | RegVector | Scalar) or condition.dtype != bool_:
        known = isinstance(condition, bool)
        raise Mismatch(
            f"`condition` must be a bool of the kernel, not {describe(condition)}",
            help="what is known when the kernel is recorded, Python's own `assert` checks"
            if known
            else "compare it, as in `x > 0`",
        )
    if not isinstance(message, str):
        raise Mismatch(f"`message` must be a string, not {describe(message)}")


@assert_.numpy
def _assert_numpy(condition: Any, message: str) -> None:
    holds = np.asarray(condition)
    if holds.all():
        return
    failed = np.argwhere(~holds)
    told = {}
    if holds.ndim:
        place = [int(i) for i, n in zip(failed[0], holds.shape, strict=True) if n > 1]
        told = {
            "fails at": f"[{', '.join(map(str, place))}], {len(failed)} of {holds.size} elements"
        }
    raise AssertError(message, operands=told)
