"""Launches are packed in place, refused in sentences, and right on a GPU where there is one."""

from __future__ import annotations

import ctypes
import struct
import threading
from typing import Any

import numpy as np
import pytest

from pykittens.errors import ArgumentError, BackendError
from pykittens.runtime import driver
from pykittens.runtime.driver import Device, Function
from pykittens.runtime.launcher import Launcher, SlotKind
from tests.runtime.device import AXPY, AXPY_SLOTS, MIRROR, Memory, loaded

MAP = bytes(range(128))
_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)


class FakeDriver:
    """Stands in for libcuda: keeps what a launch was given, and fails when told to."""

    def __init__(self) -> None:
        self.codes: list[int] = []  # of the next launches
        self.launches: list[tuple[int, ...]] = []
        self.parameters: list[int] = []
        self.attributes = b""  # of the last launch
        self.current = 0
        self.replaced: list[tuple[int, int]] = []
        self.cuLaunchKernelEx = _LAUNCH(self._launch)

    def _launch(self, config: int, handle: int, parameters: int, extra: None) -> int:
        if self.codes:
            return self.codes.pop(0)
        words = struct.unpack("@7IQQI", ctypes.string_at(config, 52))
        self.attributes = ctypes.string_at(words[8], 72 * words[9]) if words[8] else b""
        self.launches.append((handle, self.current, *words))
        self.parameters = [ctypes.c_uint64.from_address(parameters + 8 * i).value for i in range(8)]
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


def launcher(*slots: SlotKind, block: int = 32, shared: int = 0, **how: bool) -> Launcher:
    gpu = Device(0, "a GPU", (9, 0), 132, 50 << 20, 232448, 1024, 4.8e12)
    return Launcher(Function(0xF00D_0000_0001, "add", gpu), slots, block, shared, **how)


def launch(it: Launcher, grid: int) -> None:
    it.fill([0], grid)
    it.launch()


def read(fake: FakeDriver, i: int, code: str) -> Any:
    """The value of parameter `i` of the last launch."""
    data = ctypes.string_at(fake.parameters[i], struct.calcsize(code))
    return struct.unpack(code, data)[0]


def test_every_kind_of_parameter_reaches_the_launch(fake: FakeDriver) -> None:
    it = launcher(
        *("int32", "tensor_map", "pointer", "bool", "tensor_map", "int64", "float32", "int32"),
        block=384,
        shared=213056,
    )
    it.set_tensor_map(1, MAP)
    it.set_tensor_map(4, bytes(reversed(MAP)))
    it.fill([-5, 0xDEAD_BEEF_0000_0000, True, -(2**40), 1.5, 7], 132, 0x7FFF_0000_1000)
    it.launch()
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
    it.launch()
    alignments = [1, 64, 8, 1, 4, 64, 1, 8]
    assert [at % by for at, by in zip(fake.parameters, alignments, strict=True)] == [0] * 8


def test_single_values_are_set_in_place(fake: FakeDriver) -> None:
    it = launcher("pointer", "int32", "float32", "bool", "int64")
    it.fill([1, 2, 3.0, False, 5])
    it.set_value(0, 2**63)
    it.set_value(1, -(2**31))
    it.set_value(2, 0.25)
    it.set_value(3, True)
    it.launch()
    values = [read(fake, i, code) for i, code in enumerate("Qif?q")]
    assert values == [2**63, -(2**31), 0.25, True, 5]


def test_numpy_scalars_are_values(fake: FakeDriver) -> None:
    it = launcher("int32", "float32", "bool")
    it.fill([np.int64(3), np.float32(0.5), np.bool_(True)])
    it.launch()
    assert [read(fake, i, code) for i, code in enumerate("if?")] == [3, 0.5, True]


@pytest.mark.parametrize(
    ("slot", "value"),
    [("int32", 2**31), ("int32", -(2**31) - 1), ("int64", 2**63), ("pointer", -1)],
)
def test_an_integer_out_of_range_is_refused(fake: FakeDriver, slot: SlotKind, value: int) -> None:
    it = launcher("pointer", slot)
    message = f"{value} does not fit parameter 1 of add, which is {slot}"
    with pytest.raises(ArgumentError, match=message):
        it.fill([0, value])
    with pytest.raises(ArgumentError, match=message):
        it.set_value(1, value)


def test_a_float_is_rounded_to_f32(fake: FakeDriver) -> None:
    it = launcher("float32", "float32", "float32")
    it.fill([0.1, 1e300, -1e39])
    it.launch()
    infinite = float("inf")
    assert [read(fake, i, "f") for i in range(3)] == [float(np.float32(0.1)), infinite, -infinite]


