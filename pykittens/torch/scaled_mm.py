"""Products of fp8 with scales, as torch._scaled_mm."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pykittens.errors import KernelError
from pykittens.kernels.gemm import gemm
from pykittens.torch.operands import (
    DTYPES,
    FLOATS,
    FP8,
    Refusal,
    name_of,
    refused_beside,
    refused_layout,
    refused_pair,
)
from pykittens.torch.registration import is_direct, needs_gradient, operator

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

    a: (m, k). b: (k, n), best the transpose of a weight (n, k). The shapes of the scales, which are f32, say what they
    scale: one number the tensor; (m, 1) the rows of a, (1, n) the columns of b; (m, k/128) blocks of 1 x 128 of a with
    (k/128, n/128) blocks of 128 x 128 of b, rounded up. bias: (n,). out_dtype: bf16, f16 or f32. There is no gradient.
    fallback: what has no kernel is left to torch._scaled_mm. tune: measure configurations once.
    """
    given = (a, b, scale_a, scale_b, bias)
    if (
        is_direct(*given, optional=1)
        and _is_usual(*given, out_dtype)
        and not needs_gradient(*given)
    ):
        try:
            return _run(*given, out_dtype, tune)
        except KernelError:
            if _refused(*given, out_dtype) is None:
                raise
    refusal = _refused(*given, out_dtype)
    if refusal is not None:
        if fallback:
            return torch._scaled_mm(a, b, scale_a, scale_b, bias=bias, out_dtype=out_dtype)
        if torch.compiler.is_compiling():
            return SCALED_MM(*given, out_dtype, tune)  # the operator says it
        raise refusal.error("scaled_mm", a=a, b=b, scale_a=scale_a, scale_b=scale_b, bias=bias)
    if is_direct(*given, optional=1) and needs_gradient(*given):
        return _no_gradient(*given)
    return SCALED_MM(*given, out_dtype, tune)


def _is_usual(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, out_dtype: Any) -> bool:
    """Whether gemm checks what else there is to check."""
    matrices = a.dtype in FP8 and a.dim() == b.dim() == 2
    scales = all(
        s.dtype is torch.float32 and (s.dim() == 2 or s.numel() == 1) for s in (scale_a, scale_b)
    )
    beside = bias is None or (bias.dim() == 1 and bias.dtype in FLOATS)
    return matrices and scales and beside and out_dtype in FLOATS


def _refused(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, out_dtype: Any
) -> Refusal | None:
    """Why there is no kernel for a product; None where there is."""
    refusal = refused_pair(("a", "b"), a, b, FP8, cast=False)
    if refusal is not None:
        return refusal
    for name, x in (("a", a), ("b", b)):
        if x.dim() != 2:
            return Refusal(f"`{name}` must have rank 2, not {x.dim()}")
    if a.shape[1] != b.shape[0]:
        return Refusal(f"`a` has {a.shape[1]} columns and `b` {b.shape[0]} rows")
    if not isinstance(out_dtype, torch.dtype):
        kind = type(out_dtype).__name__
        return Refusal(f"`out_dtype` must be a torch dtype such as torch.bfloat16, not {kind}")
    if out_dtype not in FLOATS:
        wanted = ", ".join(map(name_of, FLOATS))
        return Refusal(f"`out_dtype` must be one of {wanted}, not {name_of(out_dtype)}")
    return (
        _refused_scales(scale_a, scale_b, a.shape[0], b.shape[1], a.shape[1])
        or refused_beside("scale_a", scale_a, a, scale_a.shape, (torch.float32,))
        or refused_beside("scale_b", scale_b, a, scale_b.shape, (torch.float32,))
        or refused_beside("bias", bias, a, b.shape[1:])
    )


