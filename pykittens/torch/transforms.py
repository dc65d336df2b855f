"""Operators inside the transforms of torch.func.

The dispatcher has a key for calls inside a transform, above that of autograd. Each operator has a kernel for it, which
takes an autograd.Function with setup_context, jvp and vmap, as transforms need it, also in compiled programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet
from torch._C._functorch import TransformType, get_interpreter_stack, peek_interpreter_stack
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter
from torch._ops import OpOverload
from torch._subclasses.functional_tensor import FunctorchFunctionalizeAPI
from torch.autograd import Function

from pykittens.errors import ArgumentError
from pykittens.torch.registration import AUTOCAST

TRANSFORMS = "FuncTorchDynamicLayerFrontMode"  # the key of calls inside a transform
_AUTOCAST = [getattr(DispatchKey, key) for key in AUTOCAST]
NO_FORWARD_MODE = (
    "there is no derivative in forward mode",
    "torch.func.grad, vjp and jacrev work, and so does .backward()",
)


def function_of(name: str, **methods: Callable[..., Any]) -> Callable[..., Any]:
    """The call of a torch.autograd.Function with these methods."""
    made: Any = type(name, (Function,), {n: staticmethod(f) for n, f in methods.items()})
    apply: Callable[..., Any] = made.apply
    return apply


class Transformed:
    """The kernel of an operator for TRANSFORMS.

    complete(args, words): all arguments of a call by position, as the other functions take them. call(*inputs): the
    operator. setup(ctx, inputs, output), backward(ctx, *gradients): those of a torch.autograd.Function, whose `apply`
    is the operator's. recorded(*inputs): what transforms that take derivatives call; `apply` unless given.
    fail(message, help): the error that the operator raises. any_strides: as for one_by_one.
    """

    def __init__(
        self,
        op: OpOverload,
        complete: Callable[..., Sequence[Any]],
        call: Callable[..., Any],
        setup: Callable[..., None],
        backward: Callable[..., Any],
        *,
        fail: Callable[..., Exception],
        recorded: Callable[..., Any] | None = None,
        any_strides: bool = False,
    ) -> None:
        def jvp(ctx: Any, *tangents: Any) -> Any:
            raise fail(*NO_FORWARD_MODE)

        schema = op._schema
        written = [x.alias_info is not None for x in schema.arguments]
        vmap = one_by_one(call, written, any_strides)
        methods = {"setup_context": setup, "backward": backward, "jvp": jvp, "vmap": vmap}
        self.apply = function_of(op._opname, forward=call, **methods)
        self.recorded = recorded or self.apply
        self.op, self.complete, self.fail = op, complete, fail
        self.is_mutable: bool = schema.is_mutable
        types = [str(x.type) for x in (*schema.arguments, *schema.returns)]
        self.has_lists = any("List" in x and "Tensor" in x for x in types)

    def __call__(self, keys: DispatchKeySet, *args: Any, **words: Any) -> Any:
        for key in _AUTOCAST:
            if keys.has(key):  # it converts arguments first, and calls the operator again
                return self.op.redispatch(DispatchKeySet(key), *args, **words)
        transform = peek_interpreter_stack().key()
        if transform == TransformType.Functionalize:
            return self._functionalized(*args, **words)
        if self.has_lists:
            raise self.fail(
                "transforms of torch.func do not go through lists of tensors",
                "give the operator a parameter for each tensor, or a stack of them",
            )
        given = self.complete(args, words)
        if transform == TransformType.Vmap:
            return self.apply(*given)
        if any(x.key() == TransformType.Functionalize for x in get_interpreter_stack() or ()):
            raise self.fail(
                "torch.func.functionalize does not go around a transform that takes derivatives",
                "functionalize the function inside of the transform",
            )
        return self.recorded(*given)

    def _functionalized(self, *args: Any, **words: Any) -> Any:
        if self.is_mutable:
            raise self.fail(
                "torch.func.functionalize does not go through an operator that writes to arguments",
                "call it outside of functionalize, or let an operator return new tensors",
            )
        level = FunctorchFunctionalizeAPI(retrieve_current_functorch_interpreter())
        args, words = level.unwrap_tensors((args, words))
        with level.redispatch_to_next():
            result = self.op(*args, **words)
        return level.wrap_tensors(result)


def one_by_one(
    call: Callable[..., Any], written: Sequence[bool], any_strides: bool
) -> Callable[..., Any]:
    """The rule of torch.vmap that makes one call after another.

    written: whether the call writes each argument. any_strides: the others need no last stride of 1.
    """

    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        if not info.batch_size:
            raise ArgumentError("vmap: the batch has the extent 0, and a call shows the results")
        columns = []
        for x, dim, is_written in zip(args, in_dims, written, strict=True):
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
        found = [call(*row) for row in zip(*columns, strict=True)]
        if found[0] is None:
            return None, None
        if isinstance(found[0], Tensor):
            return torch.stack(found), 0
        return tuple(map(torch.stack, zip(*found, strict=True))), (0,) * len(found[0])

    return vmap
