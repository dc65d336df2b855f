"""Products of fp8 with scales, as torch._scaled_mm."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pykittens.kernels.arrays import FLOATS, FP8
from pykittens.kernels.gemm import gemm
from pykittens.torch.operands import Operands, name_of
from pykittens.torch.operator import Operator
from pykittens.types.dtypes import DTYPES

BLOCK = 128  # elements along a side of a block that has one scale


def scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    out_dtype: Any = torch.bfloat16,
    *,
    fallback: bool = False,
    tune: bool = False,
) -> Tensor:
    """(scale_a * a) @ (scale_b * b) + bias of e4m3 or e5m2; sums in f32, rounded once to `out_dtype`.

    a: (m, k). b: (k, n), preferably the transpose of a weight (n, k). Scales are f32, and their shapes say what they
    scale: one number the tensor; (m, 1) the rows of a, (1, n) the columns of b; (m, k/128) blocks of 1 x 128 of a with
    (k/128, n/128) blocks of 128 x 128 of b, rounded up. bias: (n,) of bf16, f16 or f32. out_dtype: bf16, f16 or f32.
    There is no gradient. fallback: let torch._scaled_mm compute calls without a kernel, which otherwise raise an
    ArgumentError. tune: measure configurations once.

        >>> fp8 = torch.float8_e4m3fn
        >>> x, weight = torch.ones(20, 64).to(fp8), torch.ones(30, 64).to(fp8)
        >>> scaled_mm(x, weight.t(), torch.tensor(0.5), torch.tensor(2.0)).shape
        torch.Size([20, 30])
    """
    return SCALED_MM.call((a, b, scale_a, scale_b, bias), (out_dtype, tune), fallback)


def _check(of: Operands, out_dtype: Any, tune: bool) -> None:
    if not isinstance(out_dtype, torch.dtype):
        kind = type(out_dtype).__name__
        raise of.fail(f"`out_dtype` must be a torch dtype such as torch.bfloat16, not {kind}")
    of.dtypes("a", "b", among=FP8, same=False)
    of.dtypes("scale_a", "scale_b", among=("f32",))
    of.dtypes("bias", among=FLOATS)
    of.shapes(a="m k", b="k n", bias="n")
    m, n, k = (of.dims[axis] for axis in "mnk")
    scale_a, scale_b = of.given["scale_a"], of.given["scale_b"]
    steps, wide = _blocks(k), _blocks(n)
    # cuBLAS pads the scales of a column of blocks to a multiple of four.
    blocks = [(m, steps)], [(steps, wide), (-(-steps // 4) * 4, wide)]
    are_blocks = tuple(scale_a.shape) in blocks[0] and tuple(scale_b.shape) in blocks[1]
    if not are_blocks and not _are_lines(scale_a, scale_b, m, n):
        raise of.fail(
            f"`scale_a` of {tuple(scale_a.shape)} and `scale_b` of {tuple(scale_b.shape)} do not fit the product",
            f"there are scales of one number each, of lines, ({m}, 1) and (1, {n}), and of blocks, ({m}, {steps}) and"
            f" ({steps}, {wide})",
        )
    of.result("m n", name_of(out_dtype), among=FLOATS)


def _blocks(extent: Any) -> Any:
    return -(-extent // BLOCK)


def _are_lines(scale_a: Tensor, scale_b: Tensor, m: Any, n: Any) -> bool:
    """Whether `scale_a` has one number or one per row of a, and `scale_b` one number or one per column of b."""
    pairs = (scale_a, (m, 1)), (scale_b, (1, n))
    return all(scale.numel() == 1 or tuple(scale.shape) == shape for scale, shape in pairs)


def _scales(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> dict[str, Tensor]:
    """The scales as gemm takes them."""
    (m, k), n = a.shape, b.shape[1]
    if not _are_lines(scale_a, scale_b, m, n):
        return {"row_blocks": scale_a, "column_blocks": scale_b[: _blocks(k)].mT}
    one_a, one_b = scale_a.numel() == 1, scale_b.numel() == 1
    if one_a and one_b:
        return {"alpha": scale_a.reshape(()) * scale_b.reshape(())}
    return {
        "alpha" if one_a else "row_scale": scale_a.reshape(() if one_a else (m,)),
        "alpha" if one_b else "column_scale": scale_b.reshape(() if one_b else (n,)),
    }


SCALED_MM = Operator(
    "scaled_mm(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias=None,"
    " ScalarType out_dtype=bfloat16, bool tune=False) -> Tensor",
    _check,
    lambda a, b, scale_a, scale_b, bias, out_dtype, tune: gemm(
        *(a, b),
        transpose_b=False,
        out_dtype=DTYPES[name_of(out_dtype)],
        bias=bias,
        tune=tune,
        **_scales(a, b, scale_a, scale_b),
    ),
    fallback=lambda a, b, scale_a, scale_b, bias, out_dtype, tune: torch._scaled_mm(
        a, b, scale_a, scale_b, bias=bias, out_dtype=out_dtype
    ),
    defaults={"out_dtype": torch.bfloat16},
    flops=lambda a, b, *_: 2 * a.numel() * b.shape[1],
    no_gradient=(
        "a product of fp8 has no gradient, and one of its tensors asks for it",
        "pass tensors after .detach(), or call it under torch.no_grad()",
    ),
)
