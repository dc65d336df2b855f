"""Launches on a GPU. Everything that follows from shapes, strides and alignments is prepared once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, Protocol, cast

from pykittens import settings
from pykittens.errors import ArgumentError, BackendError, KernelError
from pykittens.ir.evaluate import depends_on, host_text, host_value, numbers_read
from pykittens.ir.nodes import Kernel, Tasks, waits_for_flags, written
from pykittens.ir.orders import limited, task_extents
from pykittens.ir.values import Global, Scalar, Value
from pykittens.lang.survey import Guard
from pykittens.logger import log
from pykittens.runtime import driver, releases
from pykittens.runtime.arguments import (
    INT32,
    Arguments,
    check_aliasing,
    check_number,
    check_values,
    known_values,
    requirements,
    span,
)
from pykittens.runtime.arrays import Array
from pykittens.runtime.compiled import Compiled
from pykittens.runtime.launcher import Launcher, SlotKind, blocks_at_once
from pykittens.runtime.report import error_of, report_of
from pykittens.runtime.tensor_map import encode_tensor_map
from pykittens.targets.source import MapSlot, Slot
from pykittens.types.dtypes import f32


class Loaded:
    """A compiled kernel on one device, ready to launch."""

    def __init__(self, kernel: Kernel, compiled: Compiled, ordinal: int) -> None:
        releases.require_loadable()
        self.kernel, self.source = kernel, compiled.source
        self.function = driver.load(
            compiled.cubin, self.source.name, ordinal, self.source.shared_bytes
        )
        log.info("%s: loaded on GPU %d", self.source.name, ordinal)
        self.overlaps = self.source.overlaps and settings.overlap()
        self.cooperative = waits_for_flags(kernel)
        self.slots: list[SlotKind] = ["tensor_map"] * len(self.source.maps)
        self.slots += [_slot_kind(slot) for slot in self.source.slots]
        if self.source.sites is not None:
            self.slots += ["pointer", "int64"]
        if self.source.reads is not None:
            self.slots += ["pointer", "int32", "int32"]
        self.blocks_at_once = blocks_at_once(
            self.function, self.source.threads, self.source.shared_bytes, kernel.cluster
        )
        self.most_blocks = most_blocks(kernel, self.blocks_at_once)


def _slot_kind(slot: Slot) -> SlotKind:
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


class Changeable(Protocol):
    """A recording: whether it can become invalid, whether it is valid, and how that is found out."""

    changes: bool
    holds: Callable[[], bool]
    guard: Guard


Fill = Callable[[Launcher, tuple[Any, ...]], None]
F32 = f32.largest  # the packing makes a larger number infinite
_UNKNOWN: Any = object()  # stands for values that were never launched


class Launch:
    """Launches of a kernel for given shapes, strides and alignments; addresses and numbers come with each call.

    Addresses and numbers that recur keep a launcher with their packed parameters, so a repeated call packs nothing.
    All other values share one launcher.

    by_value: the recording, or the choice of its constants, depends on numbers, so the launches hold only for those of
    `arguments`. outputs: the positions of the tensors that the kernel writes, among tensors and numbers. recording,
    guard: those of the last `follow`.
    call(args, values, stream): if the recording is valid, launch for these arguments, with their addresses and numbers,
    and tell autograd what was written; returns whether it is.
    """

    recording: Changeable
    guard: Guard
    call: Callable[[tuple[Any, ...], list[Any], int], bool]

    MOST_KEPT = 512
    further: tuple[int, ...] = ()  # parameters of a program for debugging, or with clock reads

    def __init__(self, loaded: Loaded, arguments: Arguments, known: Mapping[Value, Any]) -> None:
        kernel, tensors = loaded.kernel, arguments.tensors
        self.loaded, self.known = loaded, known
        self.arguments = arguments.at(arguments.values)
        self.by_value = arguments.by_value or bool(numbers_read(kernel))
        position = {p.name: i for i, p in enumerate(kernel.params)}
        self.maps = [
            (i, encode(slot, tensors[slot.tensor]), position[slot.tensor])
            for i, slot in enumerate(loaded.source.maps)
        ]
        self.outputs = tuple(position[name] for name in written(kernel))
        self._fill = self._fill_function(position)
        self._lock, self._shared = threading.Lock(), self._launcher()
        # By values; None for values that were launched once, with the shared launcher.
        self._kept: dict[tuple[Any, ...], Launcher | None] = {}

    def follow(self, recording: Changeable) -> None:
        """Compare with the guard of this recording before each call."""
        self.recording, self.guard = recording, recording.guard
        torch = sys.modules.get("torch")  # only its tensors have forms
        reads = self.arguments.reads
        lines = (
            "values = (*values, stream)",
            "launcher = kept.get(values, unknown)",
            "if launcher is unknown: launch(values)",
            "elif launcher is None: keep(values).launch()",
            "elif code := launcher.start(): launcher.launch_again(code)",
            f"increment(({''.join(f'args{reads[i]}, ' for i in self.outputs)}))",
            "return True",
        )
        self.call = recording.guard.before(
            lines,
            "args, values, stream",
            kept={} if self.further else self._kept,
            unknown=_UNKNOWN,
            launch=self.launch if self.further else self._launch_once,
            keep=self._keep,
            increment=torch and torch._C._increment_version,
        )

    def numbers(self, values: Sequence[Any]) -> list[Any]:
        """The numbers of a call among its values."""
        arguments = self.arguments
        pairs = zip(arguments.order, values, strict=False)  # the stream may follow
        return [value for name, value in pairs if name in arguments.scalars]

    def launch(self, values: tuple[Any, ...]) -> None:
        """Launch with `values`: addresses and numbers in the order of the parameters, then the stream."""
        launcher = self._kept.get(values, _UNKNOWN)
        if launcher is _UNKNOWN:
            self._launch_once(values)
        elif launcher is None:
            self._keep(values).launch()
        elif code := launcher.start():
            launcher.launch_again(code)

    def _launch_once(self, values: tuple[Any, ...]) -> None:
        kept, shared = self._kept, self._shared
        with self._lock:
            self._fill(shared, values)
            if code := shared.start():
                shared.launch_again(code)
        if len(kept) >= self.MOST_KEPT:
            kept.clear()
        kept[values] = None

    def _keep(self, values: tuple[Any, ...]) -> Launcher:
        launcher = self._launcher()
        self._fill(launcher, values)
        self._kept[values] = launcher
        return launcher

    def _launcher(self) -> Launcher:
        loaded = self.loaded
        block = loaded.source.threads, loaded.source.shared_bytes
        how = loaded.overlaps, loaded.cooperative
        launcher = Launcher(loaded.function, loaded.slots, *block, *how)
        for slot, encoded, _ in self.maps:
            launcher.set_tensor_map(slot, encoded)
        return launcher

    def _fill_function(self, position: Mapping[str, int]) -> Fill:
        """The function that checks the values of a call and sets them in a launcher.

        It is compiled from text, because every launch with new values runs it. `v0`, `v1`, ... are the values.
        """
        loaded, kernel, tensors = self.loaded, self.loaded.kernel, self.arguments.tensors
        constants: dict[str, Any] = {
            "check": self._check,
            "blocks": partial(grid_size, loaded),
            "error": KernelError,
        }
        lines = [f"{', '.join(f'v{i}' for i in position.values())}, stream = values"]
        outputs = set(written(kernel))
        shared = [
            f"v{i} < v{j} + {span(tensors[other])} and v{j} < v{i} + {span(tensors[out])}"
            + (f" and v{i} != v{j}" if self._may_be_one(out, other) else "")
            for out, i in position.items()
            for other, j in position.items()
            if out in outputs and other in tensors and other != out
        ]
        if shared:
            lines.append(f"if {' or '.join(shared)}: check(values)")

        for name, value in self.arguments.scalars.items():
            if isinstance(value, float):
                lines.append(f"if not -{F32} <= v{position[name]} <= {F32}: check(values)")

        dims = kernel.launch.dims if kernel.launch else ()
        most = kernel.launch.most if isinstance(kernel.launch, Tasks) else None
        conditions = [node.condition for node in requirements(kernel)]
        if any(_depends_on_numbers(kernel, value) for value in [*conditions, *dims, most]):
            names = {p: f"v{position[p.name]}" for p in kernel.params if not isinstance(p, Global)}
            text = partial(host_text, known=self.known, names=names, constants=constants)
            holds = " and ".join(map(text, conditions)) or "True"
            lines += [
                "try:",
                f"    holds, dims = {holds}, ({''.join(f'{text(d)}, ' for d in dims)})",
                f"    most = {text(most)}",
                "except error:",
                "    check(values)",
                "    raise",
                f"if {'True' if kernel.cluster > 1 else 'not holds'}: check(values)",
                "grid = blocks(dims, most)",
            ]
        else:
            sizes = [host_value(d, self.known) for d in dims]
            lines.append(f"grid = {grid_size(loaded, sizes, host_value(most, self.known))}")

        # The slots other than tensor maps: values of the call, and constants of this Launch.
        slots = []
        for slot in loaded.source.slots:
            array = tensors.get(slot.argument)
            if array is None or slot.kind == "pointer":
                slots.append(f"v{position[slot.argument]}")
            else:
                extents = array.shape if slot.kind == "extent" else array.strides
                slots.append(str(extents[slot.axis]))
        slots += map(str, self.further)
        lines.append(f"launcher.fill(({''.join(f'{s}, ' for s in slots)}), grid, stream)")
        lines += [f"launcher.set_tensor_map_address({i}, v{at})" for i, _, at in self.maps]
        exec("\n    ".join(["def fill(launcher, values):", *lines]), constants)
        return cast(Fill, constants["fill"])

    def _may_be_one(self, out: str, other: str) -> bool:
        a, b = self.arguments.tensors[out], self.arguments.tensors[other]
        return self.loaded.kernel.inplace and (a.shape, a.strides) == (b.shape, b.strides)

    def _check(self, values: tuple[Any, ...]) -> None:
        """Raise the error in the values of a call, with its line in the kernel."""
        kernel, arguments = self.loaded.kernel, self.arguments.at(values[:-1])
        known = known_values(kernel, arguments)
        for param in kernel.params:
            if isinstance(param, Scalar):
                check_number(kernel.name, param.name, known[param], param.dtype)
        check_values(kernel, requirements(kernel), known, lambda: arguments)
        host_value(kernel.launch.dims if kernel.launch else (), known)
        check_aliasing(kernel.name, written(kernel), arguments.tensors, kernel.inplace)


class DebugLaunch(Launch):
    """Launches of a program for debugging: each waits for the end of the kernel and raises the reported error."""

    def __init__(self, loaded: Loaded, arguments: Arguments, known: Mapping[Value, Any]) -> None:
        self.ordinal = loaded.function.device.ordinal
        self.report = report_of(self.ordinal)
        self.further = self.report.address, int(settings.debug_seconds() * 1e9)
        super().__init__(loaded, arguments, known)

    def launch(self, values: tuple[Any, ...]) -> None:
        """Launch, wait until the kernel has ended, and raise the error that it reports."""
        name, stream = self.loaded.kernel.name, values[-1]
        help = f"capture it without {settings.DEBUG.variable}"
        check_not_captured(self.loaded, stream, "a launch for debugging", help)
        with self.report.lock:
            self.report.clear()
            super().launch(values)
            fault = driver.wait_for_stream(self.ordinal, stream)
            stop = self.report.read()
        if stop is not None:
            shapes = {n: a.shape for n, a in self.arguments.tensors.items()}
            raise error_of(stop, self.loaded.source, shapes)
        if fault is not None:
            raise BackendError(
                f"{name}: the GPU stopped, and no check of the kernel reported why: {fault}",
                loc=self.loaded.kernel.loc,
                help="earlier launches on the stream may be the cause; they run without checks "
                f"unless {settings.DEBUG.variable} is set",
            )


def check_not_captured(loaded: Loaded, stream: int, what: str, help: str) -> None:
    """Raise if a CUDA graph is captured on a stream, because a launch of this sort waits for its end."""
    device = loaded.function.device
    with device.current():
        captures = driver.stream_is_capturing(stream, device.ordinal)
    if captures:
        raise BackendError(
            f"{loaded.kernel.name}: {what} waits for its end, and a CUDA graph is captured",
            help=help,
        )


def launch_of(loaded: Loaded, arguments: Arguments, known: Mapping[Value, Any]) -> Launch:
    """The Launch of a kernel for checked arguments."""
    kind = Launch if loaded.source.sites is None else DebugLaunch
    return kind(loaded, arguments, known)


def most_blocks(kernel: Kernel, blocks_at_once: int) -> int:
    """The largest grid with one block per point; 0 if blocks share the points."""
    if isinstance(kernel.launch, Tasks):
        return 0
    return blocks_at_once if waits_for_flags(kernel) else INT32[-1]


def grid_size(loaded: Loaded, dims: Sequence[int], most: int | None = None) -> int:
    """Blocks of a launch: one per point of the grid, or as many as the device runs at once, but at most `most`."""
    total = 1
    for extent in dims:
        if extent <= 0:
            return 0
        total *= int(extent)
    if total <= loaded.most_blocks:
        return total
    kernel = loaded.kernel
    if isinstance(kernel.launch, Tasks):
        total = int(prod(task_extents(kernel.launch, dims, kernel.cluster)))
        if total in INT32:
            clusters = min(total, loaded.blocks_at_once // kernel.cluster)
            return limited(clusters, most, kernel.cluster) * kernel.cluster
    assert kernel.launch is not None
    if total not in INT32:
        raise ArgumentError(
            f"{kernel.name}: {total} tiles of work exceed the range of int32",
            loc=kernel.launch.loc,
        )
    raise ArgumentError(
        f"{kernel.name}: its blocks wait for one another, so all {total} must run at once, but this GPU runs "
        f"{loaded.blocks_at_once}"
        + (f" in clusters of {kernel.cluster}" if kernel.cluster > 1 else ""),
        loc=kernel.launch.loc,
        help="pk.persistent(...) starts only as many blocks as run at once and distributes the tasks among them",
    )


def _depends_on_numbers(kernel: Kernel, value: Any) -> bool:
    return depends_on(value, {p for p in kernel.params if not isinstance(p, Global)})


def encode(slot: MapSlot, array: Array) -> bytearray:
    """The tensor map of an argument, innermost axis first; the stride of an axis of extent 1 is free."""
    size = array.itemsize
    axes = slot.axes(len(array.shape))
    extents = tuple(array.shape[axis] for axis in axes)
    strides, least = [], array.shape[-1] * size
    for axis in axes[1:]:
        if array.shape[axis] > 1:
            least = array.strides[axis] * size
        strides.append(least if array.shape[axis] > 1 else -(-least // 16) * 16)
    box = (slot.cols, slot.rows, *[1] * (len(axes) - 2))[: len(axes)]
    return encode_tensor_map(array.address, array.dtype, extents, tuple(strides), box, slot.swizzle)


def current_stream(ordinal: int) -> int:
    """PyTorch's current stream on a device, the default stream without PyTorch."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    stream: int = torch._C._cuda_getCurrentRawStream(ordinal)
    return stream
