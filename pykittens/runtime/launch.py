"""Launches on a GPU: what a call needs is worked out once for its shapes, strides and alignments."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from math import prod
from operator import itemgetter
from typing import Any

from pykittens import settings
from pykittens.errors import ArgumentError, BackendError
from pykittens.ir.evaluate import depends_on, host_function, host_value
from pykittens.ir.nodes import Kernel, Tasks, waits_for_flags, written
from pykittens.ir.orders import task_extents
from pykittens.ir.values import Global, Value
from pykittens.runtime import driver
from pykittens.runtime.arguments import (
    INT32,
    Arguments,
    check_aliasing,
    check_values,
    requirements,
    span,
)
from pykittens.runtime.arrays import Array
from pykittens.runtime.compiled import Compiled
from pykittens.runtime.launcher import Launcher
from pykittens.runtime.launcher import Slot as Kind
from pykittens.runtime.report import report_of, told
from pykittens.runtime.tensor_map import encode_tensor_map
from pykittens.targets.source import MapSlot, Slot


class Loaded:
    """A compiled kernel on one device, ready to launch."""

    def __init__(self, kernel: Kernel, compiled: Compiled, ordinal: int) -> None:
        self.kernel, self.source = kernel, compiled.source
        self.function = driver.load(
            compiled.cubin, self.source.name, ordinal, self.source.shared_bytes
        )
        self.overlaps = self.source.overlaps and settings.overlap()
        self.waits = waits_for_flags(kernel)
        self.slots: list[Kind] = ["tensor_map"] * len(self.source.maps)
        self.slots += [_slot_kind(slot) for slot in self.source.slots]
        if self.source.sites is not None:
            self.slots += ["pointer", "int64"]
        self.blocks_at_once = self.function.device.multiprocessors * max(
            1, self.function.occupancy(self.source.threads, self.source.shared_bytes)
        )


def _slot_kind(slot: Slot) -> Kind:
    match slot.kind:
        case "pointer":
            return "pointer"
        case "stride":
            return "int64"
        case "extent":
            return "int32"
        case "scalar":
            assert slot.dtype is not None
            return {"float": "float32", "int": "int32", "bool": "bool"}[slot.dtype.kind]  # type: ignore[return-value]


_UNKNOWN: Any = object()  # in place of the launcher for values that were never launched


class Launch:
    """Launches of a kernel for given shapes, strides and alignments; addresses and numbers come with each call.

    Parameters that were packed for the addresses and numbers of a call are kept, so a repeated call changes none of
    them. Only values that recur are kept by themselves; all others share one set of parameters.

    by_value: numbers are part of what was recorded, so the launches hold for the numbers of `arguments` alone.
    """

    MOST_KEPT = 512
    debugging: tuple[int, ...] = ()  # what a program for debugging takes besides

    def __init__(self, loaded: Loaded, arguments: Arguments, known: Mapping[Value, Any]) -> None:
        kernel, tensors = loaded.kernel, arguments.tensors
        self.loaded, self.known = loaded, known
        self.arguments = arguments.at(arguments.values)
        self.by_value = any(_depends_on_numbers(kernel, v) for v, _ in kernel.statics)
        position = {p.name: i for i, p in enumerate(kernel.params)}
        self._grid = self._grid_function(position)
        self.maps = [
            (i, encode(slot, tensors[slot.tensor]), position[slot.tensor])
            for i, slot in enumerate(loaded.source.maps)
        ]
        # What fills the other slots: values of a call, and after these what is the same in all calls.
        fixed, chosen = list(self.debugging), []
        for slot in loaded.source.slots:
            array = tensors.get(slot.argument)
            if array is None or slot.kind == "pointer":
                chosen.append(position[slot.argument])
            else:
                extents = array.shape if slot.kind == "extent" else array.strides
                chosen.append(len(kernel.params) + 1 + len(fixed))
                fixed.append(extents[slot.axis])
        chosen += range(len(kernel.params) + 1, len(kernel.params) + 1 + len(self.debugging))
        few = slice(chosen[0], chosen[0] + 1) if chosen else slice(0)  # also of one slot, a tuple
        self._fixed = tuple(fixed)
        self._chosen = itemgetter(*chosen) if len(chosen) > 1 else itemgetter(few)
        # An output and another tensor: positions, spans in bytes, whether they may be one.
        self.aliases = [
            (
                *(position[out], position[other], span(tensors[out]), span(tensors[other])),
                kernel.inplace and _form(tensors[out]) == _form(tensors[other]),
            )
            for out in written(kernel)
            for other in tensors
            if other != out
        ]
        self._lock, self._shared = threading.Lock(), self._launcher()
        # By values; None for those that were launched once, with the shared parameters.
        self._kept: dict[tuple[Any, ...], Launcher | None] = {}

    def launch(self, values: tuple[Any, ...]) -> None:
        """Launch with these addresses and numbers, in the order of the parameters, and on the stream after them."""
        launcher = self._kept.get(values, _UNKNOWN)
        if launcher is None:
            launcher = self._kept[values] = self._filled(self._launcher(), values)
        if launcher is not _UNKNOWN:
            launcher.launch()
            return
        with self._lock:
            self._filled(self._shared, values).launch()
        if len(self._kept) >= self.MOST_KEPT:
            self._kept.clear()
        self._kept[values] = None

    def _filled(self, launcher: Launcher, values: tuple[Any, ...]) -> Launcher:
        """The launcher with these values, which are checked."""
        if self.aliases:
            self._check_aliasing(values)
        grid = self._grid(values)
        launcher.fill(self._chosen(values + self._fixed))
        for slot, _, position in self.maps:
            launcher.set_tensor_map_address(slot, values[position])
        launcher.set_launch(grid, values[-1])
        return launcher

    def _launcher(self) -> Launcher:
        loaded = self.loaded
        block = loaded.source.threads, loaded.source.shared_bytes
        launcher = Launcher(loaded.function, loaded.slots, *block, loaded.overlaps)
        for slot, encoded, _ in self.maps:
            launcher.set_tensor_map(slot, encoded)
        return launcher

    def _grid_function(self, position: Mapping[str, int]) -> Callable[[tuple[Any, ...]], int]:
        """Blocks of a launch by its values; it raises if numbers among these do not meet a requirement."""
        loaded, kernel, known = self.loaded, self.loaded.kernel, self.known
        required = requirements(kernel)
        dims = kernel.launch.dims if kernel.launch else ()
        decided = [*dims, *(node.condition for node in required)]
        if not any(_depends_on_numbers(kernel, value) for value in decided):
            grid = grid_size(loaded, [host_value(d, known) for d in dims])
            return lambda values: grid
        numbers: dict[Value, int] = {
            p: position[p.name] for p in kernel.params if not isinstance(p, Global)
        }
        extents = host_function(dims, known, numbers)
        holds = host_function([node.condition for node in required], known, numbers)

        def size(values: tuple[Any, ...]) -> int:
            if kernel.cluster > 1 or not all(holds(values)):
                here = dict(known) | {p: values[i] for p, i in numbers.items()}
                check_values(kernel, required, here, lambda: self.arguments.at(values[:-1]))
            return grid_size(loaded, extents(values))

        return size

    def _check_aliasing(self, values: tuple[Any, ...]) -> None:
        for i, j, reach_i, reach_j, may_be_one in self.aliases:
            a, b = values[i], values[j]
            if a < b + reach_j and b < a + reach_i and not (may_be_one and a == b):
                kernel, tensors = self.loaded.kernel, self.arguments.at(values[:-1]).tensors
                check_aliasing(kernel.name, written(kernel), tensors, kernel.inplace)
                return


def _form(array: Array) -> tuple[Any, ...]:
    return array.shape, array.strides


class DebugLaunch(Launch):
    """Launches of a program for debugging: each waits for the end and raises what stopped it."""

    def __init__(self, loaded: Loaded, arguments: Arguments, known: Mapping[Value, Any]) -> None:
        self.ordinal = loaded.function.device.ordinal
        self.report = report_of(self.ordinal)
        self.debugging = self.report.address, int(settings.debug_seconds() * 1e9)
        super().__init__(loaded, arguments, known)

    def launch(self, values: tuple[Any, ...]) -> None:
        """Launch, wait until the kernel has ended, and raise the error that it reports."""
        name, stream = self.loaded.kernel.name, values[-1]
        with self.loaded.function.device.current():
            captures = driver.stream_is_capturing(stream, self.ordinal)
        if captures:
            raise BackendError(
                f"{name}: a launch for debugging waits for its end, and a CUDA graph is captured",
                help=f"capture it without {settings.DEBUG.variable}",
            )
        with self.report.lock:
            self.report.clear()
            super().launch(values)
            fault = driver.wait_for_stream(self.ordinal, stream)
            stop = self.report.read()
        if stop is not None:
            shapes = {n: a.shape for n, a in self.arguments.tensors.items()}
            raise told(stop, self.loaded.source, shapes)
        if fault is not None:
            raise BackendError(
                f"{name}: the GPU stopped, and no check of the kernel says why: {fault}",
                loc=self.loaded.kernel.loc,
                help="earlier launches on the stream may be the cause; they are not for debugging "
                f"unless {settings.DEBUG.variable} is set",
            )


def launch_of(loaded: Loaded, arguments: Arguments, known: Mapping[Value, Any]) -> Launch:
    """The launches of a kernel for arguments that have been checked."""
    kind = Launch if loaded.source.sites is None else DebugLaunch
    return kind(loaded, arguments, known)


def grid_size(loaded: Loaded, dims: Sequence[int]) -> int:
    """Blocks of a launch: one a point of the grid, or as many as the device holds at once."""
    kernel = loaded.kernel
    assert kernel.launch is not None
    if dims and min(dims) <= 0:
        return 0
    persistent = isinstance(kernel.launch, Tasks)
    if persistent:
        dims = task_extents(kernel.launch, dims, kernel.cluster)  # type: ignore[arg-type]
    total = int(prod(dims))
    if total not in INT32:
        raise ArgumentError(
            f"{kernel.name}: {total} tiles of work are more than an int32 counts",
            loc=kernel.launch.loc,
        )
    if persistent:
        return min(total, loaded.blocks_at_once // kernel.cluster) * kernel.cluster
    if loaded.waits and total > loaded.blocks_at_once:
        raise ArgumentError(
            f"{kernel.name}: its blocks wait for one another, so all {total} must run at once, and this GPU runs "
            f"{loaded.blocks_at_once}",
            loc=kernel.launch.loc,
            help="pk.persistent(...) starts no more blocks than run at once and shares the tasks among them",
        )
    return total


def _depends_on_numbers(kernel: Kernel, value: Any) -> bool:
    return depends_on(value, {p for p in kernel.params if not isinstance(p, Global)})


def encode(slot: MapSlot, array: Array) -> bytearray:
    """The tensor map of an argument, innermost axis first; the stride of an axis of extent 1 is free."""
    size = array.itemsize
    strides, least = [], array.shape[-1] * size
    for extent, stride in zip(
        reversed(array.shape[:-1]), reversed(array.strides[:-1]), strict=True
    ):
        if extent > 1:
            least = stride * size
        strides.append(least if extent > 1 else -(-least // 16) * 16)
    box = (slot.cols, slot.rows, *[1] * (len(array.shape) - 2))[: len(array.shape)]
    return encode_tensor_map(
        array.address, array.dtype, tuple(reversed(array.shape)), tuple(strides), box, slot.swizzle
    )


def current_stream(ordinal: int) -> int:
    """PyTorch's current stream on a device, the default stream without PyTorch."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    stream: int = torch._C._cuda_getCurrentRawStream(ordinal)
    return stream
