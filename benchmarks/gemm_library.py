"""The same products by the vendor's library: cuBLAS and cuBLASLt through PyTorch, followed by pointwise kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gemm_problems import Data, Problem, allowed
from torch import Tensor
from torch.nn import functional

Library = Callable[[Data], Tensor]  # returns the result, which may be new memory


def libraries(problem: Problem) -> dict[str, Library]:
    """The variants of the library by their names; ratios are to the first."""
    if problem.section == "fp8":
        return {"cuBLASLt": _fp8}
    if problem.section == "blocks":
        return {"cuBLASLt": _blocks}
    if problem.fused:
        return {"cuBLAS + torch.compile": _then_pointwise(problem), **_fused(problem)}

    def product(data: Data) -> Tensor:
        return torch.mm(data.a, data.b.T if problem.transpose_b else data.b, out=data.out)

    return {"cuBLAS": product}


def library_allowed(problem: Problem) -> float:
    """The largest error allowed for the library, which may round before an epilogue and round partial sums."""
    return 4 * allowed(problem)


def _fp8(data: Data) -> Tensor:
    return torch._scaled_mm(
        data.a,
        data.b.t(),
        scale_a=data.extras["alpha"],
        scale_b=_one(data.a.device),
        out_dtype=data.out.dtype,
        use_fast_accum=True,
        out=data.out,
    )


_ones: dict[torch.device, Tensor] = {}


def _one(device: torch.device) -> Tensor:
    if device not in _ones:
        _ones[device] = torch.ones((), device=device)
    return _ones[device]


def _blocks(data: Data) -> Tensor:
    """A product with scales of blocks.

    The library reads rows of a multiple of 4 of the scales of b, whatever their stride, so where k has another number
    of blocks it must be given padded ones, which `torch._scaled_mm` does not take. Source: pull request 166752 of
    PyTorch.
    """
    rows, columns = data.extras["row_blocks"], data.extras["column_blocks"]
    assert data.padded is not None
    if columns.shape[1] == data.padded.shape[1]:
        return torch._scaled_mm(
            data.a,
            data.b.t(),
            scale_a=rows,
            scale_b=columns.t(),
            out_dtype=data.out.dtype,
            out=data.out,
        )
    kinds = functional.ScalingType
    return functional.scaled_mm(
        data.a,
        data.b.t(),
        rows,
        kinds.BlockWise1x128,
        data.padded.t(),
        kinds.BlockWise128x128,
        output_dtype=data.out.dtype,
    )


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "": lambda y: y,
    "gelu": functional.gelu,
    "relu": functional.relu,
    "silu": functional.silu,
}


def _then_pointwise(problem: Problem) -> Library:
    """One product, of both weights if there is a gate, followed by one kernel."""
    activate, n = ACTIVATIONS[problem.activation], problem.n
    torch._dynamo.reset()  # the number of shapes compiled for one function is limited

    @torch.compile(dynamic=False)
    def pointwise(y: Tensor, bias: Any, residual: Any) -> Tensor:
        gate = y[:, n:].float() if problem.is_gated else None
        y = y[:, :n].float()
        if bias is not None:
            y = y + bias
        y = activate(y)
        if gate is not None:
            y = y * gate
        if residual is not None:
            y = y + residual
        return y.bfloat16()

    def product(data: Data) -> Tensor:
        y = torch.mm(data.a, data.weights.T)
        return pointwise(y, data.extras.get("bias"), data.extras.get("residual"))

    return product


def _fused(problem: Problem) -> dict[str, Library]:
    """The epilogues of cuBLASLt. Its gelu is the tanh approximation, another function."""
    if problem.fused == "bias + relu":
        return {
            "cuBLASLt, fused": lambda d: torch._addmm_activation(
                d.extras["bias"], d.a, d.b.T, use_gelu=False
            )
        }
    if problem.fused == "residual":
        return {"cuBLASLt, fused": lambda d: torch.addmm(d.extras["residual"], d.a, d.b.T)}
    return {}
