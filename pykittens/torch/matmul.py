"""Matrix products of tensors, as torch.matmul."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pykittens.kernels.arrays import FLOATS, NARROW
from pykittens.kernels.gemm import gemm
from pykittens.torch.host_call import HostCall
from pykittens.torch.operands import Operands
from pykittens.torch.operator import Operator


def matmul(
    a: Tensor, b: Tensor, *, out: Tensor | None = None, fallback: bool = False, tune: bool = False
) -> Tensor:
    """a @ b of bf16 or f16, with torch.matmul's rules for vectors and batches; sums in f32, rounded once.

    a: (k,) or (..., m, k), b: (k,) or (..., k, n), of one dtype and in any strides; the axes in front are broadcast.
    The result (..., m, n) has their dtype, and lacks the axis that a vector lacks. out: the tensor for the result, of
    any of the dtypes bf16, f16 and f32. fallback: let torch.matmul compute calls without a kernel, which otherwise
    raise an ArgumentError. tune: measure configurations of the kernel once for these shapes.

        >>> a, b = torch.ones(3, 20, 30).bfloat16(), torch.ones(30, 40).bfloat16()
        >>> matmul(a, b).shape
        torch.Size([3, 20, 40])
    """
    if out is None:
        return MATMUL.call((a, b), (tune,), fallback)
    INTO.call((a, b, out), (tune,), fallback)
    return out


def _check(of: Operands, tune: bool) -> None:
    of.shapes(a="k | *left m k", b="k | *right k n")
    of.dims = {"left": (), "right": ()} | of.dims
    of.dims["lead"] = of.broadcast("left", "right")
    shape = "*lead" + " m" * ("m" in of.dims) + " n" * ("n" in of.dims)
    of.result(shape, of.dtypes("a", "b", among=NARROW), among=FLOATS)
    of.matrices("a", "b")


def _flops(a: Tensor, b: Tensor, *_: Any) -> int:
    batch = math.prod(torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    count: int = 2 * batch * a.shape[-2] * a.shape[-1] * b.shape[-1]
    return count


# A vector is a row on the left and a column on the right; the result loses that axis again.


def _with_vectors(a: Tensor, b: Tensor, tune: bool) -> Tensor:
    result = MATMUL.launch(*_matrices(a, b), tune)
    result = result.squeeze(-2) if a.dim() == 1 else result
    return result.squeeze(-1) if b.dim() == 1 else result


def _with_vectors_into(a: Tensor, b: Tensor, out: Tensor, tune: bool) -> None:
    out = out.unsqueeze(-1) if b.dim() == 1 else out
    out = out.unsqueeze(-2) if a.dim() == 1 else out
    INTO.launch(*_matrices(a, b), out, tune)


def _matrices(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return (a.unsqueeze(0) if a.dim() == 1 else a), (b.unsqueeze(1) if b.dim() == 1 else b)


# -- gradients -------------------------------------------------------------------------------------


def _setup(ctx: Any, args: tuple[Any, ...], result: Tensor) -> None:
    """Keeps an operand only for the gradient of the other."""
    a, b, ctx.tune = args
    ctx.shapes = a.shape, b.shape
    for_a, for_b = ctx.needs_input_grad[:2]
    ctx.save_for_backward(a if for_b else None, b if for_a else None)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    a, b = ctx.saved_tensors
    shape_a, shape_b = ctx.shapes
    for_a, for_b = ctx.needs_input_grad[:2]
    of_a = gradient_of_left(gradient, b, shape_a, ctx.tune) if for_a else None
    # (a @ b).mT = b.mT @ a.mT, so the gradient of b.mT is that of a left operand.
    shape_bt = (*shape_b[:-2], shape_b[-1], shape_b[-2])
    of_b = gradient_of_left(gradient.mT, a.mT, shape_bt, ctx.tune).mT if for_b else None
    return of_a, of_b, None


def gradient_of_left(gradient: Tensor, b: Tensor, shape: Any, tune: bool) -> Tensor:
    """The gradient of a in a @ b: gradient @ b.mT, summed over the axes in which a, of this shape, is broadcast."""
    if len(shape) == 2 and gradient.dim() > 2:
        # One product along the batch and n, so that the sum is rounded once.
        batch = gradient.shape[:-2]
        wide = b.expand(*batch, *b.shape[-2:])
        return matmul(_side_by_side(gradient), _side_by_side(wide).mT, tune=tune)
    return matmul(gradient, b.mT, tune=tune).sum_to_size(shape)


def _side_by_side(x: Tensor) -> Tensor:
    """The matrices of a batch as one, each beside the one before it."""
    # The extents are given: if one is 0, another cannot be found from the number of elements.
    return x.movedim(-2, 0).reshape(x.shape[-2], math.prod(x.shape[:-2]) * x.shape[-1])


def stacked(x: Tensor) -> Tensor:
    """The matrices of a batch as one, each below the one before it."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


MATMUL = Operator(
    "matmul(Tensor a, Tensor b, bool tune=False) -> Tensor",
    _check,
    HostCall(gemm, "a b", "tune", transpose_b=False),
    fallback=lambda a, b, tune: torch.matmul(a, b),
    rearranged=_with_vectors,
    setup=_setup,
    backward=_backward,
    flops=_flops,
    casts="a b",
)
INTO = Operator(
    "matmul_into(Tensor a, Tensor b, Tensor(a!) out, bool tune=False) -> ()",
    _check,
    HostCall(gemm, "a b out", "tune", returns=False, transpose_b=False),
    fallback=lambda a, b, out, tune: torch.matmul(a, b, out=out),
    rearranged=_with_vectors_into,
    flops=_flops,
    no_gradient=(
        "a product that is written to `out` has no gradient",
        "leave `out` away, or call it under torch.no_grad()",
    ),
    function="matmul",
)
