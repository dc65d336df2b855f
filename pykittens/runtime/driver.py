"""The CUDA driver, called through ctypes: devices, loaded kernels, tensor maps and launches.

libcuda is called directly and not through cuda-bindings: a launch costs the same (0.5 µs before the
driver's own share), and the few functions used here have kept their signatures since CUDA 12.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import struct
import threading
from collections.abc import Iterator, Sequence
from ctypes import (
    POINTER,
    byref,
    c_char,
    c_char_p,
    c_int,
    c_size_t,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from typing import Literal

from pykittens.errors import ArgumentError, BackendError, ResourceError

Slot = Literal["tensor_map", "pointer", "int32", "int64", "float32", "bool"]

_LIBRARY = "libcuda.so.1"

# Signatures as in cuda.h; handles are addresses.
_SIGNATURES = {
    "cuInit": (c_uint,),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (POINTER(c_void_p),),
    "cuCtxGetDevice": (POINTER(c_int),),
    "cuCtxSynchronize": (),
    "cuModuleLoadData": (POINTER(c_void_p), c_char_p),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuFuncGetAttribute": (POINTER(c_int), c_int, c_void_p),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (POINTER(c_int), c_void_p, c_int, c_size_t),
    "cuPointerGetAttribute": (c_void_p, c_int, c_uint64),
    "cuStreamIsCapturing": (c_void_p, POINTER(c_int)),
    "cuTensorMapEncodeTiled": (
        c_void_p, c_int, c_uint32, c_void_p,
        POINTER(c_uint64), POINTER(c_uint64), POINTER(c_uint32), POINTER(c_uint32),
        c_int, c_int, c_int, c_int,
    ),
    "cuTensorMapReplaceAddress": (c_void_p, c_void_p),
    "cuLaunchKernelEx": (c_void_p, c_void_p, c_void_p, c_void_p),
}  # fmt: skip

_INVALID_CONTEXT, _INVALID_HANDLE = 201, 400
# Attributes of a device, of a function and of a pointer.
_MAX_THREADS, _MULTIPROCESSORS, _L2_BYTES, _MAJOR, _MINOR, _SHARED_OPTIN = 1, 16, 38, 75, 76, 97
_STATIC_SHARED, _MAX_DYNAMIC_SHARED = 1, 8
_DEVICE_ORDINAL = 9

# Formats of `struct`, which also refuse what is out of range.
_CODE = {"pointer": "Q", "int32": "i", "int64": "q", "float32": "f", "bool": "?"}

_MAP_BYTES, _MAP_ALIGNMENT = 128, 64
_MAP_DTYPE = {"bool": 0, "int32": 3, "f16": 6, "f32": 7, "bf16": 9}
_MAP_SWIZZLE = {0: 0, 32: 1, 64: 2, 128: 3}
_L2_PROMOTION_256 = 3  # a miss brings 256 bytes into L2

# A chip's own instructions need the architecture's `a` form.
_OWN_INSTRUCTIONS = {(9, 0), (10, 0)}


def available() -> str | None:
    """None when kernels can be launched, else a sentence of what is missing."""
    try:
        return None if device_count() > 0 else "the CUDA driver sees no GPU"
    except BackendError as error:
        return error.message


def device_count() -> int:
    """How many GPUs the driver sees."""
    count = c_int()
    _check(_cuda().cuDeviceGetCount(byref(count)), "counting the GPUs")
    return count.value


@dataclass(frozen=True)
class Device:
    """One GPU: what the driver says of it.

    `capability` is (9, 0) on Hopper; `shared_bytes_per_block_optin` is the most shared memory a
    block may ask for, static and dynamic together; `max_threads` is the most threads of a block.
    """

    ordinal: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    l2_bytes: int
    shared_bytes_per_block_optin: int
    max_threads: int

    @property
    def arch(self) -> str:
        """The architecture to compile for, such as sm_90a."""
        return architecture(*self.capability)

    @functools.cached_property
    def context(self) -> int:
        """The primary context, which PyTorch and the CUDA runtime use too; never released."""
        handle = c_void_p()
        code = _cuda().cuDevicePrimaryCtxRetain(byref(handle), self.ordinal)
        _check(code, f"opening GPU {self.ordinal}")
        return handle.value or 0

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make this GPU's context the calling thread's for a while."""
        cuda = _cuda()
        _check(cuda.cuCtxPushCurrent_v2(self.context), f"choosing GPU {self.ordinal}")
        try:
            yield
        finally:
            cuda.cuCtxPopCurrent_v2(byref(c_void_p()))


