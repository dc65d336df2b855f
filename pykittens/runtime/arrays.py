"""Describes arrays of any library without a copy: dtype, shape, strides, address and device.

NumPy and PyTorch are read directly, other libraries through DLPack or `__cuda_array_interface__`. PyTorch is never
imported here: only a program that has imported it can pass its tensors.
"""

from __future__ import annotations

import ctypes
import functools
import math
import sys
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np

from pykittens.errors import ArgumentError
from pykittens.runtime import driver

Device = Literal["cpu"] | tuple[Literal["cuda"], int]

# The short names of the language; any other dtype keeps its name, for error texts.
_SHORT = {
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "f32",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
}
_LONG = {short: long for long, short in _SHORT.items()}


# Not frozen: a frozen dataclass costs 0.7 µs per argument of a call.
@dataclass(slots=True, eq=False)
class Array:
    """One tensor argument: `strides` count elements, `address` is the byte address of element 0.

    `owner` keeps the memory alive. An array is immutable by convention.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    device: Device
    writable: bool
    owner: object

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return numpy_dtype(self.dtype).itemsize

    def numpy(self) -> np.ndarray[Any, Any]:
        """A NumPy view of the same memory; bf16 is ml_dtypes' bfloat16."""
        if self.device != "cpu":
            raise ArgumentError(
                "an array on the GPU has no NumPy view",
                operands={"array": self},
                help="copy it to the CPU first",
            )
        if isinstance(self.owner, np.ndarray):
            return self.owner
        return _view(self)

    def __str__(self) -> str:
        place = self.device if isinstance(self.device, str) else "{}:{}".format(*self.device)
        extents = ", ".join(map(str, self.shape))
        return f"{self.dtype} ({extents}), strides {self.strides}, on {place}"


