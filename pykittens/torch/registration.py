"""The operators as PyTorch's dispatcher knows them, and when a call may go past it.

A kernel is launched in less time than the dispatcher takes to find an operator written in Python. So a function calls
its kernel itself where nobody else would have a say: no compiler, mode, subclass, transform or autocast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

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
        torch.compiler.is_compiling()  # first: what follows is for eager mode
        or torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._are_functorch_transforms_active()
        or torch._C._is_any_autocast_enabled()
    ):
        return False
    needed = len(tensors) - optional
    for i, x in enumerate(tensors):
        kind = type(x)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            if x.is_meta or x.layout is not torch.strided:
                return False
        elif x is not None or i < needed:
            return False
    return True


def needs_gradient(*args: Any) -> bool:
    """Whether autograd records a call with these arguments."""
    if torch.is_grad_enabled() and torch._C._any_requires_grad(*args):
        return True
    return bool(forward_ad._current_level >= 0)  # the tangents are refused there, not lost
