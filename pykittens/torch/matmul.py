"""Matrix products of tensors, as torch.matmul."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch._C import _increment_version

from pykittens.errors import KernelError
from pykittens.kernels.gemm import gemm
from pykittens.torch.operands import (
    FLOATS,
    NARROW,
    Refusal,
    check_transforms,
    refused_beside,
    refused_pair,
)
from pykittens.torch.registration import is_direct, needs_gradient, operator


def matmul(
    a: Tensor, b: Tensor, *, out: Tensor | None = None, fallback: bool = False, tune: bool = False
) -> Tensor:
    """a @ b of bf16 or f16, with torch.matmul's rules for vectors and batches; sums in f32, rounded once.

    out: where the result is written, in its own dtype. fallback: what has no kernel is left to torch.matmul. tune:
    measure configurations of the kernel once for these shapes.
    """
    if is_direct(a, b, out, optional=1) and _is_usual(a, b, out) and not needs_gradient(a, b, out):
        try:
            found = gemm(a, b, out, transpose_b=False, tune=tune)
        except KernelError:
            if _refused(a, b, out) is None:
                raise
        else:
            if out is not None:
                _increment_version((out,))  # autograd asks whether what it keeps was changed
            return found
    refusal = _refused(a, b, out)
    if refusal is not None:
        if fallback:
            return torch.matmul(a, b, out=out)
        if torch.compiler.is_compiling():
            return _dispatched(a, b, out, tune)  # the operator says it
        raise refusal.error("matmul", a=a, b=b, out=out)
    if a.dim() == 1 or b.dim() == 1:
        return _with_vectors(a, b, out, tune)
    if not is_direct(a, b, out, optional=1):
        return _dispatched(a, b, out, tune)
    return _differentiable(a, b, tune) if out is None else _no_gradient(a, b, out)


def _is_usual(a: Tensor, b: Tensor, out: Tensor | None = None) -> bool:
    """Whether gemm checks what else there is to check."""
    usual = a.dtype in NARROW and a.dim() > 1 and b.dim() > 1
    return usual and (out is None or out.dtype in FLOATS)


def _refused(a: Any, b: Any, out: Any) -> Refusal | None:
    """Why there is no kernel for a product; None where there is."""
    refusal = refused_pair(("a", "b"), a, b, NARROW, cast=out is None)
    if refusal is not None:
        return refusal
    ranks = a.dim(), b.dim()
    if 0 in ranks:
        name = "ab"[ranks.index(0)]
        return Refusal(f"`{name}` must have rank 1 or more, not 0", "a number is multiplied with *")
    columns, rows = a.shape[-1], b.shape[-2 if ranks[1] > 1 else 0]
    if columns != rows:
        return Refusal(f"`a` has {columns} columns and `b` {rows} rows")
    if ranks[0] > 2 and ranks[1] > 2 and not _fit(a.shape[:-2], b.shape[:-2]):
        return Refusal("the batches of `a` and `b` do not fit each other")
    if isinstance(out, Tensor) and not torch.compiler.is_compiling() and out.is_neg():
        return Refusal(
            "`out` must not be a view that negates its memory",
            "write to another tensor, and copy that",
        )
    return None if out is None else refused_beside("out", out, a, _shape(a, b))


def _fit(one: Any, other: Any) -> bool:
    """Whether the extents of two batches are equal, or 1, counted from the last."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return all(n == m or n == 1 or m == 1 for n, m in pairs)


def _shape(a: Tensor, b: Tensor) -> tuple[Any, ...]:
    """The shape of a @ b."""
    if a.dim() <= 2 or b.dim() <= 2:
        lead = a.shape[:-2] or b.shape[:-2]
    else:
        lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows, columns = a.shape[-2:-1], (b.shape[-1:] if b.dim() > 1 else ())
    return (*lead, *rows, *columns)


def _with_vectors(a: Tensor, b: Tensor, out: Tensor | None, tune: bool) -> Tensor:
    """A product with a vector: a row in front, a column behind, an axis of 1 that the result loses again."""
    left, right = (a.unsqueeze(0) if a.dim() == 1 else a), (b.unsqueeze(1) if b.dim() == 1 else b)
    axes = [-2] * (a.dim() == 1) + [-1] * (b.dim() == 1)
    if out is not None:
        whole = out.unsqueeze(axes[0]) if len(axes) == 1 else out.reshape(1, 1)
        matmul(left, right, out=whole, tune=tune)
        return out
    result = matmul(left, right, tune=tune)
    for axis in axes:
        result = result.squeeze(axis)
    return result


# -- the operators ---------------------------------------------------------------------------------