def describe(value: object) -> Array | None:
    """The description of `value`, or None if `value` is not an array."""
    if isinstance(value, np.ndarray):
        return _from_numpy(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _from_torch(value)
    kind = type(value)  # asked of the class, since a class object has these names too
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        return _from_dlpack(value)
    if hasattr(kind, "__cuda_array_interface__"):
        return _from_cuda_array_interface(value)
    return value if isinstance(value, Array) else None


@functools.cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype of a name such as bf16, int32 or float64."""
    long = _LONG.get(name, name)
    return np.dtype(getattr(ml_dtypes, long, None) or long)


def empty(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """An array of this shape and dtype, with the library and the device of another."""
    if isinstance(like, np.ndarray):
        return np.empty(shape, numpy_dtype(dtype))
    return like.new_empty(shape, dtype=torch_dtype(dtype))


def viewed(x: Any, dtype: str) -> Any:
    """The memory of a contiguous vector as elements of another dtype."""
    return x.view(numpy_dtype(dtype) if isinstance(x, np.ndarray) else torch_dtype(dtype))


def _from_numpy(value: np.ndarray[Any, Any]) -> Array:
    name, size = _name_of(value.dtype), value.itemsize
    strides = tuple(_elements(stride, size) for stride in value.strides)
    address = value.__array_interface__["data"][0]
    return Array(name, value.shape, strides, address, "cpu", value.flags.writeable, value)


@functools.cache
def _name_of(dtype: np.dtype[Any]) -> str:
    # The name does not show the byte order; NumPy's code does.
    return _SHORT.get(dtype.name, dtype.name) if dtype.isnative else dtype.str


_NO_TRACE = "torch.jit.trace, torch.export and torch.func see no kernel: make it an operator with pykittens.torch.op"


def _from_torch(value: Any) -> Array:
    if value.is_neg():  # its memory holds the negated numbers
        raise ArgumentError(
            "this tensor is a negated view, and a kernel would read the memory without negating it",
            help="pass x.resolve_neg()",
        )
    device = _torch_device(value.device)
    check_dense(value)
    try:
        shape, strides, address = tuple(value.shape), value.stride(), value.data_ptr()
    except RuntimeError as error:  # in a transform of torch.func, or while operations are traced
        raise ArgumentError(f"this tensor has no memory: {error}", help=_NO_TRACE) from error
    if any(type(n) is not int for n in (*shape, *strides)):
        raise ArgumentError(
            "this tensor's extents are traced, and a kernel needs numbers", help=_NO_TRACE
        )
    return Array(name_of_torch(value.dtype), shape, strides, address, device, True, value)


def check_dense(value: Any) -> None:
    """Raise ArgumentError unless a tensor of PyTorch is an array of numbers in memory."""
    layout = "nested" if value.is_nested else str(value.layout).removeprefix("torch.")
    if layout != "strided":
        raise ArgumentError(
            f"this tensor is {layout}, and a kernel reads and writes dense memory",
            help="pass a dense tensor, such as x.to_dense() or x.to_padded_tensor(0.0)",
        )


@functools.cache
def name_of_torch(dtype: Any) -> str:
    """The name of a dtype of PyTorch."""
    name = str(dtype).removeprefix("torch.")
    return _SHORT.get(name, name)


@functools.cache
def torch_dtype(name: str) -> Any:
    """PyTorch's dtype of a name such as bf16 or int32. PyTorch must be loaded."""
    return getattr(sys.modules["torch"], _LONG.get(name, name))


@functools.cache
def _torch_device(device: Any) -> Device:
    if device.type == "cpu":
        return "cpu"
    if device.type == "cuda":
        return ("cuda", device.index)
    raise _elsewhere(str(device))


def _elsewhere(place: str) -> ArgumentError:
    return ArgumentError(
        f"neither the GPU nor the emulator can use an array on the device {place}",
        help="move it to the CPU or to a CUDA device",
    )


def _elements(stride_bytes: int, size: int) -> int:
    if size == 0 or stride_bytes % size:
        raise ArgumentError(
            f"a stride of {stride_bytes} bytes is not a multiple of the element size, {size} bytes",
            help="pass a copy, or a view whose elements do not overlap",
        )
    return stride_bytes // size


def _packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of an array without gaps, the last axis innermost."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


class _Memory:
    """The array interface through which NumPy views memory at an address. The view keeps the owner alive."""

    def __init__(self, interface: dict[str, object], owner: object) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def _view(array: Array) -> np.ndarray[Any, Any]:
    dtype = numpy_dtype(array.dtype)
    if math.prod(array.shape) == 0:
        return np.empty(array.shape, dtype)
    # The protocol has no bfloat16 or fp8: view as integers of that size, then as the dtype.
    known = dtype.isbuiltin == 1  # ml_dtypes says that e5m2 is a float, but NumPy has no such float
    interface: dict[str, object] = {
        "version": 3,
        "shape": array.shape,
        "strides": tuple(stride * dtype.itemsize for stride in array.strides),
        "typestr": dtype.str if known else f"<u{dtype.itemsize}",
        "data": (array.address, not array.writable),
    }
    plain = np.asarray(_Memory(interface, array.owner))
    return plain if known else plain.view(dtype)


# DLPack, read as its header dlpack.h lays it out.


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
_READ_ONLY = 1  # bit of a versioned tensor's flags
_NUMBERS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex"}
_OTHERS = {6: "bool", 10: "float8_e4m3fn", 12: "float8_e5m2"}

_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes, _is_valid.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p


def _from_dlpack(value: Any) -> Array:
    kind, ordinal = value.__dlpack_device__()
    if kind in (_CUDA, _CUDA_MANAGED):
        device: Device = ("cuda", int(ordinal))
        # -1: no synchronisation. The stream of a launch orders the call.
        stream = {"stream": -1}
    elif kind in (_CPU, _CUDA_HOST):
        device, stream = "cpu", {}
    else:
        raise _elsewhere(f"of DLPack's kind {int(kind)}")
    try:
        try:
            capsule = value.__dlpack__(max_version=(1, 0), **stream)
        except TypeError:  # older than the versions of the protocol
            capsule = value.__dlpack__(**stream)
    except BufferError as error:
        raise ArgumentError(f"this array does not share its memory: {error}") from error

    # The capsule is never renamed, so it keeps its ownership and frees the memory when it is deleted.
    writable = True
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        writable = not versioned.flags & _READ_ONLY
        tensor = versioned.tensor
    else:
        tensor = _DLTensor.from_address(_pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _packed(shape)
    address = (tensor.data or 0) + tensor.byte_offset
    return Array(_dlpack_dtype(tensor), shape, strides, address, device, writable, capsule)


def _dlpack_dtype(tensor: _DLTensor) -> str:
    name = _OTHERS.get(tensor.code) or f"{_NUMBERS.get(tensor.code, 'opaque')}{tensor.bits}"
    if tensor.lanes != 1:
        return f"{name}x{tensor.lanes}"
    return _SHORT.get(name, name)


def _from_cuda_array_interface(value: Any) -> Array:
    interface = value.__cuda_array_interface__
    dtype = np.dtype(interface["typestr"])
    shape = tuple(interface["shape"])
    in_bytes = interface.get("strides")
    strides = (
        _packed(shape)
        if in_bytes is None
        else tuple(_elements(s, dtype.itemsize) for s in in_bytes)
    )
    address, read_only = interface["data"]
    # The interface does not name the device; the driver knows which device owns an address.
    device: Device = ("cuda", driver.device_of(int(address)))
    return Array(_name_of(dtype), shape, strides, int(address), device, not read_only, value)