@functools.cache
def device(ordinal: int) -> Device:
    """The one Device of an ordinal."""
    if not 0 <= ordinal < device_count():
        raise BackendError(f"there is no GPU {ordinal}: the driver sees {device_count()}")
    name = ctypes.create_string_buffer(256)
    _check(_cuda().cuDeviceGetName(name, len(name), ordinal), f"naming GPU {ordinal}")

    def attribute(number: int) -> int:
        value = c_int()
        code = _cuda().cuDeviceGetAttribute(byref(value), number, ordinal)
        _check(code, f"reading attribute {number} of GPU {ordinal}")
        return value.value

    return Device(
        ordinal,
        name.value.decode(),
        capability=(attribute(_MAJOR), attribute(_MINOR)),
        multiprocessors=attribute(_MULTIPROCESSORS),
        l2_bytes=attribute(_L2_BYTES),
        shared_bytes_per_block_optin=attribute(_SHARED_OPTIN),
        max_threads=attribute(_MAX_THREADS),
    )


def architecture(major: int, minor: int) -> str:
    """The compiler's name of a compute capability: sm_90a, sm_100a, else such as sm_89."""
    return f"sm_{major}{minor}" + ("a" if (major, minor) in _OWN_INSTRUCTIONS else "")


def current_context_device() -> int | None:
    """The ordinal of the calling thread's current GPU; None where it has none yet."""
    ordinal = c_int()
    code = _cuda().cuCtxGetDevice(byref(ordinal))
    if code == _INVALID_CONTEXT:
        return None
    _check(code, "asking for the current GPU")
    return ordinal.value


def device_of(address: int) -> int:
    """The ordinal of the GPU that memory belongs to; 0 for the null address of an empty array."""
    if address == 0:
        return 0
    ordinal = c_int()
    _check(
        _cuda().cuPointerGetAttribute(byref(ordinal), _DEVICE_ORDINAL, address),
        f"asking whose memory {address:#x} is",
    )
    return ordinal.value


def synchronize(ordinal: int) -> None:
    """Wait until a GPU has done all that was launched; a kernel's fault shows here."""
    with device(ordinal).current():
        _check(_cuda().cuCtxSynchronize(), f"waiting for GPU {ordinal}")


def stream_is_capturing(stream: int) -> bool:
    """Whether launches on a stream are recorded into a graph instead of run."""
    status = c_int()
    _check(_cuda().cuStreamIsCapturing(stream, byref(status)), "asking a stream for its capture")
    return status.value != 0


@dataclass(frozen=True)
class Function:
    """A kernel loaded on a GPU; it stays loaded until the process ends."""

    handle: int
    name: str
    device: Device

    def occupancy(self, threads: int, shared_bytes: int) -> int:
        """How many blocks of so many threads and dynamic shared bytes fit on one multiprocessor."""
        blocks = c_int()
        ask = _cuda().cuOccupancyMaxActiveBlocksPerMultiprocessor
        with self.device.current():
            code = ask(byref(blocks), self.handle, threads, shared_bytes)
        _check(code, f"asking for the occupancy of {self.name}")
        return blocks.value


def load(cubin: bytes, name: str, ordinal: int, shared_bytes: int = 0) -> Function:
    """The kernel `name` of a cubin on a GPU, allowed `shared_bytes` of dynamic shared memory."""
    cuda, owner = _cuda(), device(ordinal)
    module, function, static = c_void_p(), c_void_p(), c_int()
    with owner.current():
        _check(cuda.cuModuleLoadData(byref(module), cubin), f"loading {name}")
        _check(cuda.cuModuleGetFunction(byref(function), module, name.encode()), f"finding {name}")
        _check(cuda.cuFuncGetAttribute(byref(static), _STATIC_SHARED, function), f"asking {name}")
        limit = owner.shared_bytes_per_block_optin
        if static.value + shared_bytes > limit:
            raise ResourceError(
                f"{name} needs {static.value + shared_bytes} bytes of shared memory a block, and "
                f"{owner.name} has {limit}",
                help="fewer pipeline stages, or smaller tiles",
            )
        if shared_bytes:
            _check(
                cuda.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared_bytes),
                f"giving {name} {shared_bytes} bytes of shared memory",
            )
    return Function(function.value or 0, name, owner)