def test_a_float_that_struct_refuses_is_infinite(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = launcher("float32", "int32")

    def refuse(*_: object) -> None:
        raise OverflowError("float too large to pack with f format")

    monkeypatch.setattr(it, "_pack", refuse)
    it.fill([1e300, 7])
    it.launch()
    assert (read(fake, 0, "f"), read(fake, 1, "i")) == (float("inf"), 7)


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


@pytest.mark.parametrize(
    ("how", "attribute"),
    [
        ({"overlaps": True}, 6),  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        ({"cooperative": True}, 2),  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        ({"overlaps": True, "cooperative": True}, 2),
    ],
)
def test_a_launch_has_its_attribute_every_time(
    fake: FakeDriver, how: dict[str, bool], attribute: int
) -> None:
    it = launcher("int32", **how)
    for grid in (1, 2):
        fake.attributes = b""
        launch(it, grid)
        # the attribute, and 1 at the start of a union of 64 bytes
        assert struct.unpack("@i4xi60x", fake.attributes) == (attribute, 1)
    launch(launcher("int32"), 1)
    assert fake.attributes == b""


def test_no_blocks_are_no_launch(fake: FakeDriver) -> None:
    launch(launcher("int32"), 0)
    assert fake.launches == []


@pytest.mark.parametrize("code", [201, 400])
def test_a_thread_without_the_context_launches_within_it(fake: FakeDriver, code: int) -> None:
    fake.codes = [code]
    launch(launcher("int32"), 2)
    ((_, context, grid, *_),) = fake.launches
    assert (context, grid) == (0x1234_5678_9ABC, 2)
    assert fake.current == 0


@pytest.mark.parametrize("codes", [[1], [201, 201]])
def test_a_refused_launch_is_told_with_its_size(fake: FakeDriver, codes: list[int]) -> None:
    fake.codes = list(codes)
    with pytest.raises(BackendError, match="launching add with 2 blocks of 128 threads") as caught:
        launch(launcher("int32", block=128, shared=64), 2)
    text = {1: "CUDA_ERROR_INVALID_VALUE: invalid argument", 201: "CUDA_ERROR_INVALID_CONTEXT"}
    assert text[codes[0]] in caught.value.message


@pytest.mark.gpu
def test_a_kernel_runs_with_every_kind_of_value(gpu: Device) -> None:
    y, x = Memory(np.ones(1000, np.float32)), Memory(np.arange(1000, dtype=np.float32))
    it = Launcher(loaded(AXPY, "axpy"), AXPY_SLOTS, 128)
    it.fill([y.address, 999, x.address, 0.5, True, -(2**40)], 8)
    it.launch()
    expected = np.arange(1000, dtype=np.float32) + 101
    expected[999] = 1
    np.testing.assert_array_equal(y.numpy(), expected)
    assert driver.device_of(y.address) == 0


@pytest.mark.gpu
def test_threads_without_a_context_share_a_launcher(gpu: Device) -> None:
    it, lock = Launcher(loaded(AXPY, "axpy"), AXPY_SLOTS, 64), threading.Lock()
    x = Memory(np.ones(64, np.float32))
    outputs = [Memory(np.zeros(64, np.float32)) for _ in range(4)]
    faults: list[BaseException] = []

    def work(index: int) -> None:
        try:
            for _ in range(100):
                with lock:
                    it.fill([outputs[index].address, 64, x.address, float(index), False, 0])
                    it.launch()
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
    it = Launcher(loaded(AXPY, "axpy"), AXPY_SLOTS, 2048)
    with pytest.raises(BackendError, match="1 blocks of 2048 threads.*CUDA_ERROR_INVALID_VALUE"):
        it.launch()


@pytest.mark.gpu
def test_dynamic_shared_memory_is_allowed_up_to_the_limit(gpu: Device) -> None:
    limit = gpu.shared_bytes_per_block_optin
    function = loaded(MIRROR, "mirror", limit)
    values = Memory(np.arange(40000, dtype=np.float32))
    it = Launcher(function, ("pointer",), 256, limit)
    it.fill([values.address])
    it.launch()
    np.testing.assert_array_equal(values.numpy(), np.arange(40000, dtype=np.float32)[::-1])
    assert function.occupancy(256, limit) == 1
    assert function.occupancy(256, 1024) > 1


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
    it = Launcher(loaded(CLUSTER, "ranks"), ("pointer",), 32)
    it.fill([out.address], 6)
    it.launch()
    np.testing.assert_array_equal(out.numpy(), [0, 1, 0, 1, 0, 1])
