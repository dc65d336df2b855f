"""What the kernels of the library share: the registry KERNELS, arrays, repeated launches, and the limits of a GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from pykittens import settings
from pykittens.errors import ArgumentError, ResourceError
from pykittens.runtime import driver
from pykittens.runtime.arrays import describe, numpy_dtype, torch_dtype
from pykittens.runtime.bound import BoundLaunch
from pykittens.runtime.kernel import DEFAULT_ARCH, KernelFunction
from pykittens.targets.architectures import target_for
from pykittens.types.devices import H200

C = TypeVar("C")


@dataclass(frozen=True)
class Entry:
    """A kernel of the library.

    function: the host function. kernel: what it launches. reference: the same in float64 NumPy.
    cases: shapes and constants, as keyword arguments of `inputs`. inputs: for a generator and a case, the NumPy arrays
    and constants that both the function and the reference take.
    """

    name: str
    function: Callable[..., Any]
    kernel: KernelFunction
    reference: Callable[..., Any]
    cases: tuple[dict[str, Any], ...]
    inputs: Callable[..., dict[str, Any]]


KERNELS: dict[str, Entry] = {}


def entry(
    *,
    kernel: KernelFunction,
    reference: Callable[..., Any],
    cases: tuple[dict[str, Any], ...],
    inputs: Callable[..., dict[str, Any]],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: make a host function known to tests, benchmarks and docs."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        KERNELS[function.__name__] = Entry(
            function.__name__, function, kernel, reference, cases, inputs
        )
        return function

    return register


# -- arguments -------------------------------------------------------------------------------------


def check_floats(name: str, *, rank: int, **arrays: Any) -> None:
    """Raise unless all are arrays of this rank and of one dtype, bf16 or f16."""
    found = {word: describe(value) for word, value in arrays.items()}
    first = next(iter(found))
    for word, array in found.items():
        if array is None:
            raise ArgumentError(
                f"{name}: `{word}` must be an array, not {type(arrays[word]).__name__}"
            )
        if len(array.shape) != rank:
            raise ArgumentError(
                f"{name}: `{word}` must have rank {rank}, not {len(array.shape)}",
                operands=dict(found),
            )
        if array.dtype not in ("bf16", "f16"):
            raise ArgumentError(
                f"{name}: `{word}` must be bf16 or f16, not {array.dtype}", operands=dict(found)
            )
        if array.dtype != found[first].dtype:  # type: ignore[union-attr]
            raise ArgumentError(
                f"{name}: `{word}` must have the dtype of `{first}`", operands=dict(found)
            )


def empty(like: Any, shape: tuple[int, ...], dtype: str | None = None) -> Any:
    """An array of this shape, with the library, the device and, if none is said, the dtype of another."""
    if isinstance(like, np.ndarray):
        return np.empty(shape, like.dtype if dtype is None else numpy_dtype(dtype))
    return (
        like.new_empty(shape) if dtype is None else like.new_empty(shape, dtype=torch_dtype(dtype))
    )


def contiguous(array: Any) -> Any:
    """The array, copied unless its elements lie one behind the other."""
    return np.ascontiguousarray(array) if isinstance(array, np.ndarray) else array.contiguous()


def spread_to(array: Any, shape: tuple[int, ...]) -> Any:
    """A view of this shape in which axes of extent 1 repeat."""
    if tuple(array.shape) == shape:
        return array
    return np.broadcast_to(array, shape) if isinstance(array, np.ndarray) else array.expand(shape)


# -- launches ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Repeated:
    """What holds for every call like one that was made before, so that it is launched with little ado.

    places: which of the addresses and numbers of a call the arguments of the kernel are. shape, dtype: of the result.
    """

    launch: BoundLaunch
    places: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str

    def __call__(self, values: list[Any], a: Any, out: Any, stream: int) -> Any:
        """Launch with these addresses and numbers, the third of which is the result's address; the result."""
        if out is None:
            out = empty(a, self.shape, self.dtype)
            values[2] = out.data_ptr()
        self.launch([values[i] for i in self.places], stream)
        return out

    def fixed(self, values: list[Any], stream: int) -> Callable[[int], bool] | None:
        """The launch just made with these addresses and numbers on a stream; None if it cannot be made again so."""
        return self.launch.fixed([values[i] for i in self.places])


# -- the GPU ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limits:
    """What a GPU gives the programs of its target.

    shared_bytes: most shared memory of a block. warpgroups: whether four warps multiply together. multiprocessors:
    how many there are; those of an H200 where no GPU is asked.
    """

    target: str
    shared_bytes: int
    warpgroups: bool
    multiprocessors: int = H200.sms


def limits_of(array: Any) -> Limits:
    """The limits of the GPU an array is on; for an array of the CPU those of Hopper, since the emulator has none."""
    found = describe(array)
    ordinal = -1 if found is None or isinstance(found.device, str) else found.device[1]
    return _limits(ordinal, settings.target())


@functools.cache
def _limits(ordinal: int, chosen: str) -> Limits:
    if ordinal < 0:
        target = target_for(DEFAULT_ARCH, chosen)
        return Limits(target.name, target.shared_bytes, target.warpgroups)
    device = driver.device(ordinal)
    target = target_for(device.arch, chosen)
    shared_bytes = min(target.shared_bytes, device.shared_bytes_per_block_optin)
    return Limits(target.name, shared_bytes, target.warpgroups, device.multiprocessors)


def first_that_fits(name: str, configs: Sequence[tuple[C, int]], limits: Limits) -> C:
    """The first configuration whose shared memory a block can have; each stands with its bytes."""
    for config, shared_bytes in configs:
        if shared_bytes <= limits.shared_bytes:
            return config
    least = min((b for _, b in configs), default=None)
    why = (
        "there is none for its products"
        if least is None
        else f"the smallest takes {least} bytes of shared memory a block, and there are {limits.shared_bytes}"
    )
    raise ResourceError(
        f"{name}: no configuration fits {limits.target}: {why}",
        help="the emulator runs it: pass arrays of the CPU",
    )
