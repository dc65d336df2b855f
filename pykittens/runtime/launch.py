"""Launches on a GPU. What a call needs is worked out once for its shapes and kept as a plan."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from pykittens import settings
from pykittens.errors import ArgumentError, BackendError
from pykittens.ir.evaluate import depends_on, host_value
from pykittens.ir.nodes import Kernel, Require, Tasks, waits_for_flags, walk, written
from pykittens.ir.orders import task_extents
from pykittens.ir.values import Global, Value
from pykittens.runtime import driver
from pykittens.runtime.arguments import INT32, Arguments, span
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


@dataclass
class Plan:
    """A launch for given shapes, strides and alignments; addresses and free scalars come with each call.

    It has parameters of its own, so a call with the same addresses as the last changes none.
    arguments: position of each argument in a call. by_value: the plan holds for these scalars only.
    """

    loaded: Loaded
    grid: int
    maps: list[tuple[int, bytearray, int]]  # slot, encoded map, position of the tensor
    values: list[Any]  # what fills the other slots, with gaps
    gaps: list[tuple[int, int]]  # place in `values`, position of the argument
    aliases: list[tuple[int, int, int, int]]  # output and other by position, their spans in bytes
    by_value: bool
    launcher: Launcher = field(init=False)
    threads: int = field(init=False)
    shared_bytes: int = field(init=False)
    last: list[Any] = field(init=False, default_factory=list)  # the arguments of the last launch

    def __post_init__(self) -> None:
        loaded = self.loaded
        self.launcher = Launcher(loaded.function, loaded.slots, loaded.overlaps)
        self.values = list(self.values)  # of this plan alone
        self.threads, self.shared_bytes = loaded.source.threads, loaded.source.shared_bytes
        for slot, encoded, _ in self.maps:
            self.launcher.set_tensor_map(slot, encoded)

    def launch(self, arguments: list[Any], stream: int) -> None:
        """Launch with these addresses and scalars, in the order of the parameters."""
        source = self.loaded.source
        with self.launcher.lock:
            if arguments != self.last:
                self._set(arguments)
            self.launcher.launch(self.grid, source.threads, source.shared_bytes, stream)

    def fix(self, arguments: list[Any]) -> None:
        """Set these addresses and scalars, for launches with them and no others."""
        with self.launcher.lock:
            self._set(arguments)

    def launch_fixed(self, stream: int) -> None:
        """Launch with what was set."""
        with self.launcher.lock:
            self.launcher.launch(self.grid, self.threads, self.shared_bytes, stream)

    def _set(self, arguments: list[Any]) -> None:
        self.last = []  # unknown while the parameters change
        for place, position in self.gaps:
            self.values[place] = arguments[position]
        self.launcher.fill(*self.values)
        for slot, _, position in self.maps:
            self.launcher.set_tensor_map_address(slot, arguments[position])
        self.last = arguments

    def overlaps(self, arguments: list[Any]) -> bool:
        """Whether an output may share memory with another argument; `check_requirements` then decides."""
        for i, j, reach_i, reach_j in self.aliases:
            a, b = arguments[i], arguments[j]
            if a < b + reach_j and b < a + reach_i:
                return True
        return False


@dataclass
class DebugPlan(Plan):
    """A launch of a program for debugging: it waits for the end and raises what stopped it."""

    shapes: dict[str, tuple[int, ...]]  # of the tensors, by name

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ordinal = self.loaded.function.device.ordinal
        self.report = report_of(self.ordinal)
        self.values += [self.report.address, int(settings.debug_seconds() * 1e9)]

    def launch(self, arguments: list[Any], stream: int) -> None:
        """Launch, wait until the kernel has ended, and raise the error that it reports."""
        name = self.loaded.kernel.name
        with self.loaded.function.device.current():
            captures = driver.stream_is_capturing(stream, self.ordinal)
        if captures:
            raise BackendError(
                f"{name}: a launch for debugging waits for its end, and a CUDA graph is captured",
                help=f"capture it without {settings.DEBUG.variable}",
            )
        with self.report.lock:
            self.report.clear()
            super().launch(arguments, stream)
            fault = driver.wait_for_stream(self.ordinal, stream)
            stop = self.report.read()
        if stop is not None:
            raise told(stop, self.loaded.source, self.shapes)
        if fault is not None:
            raise BackendError(
                f"{name}: the GPU stopped, and no check of the kernel says why: {fault}",
                loc=self.loaded.kernel.loc,
                help="earlier launches on the stream may be the cause; they are not for debugging "
                f"unless {settings.DEBUG.variable} is set",
            )


def make_plan(loaded: Loaded, arguments: Arguments, known: Mapping[Value, Any]) -> Plan:
    """The plan for a call whose arguments have been checked."""
    kernel = loaded.kernel
    position = {p.name: i for i, p in enumerate(kernel.params)}
    tensors = arguments.tensors
    maps = [
        (i, encode(slot, tensors[slot.tensor]), position[slot.tensor])
        for i, slot in enumerate(loaded.source.maps)
    ]
    values: list[Any] = []
    gaps = []
    for slot in loaded.source.slots:
        array = tensors.get(slot.argument)
        if slot.kind == "extent" and array is not None:
            values.append(array.shape[slot.axis])
        elif slot.kind == "stride" and array is not None:
            values.append(array.strides[slot.axis])
        else:
            gaps.append((len(values), position[slot.argument]))
            values.append(0)
    outputs = written(kernel)
    aliases = [
        (position[o], position[other], span(tensors[o]), span(tensors[other]))
        for o in outputs
        for other in tensors
        if other != o
    ]
    work = grid_size(loaded, known), maps, values, gaps, aliases, needs_values(kernel)
    if loaded.source.sites is None:
        return Plan(loaded, *work)
    return DebugPlan(loaded, *work, {n: a.shape for n, a in tensors.items()})


def grid_size(loaded: Loaded, known: Mapping[Value, Any]) -> int:
    """Blocks of a launch: one a point of the grid, or as many as the device holds at once."""
    kernel = loaded.kernel
    assert kernel.launch is not None
    dims = [int(host_value(d, known)) for d in kernel.launch.dims]
    if any(d <= 0 for d in dims):
        return 0
    persistent = isinstance(kernel.launch, Tasks)
    total = prod(task_extents(kernel.launch, dims, kernel.cluster) if persistent else dims)  # type: ignore[arg-type]
    if total not in INT32:
        raise ArgumentError(
            f"{kernel.name}: {total} tiles of work are more than an int32 counts",
            loc=kernel.launch.loc,
        )
    if persistent:
        return min(total, loaded.blocks_at_once // kernel.cluster) * kernel.cluster
    if waits_for_flags(kernel) and total > loaded.blocks_at_once:
        raise ArgumentError(
            f"{kernel.name}: its blocks wait for one another, so all {total} must run at once, and this GPU runs "
            f"{loaded.blocks_at_once}",
            loc=kernel.launch.loc,
            help="pk.persistent(...) starts no more blocks than run at once and shares the tasks among them",
        )
    return total


def needs_values(kernel: Kernel) -> bool:
    """Whether a scalar argument decides something on the host: the grid, a static value or a requirement."""
    scalars: set[Value] = {p for p in kernel.params if not isinstance(p, Global)}
    if not scalars:
        return False
    decided = [v for v, _ in kernel.statics]
    decided += list(kernel.launch.dims) if kernel.launch else []
    decided += [n.condition for n in walk(kernel.body) if isinstance(n, Require)]
    return any(depends_on(v, scalars) for v in decided)


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
