"""Small kernels whose results are numbers: the values that they store, and their recorded form."""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens.ir.nodes import Kernel
from pykittens.ir.passes.lower import lower
from pykittens.ir.verify import verify
from pykittens.lang.control import rewrite
from pykittens.lang.source import Definition
from pykittens.lang.trace import trace
from pykittens.runtime.arguments import check

UNWRITTEN = -1234567891


def put(out: Any, row: Any, value: Any) -> None:
    """In a kernel: store a number to a row of `out`."""
    pk.store(out[row], pk.zeros(out.dtype, 8) + value)


def stored(kernel: Any, *args: Any, rows: int = 8, **constants: Any) -> list[int | None]:
    """Run `kernel(out, *args)` on an int32 output; a number for each row, None for rows not written."""
    out = np.full((rows, 8), UNWRITTEN, np.int32)
    kernel(out, *args, **constants)
    assert (out == out[:, :1]).all()
    return [None if v == UNWRITTEN else int(v) for v in out[:, 0]]


def first(kernel: Any, *args: Any, **constants: Any) -> int:
    """What `kernel(out, *args)` puts into row 0, the only one it may write."""
    value, *others = stored(kernel, *args, **constants)
    assert value is not None
    assert others == [None] * len(others)
    return value


def recorded(kernel: Any, *args: Any, lowered: bool = True, **constants: Any) -> Kernel:
    """The IR of a kernel for these arguments, with or without the passes."""
    arguments = check(kernel.parameters, args, constants)
    made = trace(
        rewrite(Definition(kernel.function)),
        arguments.types,
        arguments.constants,
        kernel.options,
        arguments.forms,
    )
    verify(made)
    return lower(made) if lowered else made
