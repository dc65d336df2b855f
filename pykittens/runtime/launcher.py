"""The parameters of a kernel, packed in the layout of the driver, and the driver's launch."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence
from ctypes import byref, c_float, c_int, c_uint, c_uint64, c_void_p
from typing import Literal

from pykittens.errors import ArgumentError
from pykittens.runtime import driver
from pykittens.runtime.driver import Function, check
from pykittens.runtime.tensor_map import MAP_BYTES, address_of, aligned_memory

SlotKind = Literal["tensor_map", "pointer", "int32", "int64", "float32", "bool"]

# Formats of `struct`, which also raises for values out of range.
_CODE = {"pointer": "Q", "int32": "i", "int64": "q", "float32": "f", "bool": "?"}

# Lets a launch start before the previous one has ended; the program itself waits for the previous one.
# Source: CUDA Driver API, CUlaunchAttributeID.
_PROGRAMMATIC_STREAM_SERIALIZATION = 6

# Lets a launch start only when there is room for all of its blocks at once, which then run at once.
_COOPERATIVE = 2

# The code of a launch while the context of another device is current.
_INVALID_HANDLE = 400


def _no_blocks() -> int:
    return 0


class _LaunchConfig(ctypes.Structure):
    _fields_ = (
        ("grid_x", c_uint), ("grid_y", c_uint), ("grid_z", c_uint),
        ("block_x", c_uint), ("block_y", c_uint), ("block_z", c_uint),
        ("shared_bytes", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("attribute_count", c_uint),
    )  # fmt: skip


class _LaunchAttribute(ctypes.Structure):
    _fields_ = (("id", c_uint), ("value", c_uint64 * 8))


def blocks_at_once(function: Function, threads: int, shared_bytes: int, cluster: int = 1) -> int:
    """The number of blocks that an idle GPU runs at once, in whole clusters; at least one cluster.

    The multiprocessors are in groups, and a cluster runs within one group. So fewer blocks may run than the
    multiprocessors hold.
    """
    if cluster == 1:
        most = function.occupancy(threads, shared_bytes)
        return function.device.multiprocessors * max(1, most)
    # The cluster's size is part of the kernel.
    config = _LaunchConfig(cluster, 1, 1, threads, 1, 1, shared_bytes, None, None, 0)
    clusters = c_int()
    with function.device.current():
        ask = driver.library().cuOccupancyMaxActiveClusters
        code = ask(byref(clusters), function.handle, byref(config))
    check(code, f"asking how many clusters of {cluster} blocks of {function.name} run at once")
    return cluster * max(1, clusters.value)


class Launcher:
    """The packed parameters of one kernel, which are changed in place, and its launch.

    Slots are the kernel's parameters in order. A launch has blocks of `block` threads with `shared_bytes` of dynamic
    shared memory. It copies the parameters; threads that share a launcher must hold a lock from the first change of a
    parameter until the launch. overlaps: the launch may start before the previous one on the stream has ended, because
    the program itself waits for the previous one. cooperative: all blocks of the launch run at once, because they wait
    for one another; such a launch does not overlap. start: launch and return the driver's code; `launch` without a
    method's call for callers that pass a code other than 0 to `launch_again`.

        launcher.set_tensor_map(0, encoded)
        launcher.set_tensor_map_address(0, address)
        launcher.fill([pointer, rows], grid, stream)  # every other slot, in order
        launcher.launch()
    """

    def __init__(
        self,
        function: Function,
        slots: Sequence[SlotKind],
        block: int = 1,
        shared_bytes: int = 0,
        overlaps: bool = False,
        cooperative: bool = False,
    ) -> None:
        self.function = function
        self.slots = tuple(slots)
        self._cuda = driver.library()

        # Tensor maps come first, so that the values that `fill` packs are contiguous.
        maps = [i for i, slot in enumerate(slots) if slot == "tensor_map"]
        offsets = {i: position * MAP_BYTES for position, i in enumerate(maps)}
        self._values_start = end = len(maps) * MAP_BYTES
        self._value_slots = [i for i in range(len(slots)) if i not in offsets]
        for i in self._value_slots:
            size = struct.calcsize(_CODE[slots[i]])
            offsets[i] = -(-end // size) * size
            end = offsets[i] + size
        self._offsets = [offsets[i] for i in range(len(slots))]

        storage, self._start = aligned_memory(end)
        self._memory = memoryview(storage)[self._start - address_of(storage) :]
        # "@" pads like C, and like the offsets above.
        values = struct.Struct("@" + "".join(_CODE[slots[i]] for i in self._value_slots))
        self._pack = functools.partial(values.pack_into, self._memory, self._values_start)
        self._parameters = (c_void_p * len(slots))(*[self._start + at for at in self._offsets])
        self._config = _LaunchConfig(1, 1, 1, block, 1, 1, shared_bytes, None, None, 0)
        self._grid = 1
        if overlaps or cooperative:
            kind = _COOPERATIVE if cooperative else _PROGRAMMATIC_STREAM_SERIALIZATION
            self._attribute = _LaunchAttribute(kind, (1,))
            self._config.attributes = ctypes.addressof(self._attribute)
            self._config.attribute_count = 1
        # cuLaunchKernelEx takes 4 arguments, cuLaunchKernel 11: half the time. They are converted once.
        self._launch = functools.partial(
            self._cuda.cuLaunchKernelEx,
            byref(self._config),
            c_void_p.from_param(function.handle),
            byref(self._parameters),
            None,
        )
        self.start: Callable[[], int] = self._launch
        # The content of each map slot: a map and an address are copied only if they change.
        self._maps: list[bytes | bytearray | None] = [None] * len(slots)
        self._addresses: list[int | None] = [None] * len(slots)

    def fill(self, values: Sequence[int | float], grid: int = 1, stream: int = 0) -> None:
        """Set all slots except tensor maps, in order, the number of blocks and the stream.

        No blocks are launched if `grid` is 0. A cluster's size is part of the kernel. Raises ArgumentError if a value
        is out of range.
        """
        try:
            self._pack(*values)
        except (struct.error, OverflowError):
            for i, value in zip(self._value_slots, values, strict=True):
                self.set_value(i, value)  # names the value that is out of range
        if grid != self._grid:
            self._config.grid_x = self._grid = grid
            self.start = self._launch if grid else _no_blocks
        self._config.stream = stream

    def set_value(self, i: int, value: int | float) -> None:
        """Set slot `i` of any kind. Raises ArgumentError if the value is out of range; a large float is infinite."""
        kind = self.slots[i]
        try:
            if kind == "float32":
                value = c_float(value).value  # from Python 3.14 on `struct` refuses a large one
            struct.pack_into(_CODE[kind], self._memory, self._offsets[i], value)
        except (struct.error, TypeError, OverflowError) as error:
            raise ArgumentError(
                f"{value!r} does not fit parameter {i} of {self.function.name}, which is {kind}"
            ) from error

    def set_tensor_map(self, i: int, encoded: bytes | bytearray) -> None:
        """Set slot `i` to what `encode_tensor_map` made, address included."""
        if self._maps[i] is not encoded:
            start = self._offsets[i]
            self._memory[start : start + MAP_BYTES] = encoded
            self._maps[i] = encoded
            self._addresses[i] = None

    def set_tensor_map_address(self, i: int, address: int) -> None:
        """Point the tensor map in slot `i` to another tensor of the same shape and strides."""
        if self._addresses[i] != address:
            code = self._cuda.cuTensorMapReplaceAddress(self._start + self._offsets[i], address)
            if code == driver.INVALID_CONTEXT:
                with self.function.device.current():
                    code = self._cuda.cuTensorMapReplaceAddress(
                        self._start + self._offsets[i], address
                    )
            if code != 0:
                check(code, f"giving a tensor map the address {address:#x}")
            self._addresses[i] = address

    def launch(self) -> None:
        """Launch with the current parameters; it returns before the kernel has run."""
        if code := self.start():
            self.launch_again(code)

    def launch_again(self, code: int) -> None:
        """Try again in the right context: a new thread has none, and another GPU may be current."""
        if code in (driver.INVALID_CONTEXT, _INVALID_HANDLE):
            with self.function.device.current():
                code = self._launch()
        config = self._config
        check(
            code,
            f"launching {self.function.name} with {config.grid_x} blocks of {config.block_x} "
            f"threads and {config.shared_bytes} bytes of shared memory",
        )