def encode_tensor_map(
    address: int,
    dtype_code: str,
    extents: tuple[int, ...],
    strides_bytes: tuple[int, ...],
    box: tuple[int, ...],
    swizzle_bytes: int,
) -> bytearray:
    """The 128 bytes by which the copy engine knows a tensor and the box it moves.

    All axes are listed innermost first. `extents` and `box` count elements, one for each of 1 to 5
    axes; `strides_bytes` starts with the second axis, since the innermost is packed, so it is one
    shorter. `swizzle_bytes` is 0, 32, 64 or 128. What lies outside the extents reads as zero.
    """
    rank = len(extents)
    assert len(strides_bytes) == rank - 1, "strides start with the second axis"
    assert len(box) == rank, "a box has the tensor's axes"
    storage, start = _aligned(_MAP_BYTES)
    code = _cuda().cuTensorMapEncodeTiled(
        start, _MAP_DTYPE[dtype_code], rank, address,
        (c_uint64 * rank)(*extents),
        # Rank 1 has no strides, yet a null address is refused.
        (c_uint64 * rank)(*strides_bytes),
        (c_uint32 * rank)(*box),
        (c_uint32 * rank)(*[1] * rank),
        0, _MAP_SWIZZLE[swizzle_bytes], _L2_PROMOTION_256, 0,
    )  # fmt: skip
    if code != 0:
        raise BackendError(
            f"encoding a tensor map failed: {_error_text(code)}",
            operands={
                "address": f"{address:#x}",
                "dtype": dtype_code,
                "extents": extents,
                "strides_bytes": strides_bytes,
                "box": box,
                "swizzle_bytes": swizzle_bytes,
            },
        )
    return storage[start - _address(storage) :][:_MAP_BYTES]


