"""The CUDA driver, called through ctypes: the library, devices and loaded kernels.

The functions used here have kept their signatures since CUDA 12. A launch through ctypes adds 0.5 µs to the driver's
time.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator
from ctypes import (
    POINTER,
    byref,
    c_char_p,
    c_float,
    c_int,
    c_size_t,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass

from pykittens.errors import BackendError, ResourceError

_LIBRARY = "libcuda.so.1"
_MANAGEMENT = "libnvidia-ml.so.1"

# Signatures as in cuda.h; handles are addresses.
_SIGNATURES = {
    "cuInit": (c_uint,),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (POINTER(c_void_p),),
    "cuCtxSynchronize": (),
    "cuModuleLoadData": (POINTER(c_void_p), c_char_p),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuFuncGetAttribute": (POINTER(c_int), c_int, c_void_p),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (POINTER(c_int), c_void_p, c_int, c_size_t),
    "cuOccupancyMaxActiveClusters": (POINTER(c_int), c_void_p, c_void_p),
    "cuPointerGetAttribute": (c_void_p, c_int, c_uint64),
    "cuStreamIsCapturing": (c_void_p, POINTER(c_int)),
    "cuStreamSynchronize": (c_void_p,),
    "cuMemHostAlloc": (POINTER(c_void_p), c_size_t, c_uint),
    "cuMemHostGetDevicePointer_v2": (POINTER(c_uint64), c_void_p, c_uint),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
    "cuMemsetD32Async": (c_uint64, c_uint, c_size_t, c_void_p),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventQuery": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
    "cuTensorMapEncodeTiled": (
        c_void_p, c_int, c_uint32, c_void_p,
        POINTER(c_uint64), POINTER(c_uint64), POINTER(c_uint32), POINTER(c_uint32),
        c_int, c_int, c_int, c_int,
    ),
    "cuTensorMapReplaceAddress": (c_void_p, c_void_p),
    "cuLaunchKernelEx": None,  # a launcher converts its arguments once
}  # fmt: skip

_started: set[int] = set()  # the process that initialised the driver; a fork inherits its number

INVALID_CONTEXT = 201  # the code that a thread without a context gets
_NOT_INITIALIZED = (
    3  # the code of cuInit in a fork of a process that used CUDA, by PyTorch or otherwise
)
OUT_OF_MEMORY, NOT_READY = 2, 600
# Attributes of a device, of a function and of a pointer.
_MAX_THREADS, _MULTIPROCESSORS, _L2_BYTES, _MAJOR, _MINOR, _SHARED_OPTIN = 1, 16, 38, 75, 76, 97
_MEMORY_KILOHERTZ, _MEMORY_BITS = 36, 37
_STATIC_SHARED, _MAX_DYNAMIC_SHARED = 1, 8
_DEVICE_ORDINAL = 9
_PORTABLE, _DEVICE_MAP = 1, 2  # host memory for all contexts, mapped to the device

# Instructions that only one chip has need the `a` form of the architecture.
_OWN_INSTRUCTIONS = {(9, 0), (10, 0)}


def available() -> str | None:
    """None if kernels can be launched, else a sentence that says what is missing."""
    try:
        return None if device_count() > 0 else "the CUDA driver sees no GPU"
    except BackendError as error:
        return error.message


def version() -> tuple[int, int]:
    """Major and minor version of the newest CUDA that the driver supports."""
    number = c_int()
    check(_opened().cuDriverGetVersion(byref(number)), "asking for the driver's version")
    return number.value // 1000, number.value % 1000 // 10


def release() -> str | None:
    """The driver's own version, such as 580.159.04; None if its management library does not state it."""
    text = ctypes.create_string_buffer(80)
    with contextlib.suppress(OSError, AttributeError):
        management = ctypes.CDLL(_MANAGEMENT)
        if not management.nvmlInit_v2() and not management.nvmlSystemGetDriverVersion(text, 80):
            return text.value.decode()
    return None


def device_count() -> int:
    """The number of GPUs that the driver sees."""
    count = c_int()
    check(library().cuDeviceGetCount(byref(count)), "counting the GPUs")
    return count.value


