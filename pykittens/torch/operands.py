"""The tensors of an operator's call, with or without memory, and their checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from pykittens.errors import ArgumentError
from pykittens.kernels.arrays import FLOATS, FP8, Arrays, gradient_of
from pykittens.kernels.epilogue import check_activation
from pykittens.runtime.arrays import Array, torch_dtype
from pykittens.torch.registration import is_castable

OLDEST = 8  # compute capability of the GPUs that the oldest target is for
_DTYPES = {name: torch_dtype(name) for name in (*FLOATS, *FP8, "int32")}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_DEVICES = ("cuda", "cpu", "meta")


class Refusal(ArgumentError):
    """The reason why a call has no kernel. It has no operands and no line, since the compiler could not trace them."""

    def __init__(self, message: str, help: str | None) -> None:
        self.message, self.help = message, help


class Operands(Arrays):
    """The tensors of a call by name. Extents may be symbolic; strides and memory are left to the host function.

    refusal: a message and a help if there is no kernel for the call. rearranged: the same if the function takes the
    call but the operator does not. way: how PyTorch computes a call that has no kernel.
    """

    def __init__(self, function: str, way: str) -> None:
        super().__init__(function)
        self.way = way
        self.refusal: tuple[str, str | None] | None = None
        self.rearranged: tuple[str, str | None] | None = None

    def add(self, name: str, x: Any, cast: bool) -> None:
        """Add an argument; an ArgumentError unless it is a tensor that kernels can read. cast: autocast converts it."""
        if not isinstance(x, torch.Tensor):
            raise self.fail(f"`{name}` must be a tensor, not {type(x).__name__}")
        if x.is_nested:
            way = f"pass torch.nested.to_padded_tensor({name}, 0), or its parts one by one"
            raise self.fail(f"`{name}` must be one array, not a nested tensor", way)
        if x.layout is not torch.strided:
            layout = str(x.layout).removeprefix("torch.")
            raise self.fail(f"`{name}` must be dense, not {layout}", f"pass {name}.to_dense()")
        self._check_device(name, x)
        dtype = (_autocast_dtype(x) if cast else None) or x.dtype
        self.found[name] = Array(name_of(dtype), tuple(x.shape), (), 0, "cpu", True, x)
        self.given[name] = x

    def _check_device(self, name: str, x: torch.Tensor) -> None:
        for first, other in self.given.items():
            if x.device != other.device:
                raise self.fail(f"`{first}` is on {other.device} and `{name}` on {x.device}")
        if x.device.type not in _DEVICES:
            help = f"move it to a CUDA device, or {self.way}"
            raise self.fail(f"`{name}` is on {x.device}, where there are no kernels", help)
        if not is_dynamo_compiling() and x.is_cuda and torch.cuda.is_initialized():
            found = torch.cuda.get_device_capability(x.device)
            if found[0] < OLDEST:
                gpu = "a GPU of compute capability {}.{}".format(*found)
                raise self.fail(f"`{name}` is on {gpu}, and kernels need {OLDEST}.0", self.way)

    def fail(self, message: str, help: str | None = None) -> ArgumentError:
        """The error for a call that has no kernel."""
        return Refusal(f"{self.function}: {message}", help)

    def rank(self, name: str) -> int:
        """The number of axes of a tensor."""
        return len(self.found[name].shape)

    def dtypes(self, *names: str, among: Sequence[str], same: bool = True) -> str:
        """The dtype of the first; an ArgumentError unless those given are among these, and all the same if `same`."""
        try:
            return super().dtypes(*names, among=among, same=same)
        except ArgumentError as error:
            own = next(self.found[name].dtype for name in names if name in self)
            wanted = _DTYPES[own if own in among else among[0]]
            # PyTorch has the same rule for an argument with a single dtype.
            way = f", or {self.way}" if len(among) > 1 else ""
            error.help = f"convert it with .to({wanted}){way}"
            raise

    def optional(self, name: str, spec: str, dtype: str, is_asked: Any) -> tuple[str, ...]:
        """Add a result, empty unless it is asked for: an operator always has as many."""
        self.make(name, *((spec, dtype) if is_asked else ("0", "f32")))
        return (name,)

    def gradients(self, *names: str) -> tuple[str, ...]:
        """Add the gradients of these tensors, empty for those that are absent."""
        for name in names:
            if name in self:
                super().gradients(name)
            else:
                self.make(gradient_of(name), "0", "f32")
        return tuple(map(gradient_of, names))

    def _check_memory(self) -> None:
        if not is_dynamo_compiling() and self.given["out"].is_neg():
            raise self.fail(
                "`out` must not be a negated view",
                "write to another tensor, and copy that",
            )

    def activation(self, activation: Any) -> None:
        """Raise unless there is such an activation."""
        if not is_dynamo_compiling():  # else the operator raises: PyTorch has no other activations
            check_activation(self.function, activation)

    def matrices(self, *names: str) -> None:
        """Let the function rearrange the tensors of the call if one of these is a vector."""
        if any(self.rank(name) == 1 for name in names):
            self.rearrange("matrices", "vectors")

    def rearrange(self, takes: str, others: str) -> None:
        """Let the function rearrange the tensors of the call; the operator refuses them."""
        way = f"pykittens.torch.{self.function} takes {others}"
        self.rearranged = f"{self.function}: the operator takes {takes}", way


def name_of(dtype: Any) -> str:
    """The language's name of a dtype, or PyTorch's if it has none."""
    return _NAMES.get(dtype) or str(dtype).removeprefix("torch.")


def description(x: Any) -> str:
    """The description of an argument in an error."""
    if not isinstance(x, torch.Tensor):
        return type(x).__name__
    if x.is_nested:
        return f"{name_of(x.dtype)} (nested) on {x.device}"
    extents = ", ".join(map(str, x.shape))
    return f"{name_of(x.dtype)} ({extents}) on {x.device}"


def _autocast_dtype(x: torch.Tensor) -> Any:
    """The dtype to which autocast converts a tensor, or None."""
    device = x.device.type
    if device == "meta" or not torch.is_autocast_enabled(device) or not is_castable(x):
        return None
    return torch.get_autocast_dtype(device)
