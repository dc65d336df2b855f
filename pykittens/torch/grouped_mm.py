"""Products of groups of rows, each with its own matrix, as torch.nn.functional.grouped_mm."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional

from pykittens.kernels.arrays import NARROW
from pykittens.kernels.grouped_gemm import grouped_gemm
from pykittens.kernels.grouped_gemm_k import grouped_gemm_k
from pykittens.torch.matmul import matmul
from pykittens.torch.operands import Operands
from pykittens.torch.operator import Operator


def grouped_mm(
    a: Tensor, b: Tensor, offs: Tensor | None = None, *, fallback: bool = False
) -> Tensor:
    """The products of groups of bf16 or f16, in the forms of torch.nn.functional.grouped_mm; sums in f32.

        a (m, k),         b (groups, k, n)  ->  (m, n)          a group has rows of a
        a (m, k),         b (k, n)          ->  (groups, m, n)  a group has elements of k
        a (groups, m, k), b (k, n)          ->  (m, n)          a group has columns of b
        a (groups, m, k), b (groups, k, n)  ->  (groups, m, n)  without offs

    offs: int32 (groups,), on the device: group g ends before offs[g] and begins at the end of the previous group.
    Elements past the last end belong to no group: such rows of the result are not written, and their gradient is 0.
    The result has the dtype of a and b. fallback: let PyTorch compute calls without a kernel, which otherwise raise an
    ArgumentError.

        >>> a, b = torch.ones(20, 40).bfloat16(), torch.ones(2, 40, 30).bfloat16()
        >>> grouped_mm(a, b, torch.tensor([7, 20], dtype=torch.int32)).shape
        torch.Size([20, 30])
    """
    return GROUPED_MM.call((a, b, offs), (False,), fallback)


def _check(of: Operands, fill: bool) -> None:
    of.shapes(a="m k | groups m k", b="k n | groups k n")
    dtype = of.dtypes("a", "b", among=NARROW)
    ranks = of.rank("a"), of.rank("b")
    if ranks == (3, 3):
        if "offs" in of:
            raise of.fail("`offs` has no meaning if `a` and `b` have rank 3", "leave it out")
    elif "offs" not in of:
        raise of.fail(
            "`offs` must be a tensor, not NoneType",
            "offs[g] is where group g ends, of int32 and on the device of `a`",
        )
    of.shapes(offs="groups")
    of.dtypes("offs", among=("int32",))
    of.result("groups m n" if ranks in ((2, 2), (3, 3)) else "m n", dtype)
    if of.rank("a") == 3:
        of.rearrange("an `a` of rank 2", "others")


def _run(a: Tensor, b: Tensor, offs: Any, fill: bool) -> Tensor:
    """The product of an a of rank 2; with `fill`, rows of the result that belong to no group are 0."""
    if b.dim() == 2:
        return grouped_gemm_k(a, b, offs, transpose_b=False)
    out = a.new_zeros((a.shape[0], b.shape[2])) if fill else None
    return grouped_gemm(a, b, offs, out, transpose_b=False)


def _rearranged(a: Tensor, b: Tensor, offs: Tensor, fill: bool) -> Tensor:
    if b.dim() == 3:
        return matmul(a, b)
    return GROUPED_MM.launch(b.mT, a.mT, offs, fill).mT


# -- gradients -------------------------------------------------------------------------------------


def _setup(ctx: Any, args: tuple[Any, ...], result: Tensor) -> None:
    """Keeps an operand only for the gradient of the other."""
    a, b, offs, _ = args
    for_a, for_b = ctx.needs_input_grad[:2]
    ctx.save_for_backward(a if for_b else None, b if for_a else None, offs)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    a, b, offs = ctx.saved_tensors
    for_a, for_b = ctx.needs_input_grad[:2]
    product, of_a, of_b = GROUPED_MM.launch, None, None
    if gradient.dim() == 2:  # of rows
        of_a = product(gradient, b.mT, offs, True) if for_a else None
        of_b = product(a.mT, gradient, offs, False) if for_b else None
    else:  # of k
        of_a = product(b, gradient.mT, offs, True).mT if for_a else None
        of_b = product(a.mT, gradient, offs, True) if for_b else None
    return of_a, of_b, None, None


GROUPED_MM = Operator(
    # `offs` may be None, so that the check can name the argument that is missing.
    "grouped_mm(Tensor a, Tensor b, Tensor? offs=None, bool fill=False) -> Tensor",
    _check,
    _run,
    fallback=lambda a, b, offs, fill: functional.grouped_mm(a, b, offs=offs),
    rearranged=_rearranged,
    setup=_setup,
    backward=_backward,
    flops=lambda a, b, *_: 2 * a.numel() * b.shape[-1],  # rows that belong to no group, too
    casts="a b",
)
