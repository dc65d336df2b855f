"""Registers the operators with PyTorch's dispatcher, and decides which calls may bypass it.

A kernel is launched in less time than the dispatcher takes to find an operator written in Python. So a function calls
its kernel directly if no compiler, mode, subclass, transform or autocast intercepts the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Signature
from typing import Any

import torch

# Imported by name: attribute lookups would make each call slower.
from torch import Tensor, is_grad_enabled, strided
from torch._C import (
    _any_requires_grad,
    _are_functorch_transforms_active,
    _current_graph_task_id,
    _is_any_autocast_enabled,
    _len_torch_dispatch_stack,
    _len_torch_function_stack,
)
from torch._C._functorch import is_gradtrackingtensor, is_legacy_batchedtensor
from torch.autograd import forward_ad, profiler
from torch.compiler import is_dynamo_compiling
from torch.nn import Parameter
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

LIBRARY = torch.library.Library("pykittens", "DEF")

AUTOCAST = {"AutocastCUDA": "cuda", "AutocastCPU": "cpu"}


def is_intercepted() -> bool:
    """Whether a compiler, a mode, a transform or autocast must see all calls."""
    return bool(
        is_dynamo_compiling()  # first: what follows is for eager mode
        or _len_torch_dispatch_stack()
        or _len_torch_function_stack()
        or _are_functorch_transforms_active()
        or _is_any_autocast_enabled()
    )


def form_of(tensors: Sequence[Any], options: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The options of a call, and the dtype, shape and layout of each tensor; None if the dispatcher must take the call.

    Tensors without memory and negated views have the same form as others. Host functions refuse them. So do those that
    a transform of torch.func has wrapped, after its end, such as the ones that it kept for a gradient.
    """
    return None if is_intercepted() else plain_form_of(tensors, options)


def plain_form_of(tensors: Sequence[Any], options: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The form of a call that is not intercepted."""
    form: list[Any] = [options]
    try:
        hash(options)
        for x in tensors:
            kind = type(x)
            if kind is Tensor or kind is Parameter:
                form += (x.dtype, x.shape, x.layout)
            elif x is None:
                form.append(None)
            else:
                return None
    except (RuntimeError, TypeError):  # a nested tensor has no shape, and a list no hash
        return None
    if _current_graph_task_id() >= 0 and _are_batched(tensors):
        return None
    return tuple(form)


def is_direct(*tensors: Any) -> bool:
    """Whether a call with these tensors, of which some may be None, may go past the dispatcher."""
    if profiler._is_profiler_enabled or form_of(tensors, ()) is None:
        return False
    return not any([x is not None and _is_special(x) for x in tensors])


def is_special(args: Sequence[Any]) -> bool:
    """Whether an argument is a tensor without memory, a negated view, not strided or a transform's, which has ended."""
    return any([isinstance(x, Tensor) and _is_special(x) for x in args])


def are_wrapped(tensors: Sequence[Any]) -> bool:
    """Whether one of these tensors, of which some may be None, is wrapped by a transform, which has ended or not."""
    return any([x is not None and is_gradtrackingtensor(x) for x in tensors])


def _is_special(x: Tensor) -> bool:
    special: bool = x.is_meta or x.is_neg() or x.layout is not strided or is_gradtrackingtensor(x)
    return special


def _are_batched(tensors: Sequence[Any]) -> bool:
    """Whether a backward pass computes a batch of gradients at once, in a tensor without memory."""
    return any(x is not None and is_legacy_batchedtensor(x) for x in tensors)


def needs_gradient(*args: Any) -> bool:
    """Whether autograd records a call with these arguments."""
    if is_grad_enabled() and _any_requires_grad(*args):
        return True
    return forward_ad._current_level >= 0 and has_tangents(args)  # refused, so that none is lost


def has_tangents(args: Sequence[Any]) -> bool:
    """Whether forward mode follows an argument, or a tensor in a list."""
    if forward_ad._current_level < 0:
        return False
    tensors = [x for x in tree_leaves(args) if isinstance(x, Tensor)]
    return any(forward_ad.unpack_dual(x).tangent is not None for x in tensors)


def casting(op: Any, key: str, casts: Sequence[int]) -> Callable[..., Any]:
    """A function that calls an operator after autocast, by a key of AUTOCAST, has converted some arguments.

    casts: their indices.
    """
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def call(*args: Any) -> Any:
        dtype = torch.get_autocast_dtype(AUTOCAST[key])
        cast = [x.to(dtype) if i in casts and is_castable(x) else x for i, x in enumerate(args)]
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return op(*cast)

    return call


def count_flops(operators: Any, signature: Signature, formula: Callable[..., int]) -> None:
    """Let FlopCounterMode count formula(*args), with all arguments of a call, for the operators of a name."""

    def counted(*args: Any, out_val: Any = None, **words: Any) -> int:
        given = signature.bind(*args, **words)
        given.apply_defaults()  # the dispatcher leaves defaults out
        return formula(*given.args, **given.kwargs)

    flop_registry[operators] = counted


def is_castable(x: Any) -> bool:
    """Whether autocast converts this argument, as it does for torch.matmul."""
    return isinstance(x, Tensor) and x.dtype in (torch.float32, torch.float16, torch.bfloat16)
