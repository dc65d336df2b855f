"""Launches are packed in place, refused in sentences, and right on a GPU where there is one."""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pykittens.errors import ArgumentError, BackendError, ResourceError
from pykittens.runtime import driver, nvrtc
from pykittens.runtime.driver import Device, Function
from pykittens.runtime.launcher import Launcher, Slot
from pykittens.runtime.tensor_map import encode_tensor_map

MAP = bytes(range(128))


class FakeDriver:
    """Stands in for libcuda: keeps what a launch was given, and fails when told to."""

    def __init__(self) -> None:
        self.codes: list[int] = []  # of the next launches
        self.launches: list[tuple[int, ...]] = []
        self.parameters: list[int] = []
        self.current = 0
        self.replaced: list[tuple[int, int]] = []

    def cuLaunchKernelEx(self, config: Any, handle: Any, parameters: Any, extra: None) -> int:
        if self.codes:
            return self.codes.pop(0)
        words = struct.unpack("@7IQQI", ctypes.string_at(config.value, 52))
        self.launches.append((handle.value, self.current, *words))
        self.parameters = [
            ctypes.c_uint64.from_address(parameters.value + 8 * i).value for i in range(8)
        ]
        return 0

    def cuTensorMapReplaceAddress(self, address: int, value: int) -> int:
        self.replaced.append((address, value))
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, ordinal: int) -> int:
        context._obj.value = 0x1234_5678_9ABC
        return 0

    def cuCtxPushCurrent_v2(self, context: int) -> int:
        self.current = context
        return 0

    def cuCtxPopCurrent_v2(self, context: Any) -> int:
        self.current = 0
        return 0

    def cuGetErrorName(self, code: int, text: Any) -> int:
        text._obj.value = {1: b"CUDA_ERROR_INVALID_VALUE", 201: b"CUDA_ERROR_INVALID_CONTEXT"}[code]
        return 0

    def cuGetErrorString(self, code: int, text: Any) -> int:
        text._obj.value = {1: b"invalid argument", 201: b"invalid device context"}[code]
        return 0


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    stand_in = FakeDriver()
    monkeypatch.setattr(driver, "library", lambda: stand_in)
    return stand_in


def launcher(*slots: Slot) -> Launcher:
    gpu = Device(0, "a GPU", (9, 0), 132, 50 << 20, 232448, 1024)
    return Launcher(Function(0xF00D_0000_0001, "add", gpu), slots)


def read(fake: FakeDriver, i: int, code: str) -> Any:
    """The value of parameter `i` of the last launch."""
    data = ctypes.string_at(fake.parameters[i], struct.calcsize(code))
    return struct.unpack(code, data)[0]


def test_every_kind_of_parameter_reaches_the_launch(fake: FakeDriver) -> None:
    it = launcher(
        "int32", "tensor_map", "pointer", "bool", "tensor_map", "int64", "float32", "int32"
    )
    it.set_tensor_map(1, MAP)
    it.set_tensor_map(4, bytes(reversed(MAP)))
    it.fill(-5, 0xDEAD_BEEF_0000_0000, True, -(2**40), 1.5, 7)
    it.launch(132, 384, 213056, 0x7FFF_0000_1000)
    grid = (132, 1, 1, 384, 1, 1, 213056, 0x7FFF_0000_1000, 0, 0)
    assert fake.launches == [(0xF00D_0000_0001, 0, *grid)]
    assert [read(fake, i, code) for i, code in enumerate(["i", "128s", "Q", "?"])] == [
        -5,
        MAP,
        0xDEAD_BEEF_0000_0000,
        True,
    ]
    assert [read(fake, i + 4, code) for i, code in enumerate(["128s", "q", "f", "i"])] == [
        bytes(reversed(MAP)),
        -(2**40),
        1.5,
        7,
    ]


def test_parameters_are_aligned(fake: FakeDriver) -> None:
    it = launcher("bool", "tensor_map", "pointer", "bool", "int32", "tensor_map", "bool", "int64")
    it.launch(1, 32, 0, 0)
    alignments = [1, 64, 8, 1, 4, 64, 1, 8]
    assert [at % by for at, by in zip(fake.parameters, alignments, strict=True)] == [0] * 8


def test_single_values_are_set_in_place(fake: FakeDriver) -> None:
    it = launcher("pointer", "int32", "float32", "bool", "int64")
    it.fill(1, 2, 3.0, False, 5)
    it.set_value(0, 2**63)
    it.set_value(1, -(2**31))
    it.set_value(2, 0.25)
    it.set_value(3, True)
    it.launch(1, 32, 0, 0)
    values = [read(fake, i, code) for i, code in enumerate("Qif?q")]
    assert values == [2**63, -(2**31), 0.25, True, 5]


