"""Registers the operators with PyTorch's dispatcher, and decides when a call may bypass it.

A kernel is launched in less time than the dispatcher takes to find an operator written in Python. So a function calls
its kernel itself where nobody else would have a say: no compiler, mode, subclass, transform or autocast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# Names of this module: to look them up in two others makes a call slower.
from torch import Tensor, is_grad_enabled, strided
from torch._C import (
    _any_requires_grad,
    _are_functorch_transforms_active,
    _current_graph_task_id,
    _is_any_autocast_enabled,
    _len_torch_dispatch_stack,
    _len_torch_function_stack,
)
from torch._C._functorch import is_legacy_batchedtensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.nn import Parameter

LIBRARY = torch.library.Library("pykittens", "DEF")

_AUTOCAST = {"AutocastCUDA": "cuda", "AutocastCPU": "cpu"}


def operator(
    schema: str,
    *,
    run: Callable[..., Any],
    fake: Callable[..., Any],
    autograd: Callable[..., Any] | None = None,
    casts: int = 0,
) -> Any:
    """Define torch.ops.pykittens.<name> and return it.

    run: on tensors with memory. fake: on those that have none. autograd: called where a gradient may be asked for.
    casts: how many of the first arguments autocast converts.
    """
    name = schema[: schema.index("(")]
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"pykittens::{name}", fake, lib=LIBRARY)
    op = getattr(torch.ops.pykittens, name).default
    if autograd is not None:
        LIBRARY.impl(name, _above_autograd(op, autograd), "Autograd")
    if casts:
        for key, device in _AUTOCAST.items():
            LIBRARY.impl(name, _autocast(op, key, device, casts), key)
    return op


def _above_autograd(op: Any, autograd: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        if needs_gradient(*args):
            return autograd(*args)
        with torch._C._AutoDispatchBelowAutograd():
            return op(*args)

    return call


def _autocast(op: Any, key: str, device: str, casts: int) -> Callable[..., Any]:
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def call(*args: Any) -> Any:
        dtype = torch.get_autocast_dtype(device)
        cast = [x.to(dtype) if is_castable(x) else x for x in args[:casts]]
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return op(*cast, *args[casts:])

    return call


def is_castable(x: Any) -> bool:
    """Whether autocast converts this argument, as it does for torch.matmul."""
    return isinstance(x, torch.Tensor) and x.dtype in (torch.float32, torch.float16, torch.bfloat16)


def is_direct(*tensors: Any, optional: int = 0) -> bool:
    """Whether a call with these tensors may go past the dispatcher; so many of the last may be None."""
    if (
        is_compiling()  # first: what follows is for eager mode
        or _len_torch_dispatch_stack()
        or _len_torch_function_stack()
        or _are_functorch_transforms_active()
        or _is_any_autocast_enabled()
    ):
        return False
    needed = len(tensors) - optional
    for i, x in enumerate(tensors):
        kind = type(x)
        if kind is Tensor or kind is Parameter:
            if x.is_meta or x.is_nested or x.is_neg() or x.layout is not strided:
                return False
        elif x is not None or i < needed:
            return False
    return _current_graph_task_id() < 0 or not _are_batched(tensors)


def _are_batched(tensors: Any) -> bool:
    """Whether a backward pass is for many gradients at once, which are then one tensor without memory."""
    return any(x is not None and is_legacy_batchedtensor(x) for x in tensors)


def needs_gradient(*args: Any) -> bool:
    """Whether autograd records a call with these arguments."""
    if is_grad_enabled() and _any_requires_grad(*args):
        return True
    if forward_ad._current_level < 0:
        return False
    # Tangents are refused by what autograd would call, not lost.
    return _are_functorch_transforms_active() or any(map(has_tangent, args))


def has_tangent(x: Any) -> bool:
    """Whether forward mode follows an argument; asked inside a level of forward mode."""
    return isinstance(x, Tensor) and forward_ad.unpack_dual(x).tangent is not None
