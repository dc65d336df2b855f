"""Products of groups of rows, each with a matrix of its own, as torch.nn.functional.grouped_mm."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pykittens.errors import KernelError
from pykittens.kernels.grouped_gemm import grouped_gemm
from pykittens.kernels.grouped_gemm_k import grouped_gemm_k
from pykittens.torch.matmul import matmul
from pykittens.torch.operands import (
    NARROW,
    Refusal,
    check_transforms,
    refused_layout,
    refused_pair,
)
from pykittens.torch.registration import is_direct, needs_gradient, operator


def grouped_mm(
    a: Tensor, b: Tensor, offs: Tensor | None = None, *, fallback: bool = False
) -> Tensor:
    """The products of groups of bf16 or f16, in the forms of torch.nn.functional.grouped_mm; sums in f32.

        a (m, k),         b (groups, k, n)  ->  (m, n)          a group has rows of a
        a (m, k),         b (k, n)          ->  (groups, m, n)  a group has a part of the sum
        a (groups, m, k), b (k, n)          ->  (m, n)          a group has columns of b
        a (groups, m, k), b (groups, k, n)  ->  (groups, m, n)  without offs

    offs: int32 (groups,), on the device: group g ends before offs[g] and begins where the one before it ends. What lies
    behind the last belongs to no group: such rows of the result are not written, and their gradient is 0. fallback:
    what has no kernel is left to PyTorch.
    """
    if is_direct(a, b, offs, optional=1) and _is_usual(a, offs) and not needs_gradient(a, b):
        try:
            return _run(a, b, offs)
        except KernelError:
            if _refused(a, b, offs) is None:
                raise
    refusal = _refused(a, b, offs)
    if refusal is not None:
        if fallback:
            return torch.nn.functional.grouped_mm(a, b, offs=offs)
        if torch.compiler.is_compiling():
            return GROUPED_MM(a, b, offs)  # the operator says it
        raise refusal.error("grouped_mm", a=a, b=b, offs=offs)
    if a.dim() == 3 and b.dim() == 3:
        return matmul(a, b)
    if a.dim() == 3:
        return grouped_mm(b.mT, a.mT, offs).mT
    return _grouped(a, b, offs)


def _is_usual(a: Tensor, offs: Any) -> bool:
    """Whether the kernels' host functions check what else there is to check."""
    return a.dtype in NARROW and a.dim() == 2 and offs is not None


def _refused(a: Any, b: Any, offs: Any) -> Refusal | None:
    """Why there is no kernel for a product; None where there is."""
    refusal = refused_pair(("a", "b"), a, b, NARROW)
    if refusal is not None:
        return refusal
    for name, x in (("a", a), ("b", b)):
        if x.dim() not in (2, 3):
            return Refusal(f"`{name}` must have rank 2 or 3, not {x.dim()}")
    if a.shape[-1] != b.shape[-2]:
        return Refusal(f"`a` has {a.shape[-1]} columns and `b` {b.shape[-2]} rows")
    if a.dim() == 3 and b.dim() == 3:
        if offs is not None:
            return Refusal("`offs` has no meaning where `a` and `b` have rank 3", "leave it away")
        return None if a.shape[0] == b.shape[0] else Refusal("`b` must have the groups of `a`")
    return _refused_offs(offs, a, b)


def _refused_offs(offs: Any, a: Any, b: Any) -> Refusal | None:
    if not isinstance(offs, torch.Tensor):
        return Refusal(
            f"`offs` must be a tensor, not {type(offs).__name__}",
            "offs[g] is where group g ends, of int32 and on the device of `a`",
        )
    if (refusal := refused_layout("offs", offs)) is not None:
        return refusal
    if offs.dtype is not torch.int32:
        name = str(offs.dtype).removeprefix("torch.")
        return Refusal(f"`offs` must be int32, not {name}", "pass offs.to(torch.int32)")
    if offs.dim() != 1:
        return Refusal(f"`offs` must have rank 1, not {offs.dim()}")
    if offs.device != a.device:
        return Refusal(f"`offs` is on {offs.device}, and `a` on {a.device}")
    groups = next((x.shape[0] for x in (a, b) if x.dim() == 3), None)
    if groups is not None and offs.shape[0] != groups:
        return Refusal(f"`offs` must have an element for each of the {groups} groups")
    return None


