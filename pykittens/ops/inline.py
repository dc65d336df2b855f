"""`inline_cuda`: the user's CUDA C++ inside a kernel."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any, overload

import numpy as np

from pykittens.errors import BackendError
from pykittens.ir.combining import H, Number, Operand
from pykittens.ir.op import Effects, Mismatch
from pykittens.ir.values import Scalar, describe
from pykittens.ops.arguments import check_dtype
from pykittens.ops.core import composed, op
from pykittens.ops.map import Registers, RegisterType, check_registers, computed, together
from pykittens.types.dtypes import OF_NUMPY, DType, converted
from pykittens.types.tiles import with_dtype


@overload
def inline_cuda(
    text: str,
    *operands: Operand,
    like: H,
    dtype: DType | None = None,
    numpy: Callable[..., Any] | None = None,
) -> H: ...
@overload
def inline_cuda(text: str, *operands: Number, numpy: Callable[..., Any] | None = None) -> None: ...
@composed
def inline_cuda(
    text: str,
    *operands: Any,
    like: Any = None,
    dtype: DType | None = None,
    numpy: Callable[..., Any] | None = None,
) -> Any:
    """The value of an expression of CUDA C++ for each element; `{0}`, `{1}`, ... in the text are the operands.

    The result has the shape and, unless `dtype` is given, the dtype of `like`. Operands are broadcast to that shape as
    in `a + b`. The expression sees narrow floats as float and narrow integers as int; its value is rounded to the
    dtype. Without `like`, the text is statements that every thread of the group runs, and the operands are scalars.
    The text may have effects: it runs where it stands, even if nothing reads its value.
    `numpy` is a function that computes the same on arrays; without it, the emulator refuses the operation. Double the
    braces that are part of the text.
    """
    if like is None:
        return inline_cuda_statement(text, operands, numpy)
    return inline_cuda_(text, operands, like, dtype, numpy)


@op(effects=Effects(stays=True), shown="inline_cuda")
def inline_cuda_(text: str, operands: Any, like: Any, dtype: Any, numpy: Any) -> Any:
    """An expression of CUDA C++ for each element of a result with the shape of `like`."""


@op(effects=Effects(shows=True), shown="inline_cuda")
def inline_cuda_statement(text: str, operands: Any, numpy: Any) -> None:
    """Statements of CUDA C++ that every thread of the group runs."""


@inline_cuda_.type
def _inline_cuda_type(text: Any, operands: Any, like: Any, dtype: Any, numpy: Any) -> RegisterType:
    _check(text, operands, numpy)
    if not isinstance(like, Registers):
        raise Mismatch(
            f"`like` must be a register tile, a vector or a scalar, not {describe(like)}"
        )
    if dtype is not None:
        check_dtype("dtype", dtype)
    named = {f"operands[{i}]": x for i, x in enumerate(operands)}
    for name, x in named.items():
        check_registers(name, x)
    shape = together({"like": like, **named})
    if shape.shape != like.type.shape:
        raise Mismatch(f"`like` must have the shape of the operands, {shape}, not {like.type}")
    return with_dtype(like.type, dtype or like.dtype)


@inline_cuda_statement.type
def _inline_cuda_statement_type(text: Any, operands: Any, numpy: Any) -> None:
    _check(text, operands, numpy)
    for i, x in enumerate(operands):
        check_registers(f"operands[{i}]", x)
        if not isinstance(x, Scalar | int | float):
            raise Mismatch(
                f"`operands[{i}]` of a statement must be a scalar or a number, not {describe(x)}",
                help="with like=x, the text is an expression for each element of x",
            )


def _check(text: Any, operands: Any, numpy: Any) -> None:
    if not isinstance(text, str):
        raise Mismatch(f"`text` must be a string of CUDA C++, not {describe(text)}")
    try:
        fields = {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
    except ValueError as error:
        raise Mismatch(f"`text`: {error}", help="double the braces that are text") from None
    if fields != {str(i) for i in range(len(operands))}:
        found = ", ".join(f"{{{field}}}" for field in sorted(fields)) or "none"
        raise Mismatch(
            f"`text` must have fields for {len(operands)} operands, not {found}",
            help="the fields are {0}, {1}, ...; double the braces that are text",
        )
    if numpy is not None and not callable(numpy):
        raise Mismatch(f"`numpy` must be a function, not {describe(numpy)}")


def _meaning(numpy: Any) -> Any:
    if numpy is None:
        raise BackendError(
            "inline_cuda: the emulator cannot run CUDA C++",
            help="pass numpy=..., a function that computes the same on arrays",
        )
    return numpy


@inline_cuda_.numpy
def _inline_cuda_numpy(text: str, operands: Any, like: Any, dtype: Any, numpy: Any) -> Any:
    meaning = _meaning(numpy)
    wide = [computed([x])[0] for x in operands]
    result = meaning(*wide)
    if not isinstance(like, np.ndarray | np.generic):
        return result
    to = dtype or OF_NUMPY[like.dtype]
    return converted(np.broadcast_to(np.asarray(result), np.shape(like)), to)[()]


@inline_cuda_statement.numpy
def _inline_cuda_statement_numpy(text: str, operands: Any, numpy: Any) -> None:
    _meaning(numpy)(*operands)
