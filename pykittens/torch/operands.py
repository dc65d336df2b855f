"""The tensors that the operators take, and the errors for others."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad

import pykittens as pk
from pykittens.errors import ArgumentError, Loc
from pykittens.kernels.epilogue import ACTIVATIONS
from pykittens.torch.registration import has_tangent, is_castable

DTYPES = {
    torch.bfloat16: pk.bf16,
    torch.float16: pk.f16,
    torch.float32: pk.f32,
    torch.float8_e4m3fn: pk.e4m3,
    torch.float8_e5m2: pk.e5m2,
}
NARROW = (torch.bfloat16, torch.float16)
FLOATS = (*NARROW, torch.float32)
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
OLDEST = 8  # compute capability of the GPUs that the oldest target is for
_TORCH = os.path.dirname(torch.__file__) + os.sep
_DEVICES = ("cuda", "cpu", "meta")


class Refusal(NamedTuple):
    """Why a call cannot be done, and a way out. It is no error yet: the call may fall back to PyTorch."""

    message: str
    help: str | None = None

    def error(self, function: str, **operands: Any) -> ArgumentError:
        """The error of a function that was called with these tensors."""
        shown = {name: _shown(x) for name, x in operands.items() if x is not None}
        place = Loc.here(beyond=(_TORCH,))  # the dispatcher's frames may lie in between
        message = f"{function}: {self.message}"
        return ArgumentError(message, operands=shown, loc=place, help=self.help)


def name_of(dtype: Any) -> str:
    """The language's name of a dtype, PyTorch's if it has none."""
    return DTYPES[dtype].name if dtype in DTYPES else str(dtype).removeprefix("torch.")


def _to(dtype: Any) -> str:
    return f"convert it with .to({dtype}), or let PyTorch do it with fallback=True"


def _shown(x: Any) -> str:
    if not isinstance(x, torch.Tensor):
        return type(x).__name__
    if x.is_nested:
        return f"{name_of(x.dtype)} (nested) on {x.device}"
    extents = ", ".join(map(str, x.shape))
    return f"{name_of(x.dtype)} ({extents}) on {x.device}"


def refused_pair(
    names: tuple[str, str], a: Any, b: Any, dtypes: tuple[Any, ...], cast: bool = True
) -> Refusal | None:
    """Why two tensors cannot be multiplied, whatever their shapes; None where they can.

    cast: under autocast other floats are converted.
    """
    for name, x in zip(names, (a, b), strict=True):
        if not isinstance(x, torch.Tensor):
            return Refusal(f"`{name}` must be a tensor, not {type(x).__name__}")
        if (refusal := refused_layout(name, x)) is not None:
            return refusal
    if a.device != b.device:
        return Refusal(f"`{names[0]}` is on {a.device} and `{names[1]}` on {b.device}")
    if a.device.type not in _DEVICES:
        return Refusal(
            f"`{names[0]}` is on {a.device}, where there are no kernels",
            "move it to a CUDA device, or let PyTorch do it with fallback=True",
        )
    if not torch.compiler.is_compiling() and a.is_cuda and torch.cuda.is_initialized():
        major, minor = torch.cuda.get_device_capability(a.device)
        if major < OLDEST:
            return Refusal(
                f"`{names[0]}` is on a GPU of compute capability {major}.{minor}, and kernels need {OLDEST}.0",
                "let PyTorch do it with fallback=True",
            )
    if cast and _is_autocast(a, b):
        return None
    for name, x in zip(names, (a, b), strict=True):
        if x.dtype not in dtypes:
            wanted = " or ".join(map(name_of, dtypes))
            return Refusal(f"`{name}` must be {wanted}, not {name_of(x.dtype)}", _to(dtypes[0]))
    if a.dtype != b.dtype and a.dtype not in FP8:
        return Refusal(f"`{names[1]}` must have the dtype of `{names[0]}`", _to(a.dtype))
    return None


def refused_layout(name: str, x: Any) -> Refusal | None:
    """Why the elements of a tensor do not lie as those of an array; None where they do."""
    if x.is_nested:
        way = f"pass torch.nested.to_padded_tensor({name}, 0), or its parts one by one"
        return Refusal(f"`{name}` must be one array, not a nested tensor", way)
    if x.layout is not torch.strided:
        layout = str(x.layout).removeprefix("torch.")
        return Refusal(f"`{name}` must be dense, not {layout}", f"pass {name}.to_dense()")
    return None


def _is_autocast(a: Any, b: Any) -> bool:
    kind = a.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return False
    return torch.get_autocast_dtype(kind) in NARROW and is_castable(a) and is_castable(b)


def refused_beside(
    name: str, x: Any, of: Any, shape: tuple[Any, ...], dtypes: tuple[Any, ...] = FLOATS
) -> Refusal | None:
    """Why a tensor that is added, or a scale, does not fit a product of `of`; None where it does or is not given."""
    if x is None:
        return None
    if not isinstance(x, torch.Tensor):
        return Refusal(f"`{name}` must be a tensor, not {type(x).__name__}")
    if (refusal := refused_layout(name, x)) is not None:
        return refusal
    if tuple(x.shape) != tuple(shape):
        extents = ", ".join(map(str, shape)) + "," * (len(shape) == 1)
        return Refusal(f"`{name}` must have the shape ({extents})")
    if x.dtype not in dtypes:
        wanted = " or ".join(map(name_of, dtypes))
        return Refusal(f"`{name}` must be {wanted}, not {name_of(x.dtype)}", _to(dtypes[0]))
    if x.device != of.device:
        return Refusal(f"`{name}` is on {x.device}, and the product on {of.device}")
    return None


def refused_activation(activation: Any) -> Refusal | None:
    """Why there is no such activation; None where there is."""
    if isinstance(activation, str) and activation in ACTIVATIONS:
        return None
    known = ", ".join(f'"{name}"' for name in ACTIVATIONS)
    return Refusal(f"`activation` must be one of {known}, not {activation!r}")


def check_transforms(function: str, **operands: Any) -> None:
    """Raise where a gradient or a tangent is asked for in a way that operators with gradients of their own lack."""
    if torch._C._are_functorch_transforms_active():
        raise Refusal(
            "torch.func.grad, vjp, jvp and what is made of them do not go through this operator",
            "use torch.autograd.grad or .backward(); torch.vmap works",
        ).error(function, **operands)
    if forward_ad._current_level >= 0 and any(map(has_tangent, operands.values())):
        raise Refusal(
            "there is no derivative in forward mode, and one of the tensors has a tangent",
            "use torch.autograd.grad or .backward()",
        ).error(function, **operands)