# -- the operator ----------------------------------------------------------------------------------


def _grouped(a: Tensor, b: Tensor, offs: Tensor, fill: bool = False) -> Tensor:
    """The product of an a of rank 2; with `fill`, rows of the result that belong to no group are 0."""
    if not is_direct(a, b, offs):
        return GROUPED_MM(a, b, offs, fill)
    if needs_gradient(a, b):
        return _differentiable(a, b, offs, fill)
    return _run(a, b, offs, fill)


def _run(a: Tensor, b: Tensor, offs: Tensor, fill: bool = False) -> Tensor:
    if b.dim() == 2:
        return grouped_gemm_k(a, b, offs, transpose_b=False)
    out = a.new_zeros((a.shape[0], b.shape[2])) if fill else None
    return grouped_gemm(a, b, offs, out, transpose_b=False)


def _run_checked(a: Tensor, b: Tensor, offs: Tensor | None = None, fill: bool = False) -> Tensor:
    if offs is None or not _is_usual(a, offs):
        offs = _checked(a, b, offs)
    return _run(a, b, offs, fill)


def _checked(a: Tensor, b: Tensor, offs: Tensor | None) -> Tensor:
    """The offsets, of operands that the operator takes."""
    refusal = _refused(a, b, offs)
    if refusal is None and a.dim() != 2:
        refusal = Refusal(
            "the operator takes an `a` of rank 2", "pykittens.torch.grouped_mm takes others"
        )
    if refusal is not None:
        raise refusal.error("grouped_mm", a=a, b=b, offs=offs)
    assert offs is not None, "operands of rank 2 without offsets are refused"
    return offs


def _fake(a: Tensor, b: Tensor, offs: Tensor | None = None, fill: bool = False) -> Tensor:
    offs = _checked(a, b, offs)
    lead = offs.shape if b.dim() == 2 else ()
    return a.new_empty((*lead, a.shape[0], b.shape[-1]))


def _recorded(a: Tensor, b: Tensor, offs: Tensor | None = None, fill: bool = False) -> Tensor:
    return _differentiable(a, b, _checked(a, b, offs), fill)


def _differentiable(a: Tensor, b: Tensor, offs: Tensor, fill: bool = False) -> Tensor:
    check_transforms("grouped_mm", a=a, b=b, offs=offs)
    return _GroupedMM.apply(a, b, offs, fill)


class _GroupedMM(torch.autograd.Function):
    """Keeps an operand only where the gradient of the other is asked for."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, offs: Tensor, fill: bool) -> Tensor:
        for_a, for_b = ctx.needs_input_grad[:2]
        ctx.save_for_backward(a if for_b else None, b if for_a else None, offs)
        return _grouped(a, b, offs, fill)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        a, b, offs = ctx.saved_tensors
        for_a, for_b = ctx.needs_input_grad[:2]
        of_a = of_b = None
        if gradient.dim() == 2:  # of rows
            of_a = _grouped(gradient, b.mT, offs, fill=True) if for_a else None
            of_b = _grouped(a.mT, gradient, offs) if for_b else None
        else:  # of parts of the sum
            of_a = _grouped(b, gradient.mT, offs, fill=True).mT if for_a else None
            of_b = _grouped(a.mT, gradient, offs, fill=True) if for_b else None
        return of_a, of_b, None, None


GROUPED_MM = operator(
    # Without `offs` it has a refusal of its own for operands of rank 3.
    "grouped_mm(Tensor a, Tensor b, Tensor? offs=None, bool fill=False) -> Tensor",
    run=_run_checked,
    fake=_fake,
    autograd=_recorded,
    casts=2,
)