@dataclass(frozen=True)
class Device:
    """One GPU, as the driver describes it.

    `capability` is (9, 0) on Hopper; `shared_bytes_per_block_optin` is the most shared memory that a
    block may request, static and dynamic together; `max_threads` is the most threads of a block; `memory_rate` is
    that of the memory's pins in bytes per second, of which kernels reach nine tenths.
    """

    ordinal: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    l2_bytes: int
    shared_bytes_per_block_optin: int
    max_threads: int
    memory_rate: float

    @property
    def arch(self) -> str:
        """The architecture to compile for, such as sm_90a."""
        return architecture(*self.capability)

    @functools.cached_property
    def context(self) -> int:
        """The primary context, which PyTorch and the CUDA runtime also use; it is never released."""
        handle = c_void_p()
        code = library().cuDevicePrimaryCtxRetain(byref(handle), self.ordinal)
        check(code, f"opening GPU {self.ordinal}")
        return handle.value or 0

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make this GPU's context current in the calling thread, until the end of a `with`."""
        cuda = library()
        check(cuda.cuCtxPushCurrent_v2(self.context), f"choosing GPU {self.ordinal}")
        try:
            yield
        finally:
            cuda.cuCtxPopCurrent_v2(byref(c_void_p()))


@functools.cache
def device(ordinal: int) -> Device:
    """The Device of an ordinal; the same object for each call."""
    if not 0 <= ordinal < device_count():
        raise BackendError(f"there is no GPU {ordinal}: the driver sees {device_count()}")
    name = ctypes.create_string_buffer(256)
    check(library().cuDeviceGetName(name, len(name), ordinal), f"naming GPU {ordinal}")

    def attribute(number: int) -> int:
        value = c_int()
        code = library().cuDeviceGetAttribute(byref(value), number, ordinal)
        check(code, f"reading attribute {number} of GPU {ordinal}")
        return value.value

    return Device(
        ordinal,
        name.value.decode(),
        capability=(attribute(_MAJOR), attribute(_MINOR)),
        multiprocessors=attribute(_MULTIPROCESSORS),
        l2_bytes=attribute(_L2_BYTES),
        shared_bytes_per_block_optin=attribute(_SHARED_OPTIN),
        max_threads=attribute(_MAX_THREADS),
        memory_rate=2e3
        * attribute(_MEMORY_KILOHERTZ)
        * attribute(_MEMORY_BITS)
        / 8,  # two bits a cycle
    )


def memory_bytes(ordinal: int) -> int:
    """The size of a GPU's memory in bytes."""
    size = c_size_t()
    check(library().cuDeviceTotalMem_v2(byref(size), ordinal), f"measuring GPU {ordinal}'s memory")
    return size.value


def architecture(major: int, minor: int) -> str:
    """The compiler's name of a compute capability, for example sm_90a, sm_100a or sm_89."""
    return f"sm_{major}{minor}" + ("a" if (major, minor) in _OWN_INSTRUCTIONS else "")


def device_of(address: int) -> int:
    """The ordinal of the GPU that owns an address; 0 for the null address of an empty array."""
    if address == 0:
        return 0
    ordinal = c_int()
    check(
        library().cuPointerGetAttribute(byref(ordinal), _DEVICE_ORDINAL, address),
        f"asking for the owner of the address {address:#x}",
    )
    return ordinal.value


def synchronize(ordinal: int) -> None:
    """Wait until a GPU has completed all launches. Raises BackendError if a kernel failed."""
    with device(ordinal).current():
        check(library().cuCtxSynchronize(), f"waiting for GPU {ordinal}")


def wait_for_stream(ordinal: int, stream: int) -> str | None:
    """Wait until a stream has completed all launches; returns the driver's error if a kernel was stopped, else None."""
    with device(ordinal).current():
        code = library().cuStreamSynchronize(stream)
    return error_text(code) if code != 0 else None


def mapped_memory(ordinal: int, size: int) -> tuple[int, int]:
    """Host memory that a GPU can write, until the process ends: its address on the host and on the GPU."""
    cuda, host, there = library(), c_void_p(), c_uint64()
    with device(ordinal).current():
        code = cuda.cuMemHostAlloc(byref(host), size, _PORTABLE | _DEVICE_MAP)
        check(code, "taking memory of the host")
        code = cuda.cuMemHostGetDevicePointer_v2(byref(there), host, 0)
        check(code, "mapping memory of the host")
    return host.value or 0, there.value


