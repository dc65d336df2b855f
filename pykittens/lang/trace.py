"""Runs a kernel function once and returns the recorded kernel."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pykittens.errors import KernelError, LanguageError, Loc
from pykittens.ir.build import Builder, current, record
from pykittens.ir.evaluate import host_value, numbers_read
from pykittens.ir.nodes import Block, Kernel, Require
from pykittens.ir.numbers import is_int
from pykittens.ir.op import Mismatch, called
from pykittens.ir.values import Global, Int, Scalar, Value, describe
from pykittens.lang.bindings import name_added
from pykittens.lang.homes import Restart
from pykittens.lang.merging import declared_by_kernel, record_homes
from pykittens.lang.python_errors import python_errors
from pykittens.lang.roles import at_top
from pykittens.lang.structures import Form, names, rebuild
from pykittens.ops.arguments import check_text
from pykittens.types.dtypes import DType, bool_, int32
from pykittens.types.tiles import GL, SCALAR


@dataclass(frozen=True)
class TensorArg:
    """A tensor argument for recording: its type, and its extents for `static`."""

    type: GL
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ScalarArg:
    """A number argument for recording: its dtype, and its value for `static`."""

    dtype: DType
    value: int | float | bool


@dataclass(frozen=True)
class TraceOptions:
    """The options of `@pk.kernel(...)`."""

    warps: int = 4
    cluster: int = 1
    inplace: bool = False


def trace(
    function: Callable[..., Any],
    args: dict[str, TensorArg | ScalarArg],
    constants: dict[str, Any],
    options: TraceOptions,
    forms: Mapping[str, Form],
) -> Kernel:
    """The kernel that a rewritten function records for arguments of these types and for these constants.

    forms: the positional arguments by name, of which `args` are the leaves. Those that are None are constants.
    """
    params: list[Global | Scalar] = []
    values: dict[Value, Any] = {}
    for name, arg in args.items():
        if isinstance(arg, TensorArg):
            extents = tuple(
                Scalar(SCALAR(int32), f"{name}_n{axis}") for axis in range(arg.type.rank)
            )
            params.append(Global(arg.type, name, extents))
            values.update(zip(extents, arg.shape, strict=True))
        else:
            params.append(Scalar(SCALAR(arg.dtype), name))
            values[params[-1]] = arg.value
    absent = [n for p, form in forms.items() for n, is_leaf in names(form, p) if not is_leaf]
    code = function.__code__
    kernel = Kernel(
        name=function.__name__,
        params=params,
        body=Block(owner="the kernel"),
        pipelines=[],
        constants=dict.fromkeys(absent) | constants,
        statics=[],
        warps=options.warps,
        cluster=options.cluster,
        inplace=options.inplace,
        doc=inspect.getdoc(function) or "",
        loc=Loc(code.co_filename, code.co_firstlineno, code.co_name),
    )
    builder = Builder(kernel, values)
    leaves = iter(params)
    given = [rebuild(form, leaves) for form in forms.values()]
    try:
        with record(builder), python_errors(params, absent):
            result = None
            with suppress(Restart):
                result = function(*given, **constants)
            if builder.has_homes:
                result = record_homes(lambda: function(*given, **constants), builder)
            for check in builder.checks:
                check()
            name_added(builder)
    except KernelError as error:
        error.numbers_read = numbers_read(kernel)
        raise
    if result is not None:
        raise LanguageError(
            f"{kernel.name}: a kernel must return None, not {describe(result)}",
            loc=kernel.loc,
            help="write results to a tensor that the caller passes",
        )
    for index, pipeline in enumerate(kernel.pipelines):
        pipeline.name = pipeline.name or f"ring{index}"
    return kernel


@called("static")
def make_static(value: Int) -> int:
    """The value of an extent or argument as a Python int; the kernel is recorded separately for each value."""
    if is_int(value) and int32.represents(value):
        return int(value)
    builder = current("static")
    if not isinstance(value, Scalar) or value.dtype != int32:
        raise Mismatch(f"`value` must be an extent or an int32, not {describe(value)}")
    known = host_value(value, builder.host)
    if known is None:
        raise LanguageError(
            "static: the value is not known on the host",
            operands={value.name or "value": value.type},
            help="only extents, scalar arguments and values computed from them are known",
        )
    builder.kernel.statics.append((value, known))
    return int(known)


@called("require")
def require(condition: Scalar | bool, message: str) -> None:
    """Refuse the call with this message unless the condition is true; the host checks it at each call."""
    declared_by_kernel("require", lambda: _require(condition, message))


def _require(condition: Any, message: str) -> None:
    builder = at_top("require")
    builder.check_use(condition, "require")
    if not isinstance(condition, bool) and not (
        isinstance(condition, Scalar) and condition.dtype == bool_
    ):
        raise Mismatch(f"`condition` must be a bool of the arguments, not {describe(condition)}")
    check_text("message", message)
    builder.append(Require(condition, message, Loc.here()))