class _LaunchConfig(ctypes.Structure):
    _fields_ = (
        ("grid_x", c_uint), ("grid_y", c_uint), ("grid_z", c_uint),
        ("block_x", c_uint), ("block_y", c_uint), ("block_z", c_uint),
        ("shared_bytes", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("attribute_count", c_uint),
    )  # fmt: skip


class Launcher:
    """The parameters of one kernel, packed once and changed in place, and its launch.

    Slots are the kernel's parameters in order. Threads share a launcher: hold `lock` from the first
    value that is set to the launch, which copies the parameters.

        with launcher.lock:
            launcher.set_tensor_map(0, encoded)
            launcher.set_tensor_map_address(0, address)
            launcher.fill(pointer, rows)            # every other slot, in order
            launcher.launch(grid, block, shared, stream)
    """

    def __init__(self, function: Function, slots: Sequence[Slot]) -> None:
        self.function = function
        self.slots = tuple(slots)
        self.lock = threading.Lock()
        self._cuda = _cuda()

        # Tensor maps come first, so that what `fill` packs is one piece.
        maps = [i for i, slot in enumerate(slots) if slot == "tensor_map"]
        offsets = {i: position * _MAP_BYTES for position, i in enumerate(maps)}
        self._values_start = end = len(maps) * _MAP_BYTES
        self._value_slots = [i for i in range(len(slots)) if i not in offsets]
        for i in self._value_slots:
            size = struct.calcsize(_CODE[slots[i]])
            offsets[i] = -(-end // size) * size
            end = offsets[i] + size
        self._offsets = [offsets[i] for i in range(len(slots))]
        # "@" pads as C does, and as the offsets above.
        self._pack = struct.Struct("@" + "".join(_CODE[slots[i]] for i in self._value_slots))

        storage, self._start = _aligned(end)
        self._memory = memoryview(storage)[self._start - _address(storage) :]
        self._parameters = (c_void_p * len(slots))(*[self._start + at for at in self._offsets])
        self._config = _LaunchConfig(1, 1, 1, 1, 1, 1, 0, None, None, 0)
        # cuLaunchKernelEx takes 4 arguments where cuLaunchKernel takes 11: half the time.
        self._launch = functools.partial(
            self._cuda.cuLaunchKernelEx,
            c_void_p(ctypes.addressof(self._config)),
            c_void_p(function.handle),
            c_void_p(ctypes.addressof(self._parameters)),
            None,
        )
        # What each map slot holds now: a copy and an address are set only when they change.
        self._maps: list[bytes | bytearray | None] = [None] * len(slots)
        self._addresses: list[int | None] = [None] * len(slots)

    def fill(self, *values: int | float) -> None:
        """Set every slot that is no tensor map, in order; a value out of range is refused."""
        try:
            self._pack.pack_into(self._memory, self._values_start, *values)
        except struct.error:
            for i, value in zip(self._value_slots, values, strict=True):
                self.set_value(i, value)  # says which of them it is
            raise

    def set_value(self, i: int, value: int | float) -> None:
        """Set slot `i`, whatever its kind; a value out of range is refused."""
        kind = self.slots[i]
        try:
            struct.pack_into(_CODE[kind], self._memory, self._offsets[i], value)
        except struct.error as error:
            raise ArgumentError(
                f"{value!r} does not fit parameter {i} of {self.function.name}, which is {kind}"
            ) from error

    def set_pointer(self, i: int, address: int) -> None:
        """Set slot `i` to an address."""
        self.set_value(i, address)

    def set_int32(self, i: int, value: int) -> None:
        """Set slot `i` to an int32."""
        self.set_value(i, value)

    def set_tensor_map(self, i: int, encoded: bytes | bytearray) -> None:
        """Set slot `i` to what `encode_tensor_map` made, address included."""
        if self._maps[i] is not encoded:
            start = self._offsets[i]
            self._memory[start : start + _MAP_BYTES] = encoded
            self._maps[i] = encoded
            self._addresses[i] = None

    def set_tensor_map_address(self, i: int, address: int) -> None:
        """Point the tensor map in slot `i` to another tensor of the same shape and strides."""
        if self._addresses[i] != address:
            code = self._cuda.cuTensorMapReplaceAddress(self._start + self._offsets[i], address)
            if code != 0:
                _check(code, f"giving a tensor map the address {address:#x}")
            self._addresses[i] = address

    def launch(self, grid: int, block: int, shared: int, stream: int) -> None:
        """Launch `grid` blocks of `block` threads with `shared` dynamic bytes; none for grid 0.

        A cluster's size is part of the kernel. The call returns before the kernel has run.
        """
        if grid == 0:
            return
        config = self._config
        config.grid_x = grid
        config.block_x = block
        config.shared_bytes = shared
        config.stream = stream
        code = self._launch()
        if code != 0:
            self._launch_again(code)

    def _launch_again(self, code: int) -> None:
        """Once more in the right context: a new thread has none, and another GPU may be current."""
        if code in (_INVALID_CONTEXT, _INVALID_HANDLE):
            with self.function.device.current():
                code = self._launch()
        config = self._config
        _check(
            code,
            f"launching {self.function.name} with {config.grid_x} blocks of {config.block_x} "
            f"threads and {config.shared_bytes} bytes of shared memory",
        )


def _aligned(size: int) -> tuple[bytearray, int]:
    """Memory with room for `size` bytes from the second result on, an address aligned for a map."""
    storage = bytearray(size + _MAP_ALIGNMENT)
    return storage, -(-_address(storage) // _MAP_ALIGNMENT) * _MAP_ALIGNMENT


def _address(storage: bytearray) -> int:
    return ctypes.addressof(c_char.from_buffer(storage))


@functools.cache
def _cuda() -> ctypes.CDLL:
    """The driver library, started and with its signatures set."""
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise BackendError(
            f"the CUDA driver ({_LIBRARY}) was not found",
            help="arrays on the CPU need none: they run in the emulator",
        ) from error
    try:
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, c_int
    except AttributeError as error:
        raise BackendError("the CUDA driver is older than CUDA 12", help="update it") from error
    code = library.cuInit(0)
    if code != 0:
        raise BackendError(f"the CUDA driver does not start: {_error_text(code, library)}")
    return library


def _check(code: int, what: str) -> None:
    if code != 0:
        raise BackendError(f"{what} failed: {_error_text(code)}")


def _error_text(code: int, library: ctypes.CDLL | None = None) -> str:
    """The driver's name and sentence for a code, such as CUDA_ERROR_NO_DEVICE: no CUDA-capable …"""
    cuda = library or _cuda()
    name, text = c_char_p(), c_char_p()
    cuda.cuGetErrorName(code, byref(name))
    cuda.cuGetErrorString(code, byref(text))
    if name.value is None or text.value is None:
        return f"CUDA error {code}"
    return f"{name.value.decode()}: {text.value.decode()}"