def stream_is_capturing(stream: int, ordinal: int) -> bool:
    """Whether launches on a stream of a GPU are recorded into a graph instead of run."""
    status = c_int()
    code = library().cuStreamIsCapturing(stream, byref(status))
    if code == INVALID_CONTEXT:
        # A thread that has not used a GPU yet, such as one that computes gradients.
        with device(ordinal).current():
            code = library().cuStreamIsCapturing(stream, byref(status))
    if code:
        check(code, "asking whether a stream captures a graph")
    return status.value != 0


@dataclass(frozen=True)
class Function:
    """A kernel loaded on a GPU; it stays loaded until the process ends."""

    handle: int
    name: str
    device: Device

    def occupancy(self, threads: int, shared_bytes: int) -> int:
        """The number of blocks that fit on one multiprocessor, given threads and dynamic shared bytes per block."""
        blocks = c_int()
        ask = library().cuOccupancyMaxActiveBlocksPerMultiprocessor
        with self.device.current():
            code = ask(byref(blocks), self.handle, threads, shared_bytes)
        check(code, f"asking for the occupancy of {self.name}")
        return blocks.value


def load(cubin: bytes, name: str, ordinal: int, shared_bytes: int = 0) -> Function:
    """Load the kernel `name` of a cubin on a GPU, with up to `shared_bytes` of dynamic shared memory."""
    cuda, owner = library(), device(ordinal)
    module, function, static = c_void_p(), c_void_p(), c_int()
    with owner.current():
        check(cuda.cuModuleLoadData(byref(module), cubin), f"loading {name}")
        check(cuda.cuModuleGetFunction(byref(function), module, name.encode()), f"finding {name}")
        check(cuda.cuFuncGetAttribute(byref(static), _STATIC_SHARED, function), f"asking {name}")
        limit = owner.shared_bytes_per_block_optin
        if static.value + shared_bytes > limit:
            raise ResourceError(
                f"{name} needs {static.value + shared_bytes} bytes of shared memory per block, and "
                f"{owner.name} has {limit}",
                help="fewer pipeline stages, or smaller tiles",
            )
        if shared_bytes:
            check(
                cuda.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared_bytes),
                f"giving {name} {shared_bytes} bytes of shared memory",
            )
    return Function(function.value or 0, name, owner)


@functools.cache
def library() -> ctypes.CDLL:
    """The driver library, initialised, with its signatures set."""
    cuda = _opened()
    code = cuda.cuInit(0)
    if code == _NOT_INITIALIZED:
        raise _forked("starting the CUDA driver")
    if code != 0:
        raise BackendError(f"the CUDA driver does not start: {error_text(code, cuda)}")
    _started.add(os.getpid())
    return cuda


def _opened() -> ctypes.CDLL:
    """The driver library with its signatures set; the program can still be forked."""
    try:
        cuda = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise BackendError(
            f"the CUDA driver ({_LIBRARY}) was not found",
            help="arrays on the CPU need no driver: they run in the emulator",
        ) from error
    try:
        for name, arguments in _SIGNATURES.items():
            function = getattr(cuda, name)
            function.argtypes, function.restype = arguments, c_int
    except AttributeError as error:
        raise BackendError("the CUDA driver is older than CUDA 12", help="update it") from error
    return cuda


def check(code: int, what: str) -> None:
    """Raise a BackendError that names the attempted action, unless the code is success."""
    if code == 0:
        return
    if _started and os.getpid() not in _started:
        raise _forked(what)
    raise BackendError(f"{what} failed: {error_text(code)}")


def _forked(what: str) -> BackendError:
    return BackendError(
        f"{what} failed: this process was forked from one that used CUDA, and the driver does not work in it",
        help='start processes with multiprocessing.get_context("spawn")',
    )


def error_text(code: int, cuda: ctypes.CDLL | None = None) -> str:
    """The driver's name and description of a code, such as CUDA_ERROR_NO_DEVICE: no CUDA-capable …"""
    cuda = cuda or library()
    name, text = c_char_p(), c_char_p()
    cuda.cuGetErrorName(code, byref(name))
    cuda.cuGetErrorString(code, byref(text))
    if name.value is None or text.value is None:
        return f"CUDA error {code}"
    return f"{name.value.decode()}: {text.value.decode()}"
