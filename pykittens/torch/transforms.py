"""Operators inside the transforms of torch.func.

torch.library makes an autograd.Function of one's own operator, which transforms refuse because it has no setup_context.
So a call inside a transform takes a Function that has one, and `vmap`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch._C._functorch import TransformType, peek_interpreter_stack
from torch.autograd import Function

from pykittens.errors import ArgumentError


class Differentiable(Protocol):
    """What a transform needs of an operator: its call, and what torch.library.register_autograd takes."""

    signature: inspect.Signature
    setup: Callable[..., Any] | None
    gradient: Callable[..., Any] | None

    def __call__(self, *args: Any, **words: Any) -> Any: ...

    def error(self, message: str, help: str) -> Exception:
        """The error that the operator raises."""


def is_transformed() -> bool:
    """Whether a transform takes derivatives of a call or makes a batch of it."""
    if not _are_functorch_transforms_active():
        return False
    found: bool = peek_interpreter_stack().key() != TransformType.Functionalize
    return found


def function_of(operator: Differentiable, written: Sequence[bool]) -> Callable[..., Any]:
    """The operator for transforms; it takes all arguments by position. written: whether it writes each of them."""
    parameters = operator.signature.parameters.values()
    words = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    count = len(parameters) - len(words)

    def split(inputs: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return inputs[:count], dict(zip(words, inputs[count:], strict=True))

    def forward(*inputs: Any) -> Any:
        args, given = split(inputs)
        return operator(*args, **given)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        args, given = split(inputs)
        if operator.setup is not None:
            more = {"keyword_only_inputs": given} if words else {}
            operator.setup(ctx=ctx, inputs=args, output=output, **more)

    def backward(ctx: Any, *gradients: Any) -> Any:
        if operator.gradient is None:
            raise operator.error("there is no gradient", "give it one with @….backward")
        found = operator.gradient(ctx, *gradients)
        return (*(found if isinstance(found, tuple) else (found,)), *[None] * len(words))

    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise operator.error(
            "there is no derivative in forward mode",
            "torch.func.grad, vjp and jacrev work, and so does .backward()",
        )

    vmap = one_by_one(forward, written, any_strides=False)
    methods = {f.__name__: staticmethod(f) for f in (forward, setup_context, backward, jvp, vmap)}
    made: Any = type("Transformed", (Function,), methods)
    apply: Callable[..., Any] = made.apply
    return apply


def one_by_one(
    call: Callable[..., Any], written: Sequence[bool], any_strides: bool
) -> Callable[..., Any]:
    """The rule of torch.vmap that makes one call after another.

    written: whether the call writes each argument. any_strides: the others need no last stride of 1.
    """

    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any, **words: Any) -> Any:
        if not info.batch_size:
            raise ArgumentError("vmap: the batch has the extent 0, and a call shows the results")
        columns = []
        for x, dim, is_written in zip(args, in_dims, written, strict=False):
            if dim is None and is_written:
                raise ArgumentError(
                    "vmap: all calls of the batch would write to one tensor",
                    help="give it the axis of the batch, in in_dims",
                )
            if dim is None:
                columns.append([x] * info.batch_size)
                continue
            rows = x.movedim(dim, 0)
            columns.append((rows if is_written or any_strides else rows.contiguous()).unbind())
        found = [call(*row, **words) for row in zip(*columns, strict=True)]
        if found[0] is None:
            return None, None
        if isinstance(found[0], Tensor):
            return torch.stack(found), 0
        return tuple(map(torch.stack, zip(*found, strict=True))), (0,) * len(found[0])

    return vmap
