"""A GPU for tests: its memory, and kernels written in CUDA C++."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from pykittens.runtime import driver, nvrtc
from pykittens.runtime.driver import Function
from pykittens.runtime.launcher import SlotKind

AXPY = """
extern "C" __global__ void axpy(float *y, int n, const float *x, float a, bool twice, long long k) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i] * (twice ? 2 : 1) + (k == -(1LL << 40) ? 100 : 0);
}
"""
AXPY_SLOTS: tuple[SlotKind, ...] = ("pointer", "int32", "pointer", "float32", "bool", "int64")

MIRROR = """
extern "C" __global__ void mirror(float *p) {
    extern __shared__ float s[];
    int n = 40000, t = threadIdx.x;
    for (int i = t; i < n; i += blockDim.x) s[i] = p[i];
    __syncthreads();
    for (int i = t; i < n; i += blockDim.x) p[i] = s[n - 1 - i];
}
"""


class Memory:
    """GPU memory with the bytes of an array; small, and given back when the process ends."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.shape, self.dtype, self.nbytes = values.shape, values.dtype, values.nbytes
        pointer = ctypes.c_uint64()
        assert raw("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(values.nbytes)) == 0
        self.address = pointer.value
        source = ctypes.c_void_p(np.ascontiguousarray(values).ctypes.data)
        size = ctypes.c_size_t(values.nbytes)
        assert raw("cuMemcpyHtoD_v2", ctypes.c_uint64(self.address), source, size) == 0

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy of the memory, when all launches are done."""
        driver.synchronize(0)
        values = np.empty(self.shape, self.dtype)
        target, size = ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(self.nbytes)
        assert raw("cuMemcpyDtoH_v2", target, ctypes.c_uint64(self.address), size) == 0
        return values


def raw(name: str, *arguments: Any) -> int:
    """The code of a driver function that the package itself has no use for."""
    return int(getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments))


@functools.cache
def loaded(source: str, name: str, shared_bytes: int = 0) -> Function:
    cubin = nvrtc.compile(source, driver.device(0).arch, f"{name}.cu").cubin
    return driver.load(cubin, name, 0, shared_bytes)