def test_numpy_scalars_are_values(fake: FakeDriver) -> None:
    it = launcher("int32", "float32", "bool")
    it.fill(np.int64(3), np.float32(0.5), np.bool_(True))  # type: ignore[arg-type]
    it.launch(1, 32, 0, 0)
    assert [read(fake, i, code) for i, code in enumerate("if?")] == [3, 0.5, True]


@pytest.mark.parametrize(
    ("slot", "value"),
    [("int32", 2**31), ("int32", -(2**31) - 1), ("int64", 2**63), ("pointer", -1)],
)
def test_an_integer_out_of_range_is_refused(fake: FakeDriver, slot: Slot, value: int) -> None:
    it = launcher("pointer", slot)
    message = f"{value} does not fit parameter 1 of add, which is {slot}"
    with pytest.raises(ArgumentError, match=message):
        it.fill(0, value)
    with pytest.raises(ArgumentError, match=message):
        it.set_value(1, value)


def test_a_float_is_rounded_to_f32(fake: FakeDriver) -> None:
    it = launcher("float32", "float32")
    it.fill(0.1, 1e300)
    it.launch(1, 32, 0, 0)
    assert [read(fake, i, "f") for i in range(2)] == [float(np.float32(0.1)), float("inf")]


def test_a_tensor_map_is_copied_and_pointed_elsewhere_only_when_it_changes(
    fake: FakeDriver,
) -> None:
    it = launcher("tensor_map")
    it.set_tensor_map(0, MAP)
    for address in (0x100, 0x100, 0x200):
        it.set_tensor_map_address(0, address)
    assert [value for _, value in fake.replaced] == [0x100, 0x200]
    it.set_tensor_map(0, MAP)
    it.set_tensor_map_address(0, 0x200)
    assert len(fake.replaced) == 2
    it.set_tensor_map(0, bytes(128))  # its address is not known
    it.set_tensor_map_address(0, 0x200)
    assert len(fake.replaced) == 3
    assert fake.replaced[0][0] % 64 == 0


def test_no_blocks_are_no_launch(fake: FakeDriver) -> None:
    launcher("int32").launch(0, 128, 0, 0)
    assert fake.launches == []


@pytest.mark.parametrize("code", [201, 400])
def test_a_thread_without_the_context_launches_within_it(fake: FakeDriver, code: int) -> None:
    fake.codes = [code]
    launcher("int32").launch(2, 128, 0, 0)
    ((_, context, grid, *_),) = fake.launches
    assert (context, grid) == (0x1234_5678_9ABC, 2)
    assert fake.current == 0


@pytest.mark.parametrize("codes", [[1], [201, 201]])
def test_a_refused_launch_is_told_with_its_size(fake: FakeDriver, codes: list[int]) -> None:
    fake.codes = list(codes)
    with pytest.raises(BackendError, match="launching add with 2 blocks of 128 threads") as caught:
        launcher("int32").launch(2, 128, 64, 0)
    text = {1: "CUDA_ERROR_INVALID_VALUE: invalid argument", 201: "CUDA_ERROR_INVALID_CONTEXT"}
    assert text[codes[0]] in caught.value.message