def _dispatched(a: Tensor, b: Tensor, out: Tensor | None, tune: bool) -> Tensor:
    if out is None:
        return MATMUL(a, b, tune)
    INTO(a, b, out, tune)
    return out


def _run(a: Tensor, b: Tensor, tune: bool = False) -> Tensor:
    if not _is_usual(a, b):
        _check(a, b)
    return gemm(a, b, transpose_b=False, tune=tune)


def _run_into(a: Tensor, b: Tensor, out: Tensor, tune: bool = False) -> None:
    if not _is_usual(a, b, out):
        _check(a, b, out)
    gemm(a, b, out, transpose_b=False, tune=tune)
    _increment_version((out,))


def _fake(a: Tensor, b: Tensor, tune: bool = False) -> Tensor:
    _check(a, b)
    return a.new_empty(_shape(a, b))


def _fake_into(a: Tensor, b: Tensor, out: Tensor, tune: bool = False) -> None:
    _check(a, b, out)
    _increment_version((out,))


def _check(a: Tensor, b: Tensor, out: Tensor | None = None) -> None:
    refusal = _refused(a, b, out)
    if refusal is None and min(a.dim(), b.dim()) < 2:
        refusal = Refusal("the operator takes matrices", "pykittens.torch.matmul takes vectors")
    if refusal is not None:
        raise refusal.error("matmul", a=a, b=b, out=out)


def _recorded(a: Tensor, b: Tensor, tune: bool = False) -> Tensor:
    _check(a, b)
    return _differentiable(a, b, tune)


def _differentiable(a: Tensor, b: Tensor, tune: bool = False) -> Tensor:
    check_transforms("matmul", a=a, b=b)
    return _Matmul.apply(a, b, tune)


def _no_gradient(a: Tensor, b: Tensor, out: Tensor, tune: bool = False) -> Any:
    raise Refusal(
        "a product that is written to `out` has no gradient",
        "leave `out` away, or call it under torch.no_grad()",
    ).error("matmul", a=a, b=b, out=out)


class _Matmul(torch.autograd.Function):
    """Keeps an operand only where the gradient of the other is asked for."""

    # setup_context, which transforms of torch.func ask for, makes a call three times as slow.
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, tune: bool) -> Tensor:
        ctx.tune, ctx.shapes = tune, (a.shape, b.shape)
        for_a, for_b = ctx.needs_input_grad[:2]
        ctx.save_for_backward(a if for_b else None, b if for_a else None)
        if is_direct(a, b):
            return gemm(a, b, transpose_b=False, tune=tune)
        return MATMUL(a, b, tune)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        a, b = ctx.saved_tensors
        shape_a, shape_b = ctx.shapes
        for_a, for_b = ctx.needs_input_grad[:2]
        of_a = gradient_of_left(gradient, b, shape_a, ctx.tune) if for_a else None
        # The product of the transposes is the transpose: b's gradient is that of its left operand.
        of_b = gradient_of_left(gradient.mT, a.mT, _turned(shape_b), ctx.tune).mT if for_b else None
        return of_a, of_b, None


def _turned(shape: Any) -> Any:
    return (*shape[:-2], shape[-1], shape[-2])


def gradient_of_left(gradient: Tensor, b: Tensor, shape: Any, tune: bool) -> Tensor:
    """The gradient of a in a @ b: gradient @ b.mT, summed over the batch where a, of this shape, is repeated."""
    if len(shape) == 2 and gradient.dim() > 2:
        # One product along all that is summed, so that the sum is rounded once.
        batch = gradient.shape[:-2]
        wide = b.expand(*batch, *b.shape[-2:])
        return matmul(_side_by_side(gradient), _side_by_side(wide).mT, tune=tune)
    return matmul(gradient, b.mT, tune=tune).sum_to_size(shape)


def _side_by_side(x: Tensor) -> Tensor:
    """The matrices of a batch as one, each beside the one before it."""
    # Extents are said: where one is 0 another cannot be found from the number of elements.
    return x.movedim(-2, 0).reshape(x.shape[-2], math.prod(x.shape[:-2]) * x.shape[-1])


def stacked(x: Tensor) -> Tensor:
    """The matrices of a batch as one, each below the one before it."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


MATMUL = operator(
    "matmul(Tensor a, Tensor b, bool tune=False) -> Tensor",
    run=_run,
    fake=_fake,
    autograd=_recorded,
    casts=2,
)
INTO = operator(
    "matmul_into(Tensor a, Tensor b, Tensor(a!) out, bool tune=False) -> ()",
    run=_run_into,
    fake=_fake_into,
    autograd=_no_gradient,
)