def _refused_scales(scale_a: Any, scale_b: Any, m: Any, n: Any, k: Any) -> Refusal | None:
    for name, x in (("scale_a", scale_a), ("scale_b", scale_b)):
        if not isinstance(x, torch.Tensor):
            return Refusal(f"`{name}` must be a tensor, not {type(x).__name__}")
        if (refusal := refused_layout(name, x)) is not None:
            return refusal
    lines = _is_one_or(scale_a, (m, 1)) and _is_one_or(scale_b, (1, n))
    if lines or _are_blocks(scale_a, scale_b, m, n, k):
        return None
    steps, wide = _blocks(k), _blocks(n)
    return Refusal(
        f"`scale_a` of {tuple(scale_a.shape)} and `scale_b` of {tuple(scale_b.shape)} do not fit the product",
        f"there are scales of one number each, of lines, ({m}, 1) and (1, {n}), and of blocks, ({m}, {steps}) and"
        f" ({steps}, {wide})",
    )


def _blocks(extent: Any) -> Any:
    return -(-extent // BLOCK)


def _is_one_or(scale: Tensor, shape: tuple[Any, Any]) -> bool:
    return scale.numel() == 1 or tuple(scale.shape) == shape


def _are_blocks(scale_a: Tensor, scale_b: Tensor, m: Any, n: Any, k: Any) -> bool:
    steps = _blocks(k)
    if scale_a.dim() != 2 or scale_b.dim() != 2 or tuple(scale_a.shape) != (m, steps):
        return False
    # cuBLAS wants the scales of a column of blocks filled up to a multiple of four.
    heights = (steps, -(-steps // 4) * 4)
    return scale_b.shape[0] in heights and scale_b.shape[1] == _blocks(n)


# -- the operator ----------------------------------------------------------------------------------


def _run(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    out_dtype: Any = None,
    tune: bool = False,
) -> Tensor:
    scales = _scales(a, b, scale_a, scale_b)
    dtype = DTYPES[out_dtype or torch.bfloat16]
    return gemm(a, b, transpose_b=False, out_dtype=dtype, bias=bias, tune=tune, **scales)


def _scales(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> dict[str, Tensor]:
    """The scales as gemm takes them."""
    one_a, one_b = scale_a.numel() == 1, scale_b.numel() == 1
    if one_a and one_b:
        return {"alpha": scale_a.reshape(()) * scale_b.reshape(())}
    (m, k), n = a.shape, b.shape[1]
    if not (_is_one_or(scale_a, (m, 1)) and _is_one_or(scale_b, (1, n))):
        return {"row_blocks": scale_a, "column_blocks": scale_b[: _blocks(k)].mT}
    return {
        "alpha" if one_a else "row_scale": scale_a.reshape(() if one_a else (m,)),
        "alpha" if one_b else "column_scale": scale_b.reshape(() if one_b else (n,)),
    }


def _run_checked(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    out_dtype: Any = None,
    tune: bool = False,
) -> Tensor:
    given = (a, b, scale_a, scale_b, bias, out_dtype or torch.bfloat16)
    if not _is_usual(*given):
        _check(*given)
    return _run(*given, tune)


def _check(*given: Any) -> None:
    refusal = _refused(*given)
    if refusal is not None:
        names = ("a", "b", "scale_a", "scale_b", "bias")
        raise refusal.error("scaled_mm", **dict(zip(names, given, strict=False)))


def _fake(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    out_dtype: Any = None,
    tune: bool = False,
) -> Tensor:
    dtype = out_dtype or torch.bfloat16
    _check(a, b, scale_a, scale_b, bias, dtype)
    return a.new_empty((a.shape[0], b.shape[1]), dtype=dtype)


def _no_gradient(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *rest: Any) -> Tensor:
    raise Refusal(
        "a product of fp8 has no gradient, and one of its tensors asks for it",
        "pass tensors after .detach(), or call it under torch.no_grad()",
    ).error("scaled_mm", a=a, b=b, scale_a=scale_a, scale_b=scale_b)


SCALED_MM = operator(
    "scaled_mm(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias=None,"
    " ScalarType? out_dtype=None, bool tune=False) -> Tensor",
    run=_run_checked,
    fake=_fake,
    autograd=_no_gradient,
)