@pytest.mark.parametrize(
    ("capability", "arch"),
    [((8, 0), "sm_80"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((10, 0), "sm_100a")],
)
def test_a_capability_names_an_architecture(capability: tuple[int, int], arch: str) -> None:
    assert driver.architecture(*capability) == arch


def test_a_machine_without_a_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_LIBRARY", "libcuda.so.none")
    monkeypatch.setattr(driver, "library", functools.cache(driver.library.__wrapped__))
    assert driver.available() == "the CUDA driver (libcuda.so.none) was not found"
    with pytest.raises(BackendError, match="they run in the emulator"):
        driver.device(0)


def test_a_library_without_the_functions_is_an_old_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_LIBRARY", "libc.so.6")
    monkeypatch.setattr(driver, "library", functools.cache(driver.library.__wrapped__))
    assert driver.available() == "the CUDA driver is older than CUDA 12"


# On a GPU.


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


@pytest.fixture
def gpu() -> Iterator[Device]:
    device = driver.device(0)
    with device.current():
        yield device


@functools.cache
def loaded(source: str, name: str, shared_bytes: int = 0) -> Function:
    cubin = nvrtc.compile(source, driver.device(0).arch, f"{name}.cu").cubin
    return driver.load(cubin, name, 0, shared_bytes)


AXPY = """
extern "C" __global__ void axpy(float *y, int n, const float *x, float a, bool twice, long long k) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i] * (twice ? 2 : 1) + (k == -(1LL << 40) ? 100 : 0);
}
"""
AXPY_SLOTS: tuple[Slot, ...] = ("pointer", "int32", "pointer", "float32", "bool", "int64")


@pytest.mark.gpu
def test_a_device_says_what_it_is(gpu: Device) -> None:
    assert gpu.name
    assert gpu.arch.startswith(f"sm_{gpu.capability[0]}")
    assert gpu.multiprocessors > 0
    assert gpu.l2_bytes > 1 << 20
    assert gpu.shared_bytes_per_block_optin >= 48 << 10
    assert gpu.max_threads == 1024
    assert driver.device(0) is gpu


@pytest.mark.gpu
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(BackendError, match="there is no GPU 99"):
        driver.device(99)


@pytest.mark.gpu
def test_the_current_gpu_is_known_within_its_context(gpu: Device) -> None:
    assert driver.current_context_device() == 0


@pytest.mark.gpu
def test_a_new_thread_has_no_current_gpu() -> None:
    found: list[int | None] = []
    thread = threading.Thread(target=lambda: found.append(driver.current_context_device()))
    thread.start()
    thread.join()
    assert found == [None]


@pytest.mark.gpu
def test_a_kernel_runs_with_every_kind_of_value(gpu: Device) -> None:
    y, x = Memory(np.ones(1000, np.float32)), Memory(np.arange(1000, dtype=np.float32))
    it = Launcher(loaded(AXPY, "axpy"), AXPY_SLOTS)
    it.fill(y.address, 999, x.address, 0.5, True, -(2**40))
    it.launch(8, 128, 0, 0)
    expected = np.arange(1000, dtype=np.float32) + 101
    expected[999] = 1
    np.testing.assert_array_equal(y.numpy(), expected)
    assert driver.device_of(y.address) == 0


@pytest.mark.gpu
def test_threads_without_a_context_share_a_launcher(gpu: Device) -> None:
    it = Launcher(loaded(AXPY, "axpy"), AXPY_SLOTS)
    x = Memory(np.ones(64, np.float32))
    outputs = [Memory(np.zeros(64, np.float32)) for _ in range(4)]
    faults: list[BaseException] = []

    def work(index: int) -> None:
        try:
            for _ in range(100):
                with it.lock:
                    it.fill(outputs[index].address, 64, x.address, float(index), False, 0)
                    it.launch(1, 64, 0, 0)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert [set(output.numpy()) for output in outputs] == [{0.0}, {100.0}, {200.0}, {300.0}]


@pytest.mark.gpu
def test_a_launch_of_too_many_threads_is_told(gpu: Device) -> None:
    it = Launcher(loaded(AXPY, "axpy"), AXPY_SLOTS)
    with pytest.raises(BackendError, match="1 blocks of 2048 threads.*CUDA_ERROR_INVALID_VALUE"):
        it.launch(1, 2048, 0, 0)


@pytest.mark.gpu
def test_what_is_no_cubin_is_refused(gpu: Device) -> None:
    with pytest.raises(BackendError, match="loading k failed: CUDA_ERROR_"):
        driver.load(b"no cubin at all", "k", 0)


@pytest.mark.gpu
def test_a_kernel_that_a_cubin_lacks_is_refused(gpu: Device) -> None:
    cubin = nvrtc.compile(AXPY, gpu.arch, "axpy.cu").cubin
    with pytest.raises(BackendError, match="finding axby failed: CUDA_ERROR_NOT_FOUND"):
        driver.load(cubin, "axby", 0)


MIRROR = """
extern "C" __global__ void mirror(float *p) {
    extern __shared__ float s[];
    int n = 40000, t = threadIdx.x;
    for (int i = t; i < n; i += blockDim.x) s[i] = p[i];
    __syncthreads();
    for (int i = t; i < n; i += blockDim.x) p[i] = s[n - 1 - i];
}
"""


@pytest.mark.gpu
def test_dynamic_shared_memory_is_allowed_up_to_the_limit(gpu: Device) -> None:
    limit = gpu.shared_bytes_per_block_optin
    function = loaded(MIRROR, "mirror", limit)
    values = Memory(np.arange(40000, dtype=np.float32))
    it = Launcher(function, ("pointer",))
    it.fill(values.address)
    it.launch(1, 256, limit, 0)
    np.testing.assert_array_equal(values.numpy(), np.arange(40000, dtype=np.float32)[::-1])
    assert function.occupancy(256, limit) == 1
    assert function.occupancy(256, 1024) > 1


@pytest.mark.gpu
def test_more_shared_memory_than_there_is_is_refused(gpu: Device) -> None:
    limit = gpu.shared_bytes_per_block_optin
    with pytest.raises(ResourceError, match=f"needs {limit + 1} bytes of shared memory a block"):
        loaded(MIRROR, "mirror", limit + 1)


CLUSTER = """
extern "C" __global__ void __cluster_dims__(2, 1, 1) ranks(int *p) {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) p[blockIdx.x] = rank;
}
"""


@pytest.mark.gpu
def test_a_cluster_is_launched_with_the_size_it_was_compiled_with(gpu: Device) -> None:
    out = Memory(np.full(6, -1, np.int32))
    it = Launcher(loaded(CLUSTER, "ranks"), ("pointer",))
    it.fill(out.address)
    it.launch(6, 32, 0, 0)
    np.testing.assert_array_equal(out.numpy(), [0, 1, 0, 1, 0, 1])


@pytest.mark.gpu
def test_a_capturing_stream_is_known(gpu: Device) -> None:
    stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
    assert raw("cuStreamCreate", ctypes.byref(stream), 1) == 0
    assert not driver.stream_is_capturing(stream.value or 0)
    assert raw("cuStreamBeginCapture_v2", stream, 2) == 0
    assert driver.stream_is_capturing(stream.value or 0)
    assert raw("cuStreamEndCapture", stream, ctypes.byref(graph)) == 0
    assert not driver.stream_is_capturing(stream.value or 0)
    assert raw("cuStreamDestroy_v2", stream) == 0


# Copies a box of 32 x 8 f32 values at (x, y) to `out`, with the swizzle the map has.
BOX = """
struct alignas(64) Map { unsigned long long words[16]; };
extern "C" __global__ void box(const __grid_constant__ Map map, float *out, int x, int y) {
    extern __shared__ __align__(1024) float s[];
    unsigned tile = (unsigned)__cvta_generic_to_shared(s), bar = tile + 1024;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" ::"r"(bar)
                     : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%3, %4}], [%2];"
                     ::"r"(tile), "l"(&map), "r"(bar), "r"(x), "r"(y) : "memory");
    }
    __syncthreads();
    asm volatile("{ .reg .pred P; W: mbarrier.try_wait.parity.shared::cta.b64 P, [%0], 0; "
                 "@P bra D; bra W; D: }" ::"r"(bar) : "memory");
    for (int i = threadIdx.x; i < 256; i += 32) out[i] = s[i];
}
"""


def boxed(values: Memory, x: int, y: int, swizzle_bytes: int) -> np.ndarray[Any, Any]:
    rows, columns = values.shape
    out = Memory(np.full((8, 32), np.nan, np.float32))
    it = Launcher(loaded(BOX, "box", 2048), ("tensor_map", "pointer", "int32", "int32"))
    encoded = encode_tensor_map(
        out.address, "f32", (columns, rows), (columns * 4,), (32, 8), swizzle_bytes
    )
    it.set_tensor_map(0, encoded)
    it.set_tensor_map_address(0, values.address)  # it was encoded for another tensor
    it.fill(out.address, x, y)
    it.launch(1, 32, 2048, 0)
    return out.numpy()


@pytest.mark.gpu
def test_a_box_is_copied_and_reads_as_zero_outside_the_tensor(gpu: Device) -> None:
    matrix = np.arange(1, 20 * 64 + 1, dtype=np.float32).reshape(20, 64)
    values = Memory(matrix)
    np.testing.assert_array_equal(boxed(values, 16, 4, 0), matrix[4:12, 16:48])
    expected = np.zeros((8, 32), np.float32)
    expected[:4, :16] = matrix[16:, 48:]
    np.testing.assert_array_equal(boxed(values, 48, 16, 0), expected)
    expected = np.zeros((8, 32), np.float32)
    expected[3:, 4:] = matrix[:5, :28]
    np.testing.assert_array_equal(boxed(values, -4, -3, 0), expected)


@pytest.mark.gpu
def test_a_swizzled_box_lies_as_the_swizzle_says(gpu: Device) -> None:
    matrix = np.arange(20 * 64, dtype=np.float32).reshape(20, 64)
    at = np.arange(8 * 32) * 4
    swizzled = (at ^ ((at >> 7) & 7) << 4) // 4
    found = boxed(Memory(matrix), 0, 0, 128).reshape(-1)
    np.testing.assert_array_equal(found[swizzled], matrix[:8, :32].reshape(-1))


@pytest.mark.gpu
def test_a_tensor_map_that_cannot_be_is_told_with_its_operands(gpu: Device) -> None:
    with pytest.raises(BackendError, match="encoding a tensor map failed") as caught:
        encode_tensor_map(4096, "bf16", (100, 100), (200,), (64, 64), 128)
    assert caught.value.operands["strides_bytes"] == (200,)
    for extents, strides in [((1024,), ()), ((64, 64, 2, 2, 2), (128, 8192, 16384, 32768))]:
        box = (64, 8, 1, 1, 1)[: len(extents)]
        assert len(encode_tensor_map(4096, "bf16", extents, strides, box, 128)) == 128
