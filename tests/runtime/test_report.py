"""A launch for debugging waits, reads what the GPU wrote and raises it; and it is told as the emulator tells it."""

from __future__ import annotations

import ctypes
import struct
import threading
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import AccessError, AssertError, BackendError, DeadlockError
from pykittens.runtime import driver, report
from pykittens.runtime.arguments import check, known_values
from pykittens.runtime.driver import Device, Function
from pykittens.runtime.launch import launch_of, most_blocks
from pykittens.targets.emit import emit
from tests import debugging
from tests.debugging import fault, program, site_of
from tests.runtime.test_launcher import FakeDriver

F32 = np.dtype(np.float32)


class FakeGpu(FakeDriver):
    """A driver whose launches write a report, or fail, when they are waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: bytes | None = None
        self.code = 0
        self.captures = False
        self.memory: Any = None
        self.waited: list[int] = []

    def cuMemHostAlloc(self, host: Any, size: int, flags: int) -> int:
        assert (size, flags) == (report.BYTES, 3)
        self.memory = ctypes.create_string_buffer(b"\xff" * size, size)
        host._obj.value = ctypes.addressof(self.memory)
        return 0

    def cuMemHostGetDevicePointer_v2(self, there: Any, host: Any, flags: int) -> int:
        there._obj.value = 0xD0_0000
        return 0

    def cuStreamIsCapturing(self, stream: int, status: Any) -> int:
        status._obj.value = int(self.captures)
        return 0

    def cuStreamSynchronize(self, stream: int) -> int:
        self.waited.append(stream)
        if self.writes is not None:
            ctypes.memmove(self.memory, self.writes, report.BYTES)
        return self.code


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    fake = FakeGpu()
    device = Device(0, "a GPU", (9, 0), 132, 50 << 20, 232448, 1024, 4.8e12)
    monkeypatch.setattr(driver, "library", lambda: fake)
    monkeypatch.setattr(driver, "device", lambda ordinal: device)
    report.report_of.cache_clear()
    yield fake
    report.report_of.cache_clear()


X = np.zeros((4, 64, 32), F32)


def plan(kernel: Any, *args: Any) -> tuple[Any, Any]:
    """The plan of a launch for debugging, and its program."""
    arguments = check(kernel.parameters, args, {})
    made = kernel.record(arguments)
    source = emit(made, "sm_90a", debug=True)
    kinds = {"pointer": "pointer", "stride": "int64", "extent": "int32"}
    loaded: Any = SimpleNamespace(
        kernel=made,
        source=source,
        function=Function(0xF00D, source.name, driver.device(0)),
        slots=[*(kinds[slot.kind] for slot in source.slots), "pointer", "int64"],
        blocks_at_once=132,
        overlaps=source.overlaps,
        cooperative=False,
        most_blocks=most_blocks(made, 132),
    )
    return launch_of(loaded, arguments, known_values(made, arguments)), source


def test_a_launch_for_debugging_waits_for_its_end(gpu: FakeGpu) -> None:
    made, _ = plan(debugging.leading_index, X, X.copy())
    made.launch((0x10000, 0x20000, 77))
    assert gpu.waited == [77]
    assert len(gpu.launches) == 1
    assert made.loaded.slots[-2:] == ["pointer", "int64"]
    assert made.further == (0xD0_0000, 5_000_000_000)
    it = made._shared
    assert struct.unpack_from("@Qq", it._memory, it._offsets[-2]) == made.further


def test_what_the_gpu_wrote_is_raised(gpu: FakeGpu) -> None:
    made, source = plan(debugging.leading_index, X, X.copy())
    gpu.writes = debugging.report(site_of(source, "`x`"), 3, 9, (4,), [])
    gpu.code = 1
    with pytest.raises(
        AccessError, match=r"index 4 of axis 0 is outside `x`, whose shape is \(4, "
    ):
        made.launch((0x10000, 0x20000, 0))
    gpu.writes, gpu.code = None, 0
    made.launch((0x10000, 0x20000, 0))  # an old report is not read again


def test_a_gpu_that_stops_without_a_report_is_told(gpu: FakeGpu) -> None:
    made, _ = plan(debugging.leading_index, X, X.copy())
    gpu.code = 1
    with pytest.raises(
        BackendError, match="no check of the kernel reported why: CUDA_ERROR_INVALID"
    ):
        made.launch((0x10000, 0x20000, 0))


def test_a_launch_for_debugging_is_not_captured(gpu: FakeGpu) -> None:
    made, _ = plan(debugging.leading_index, X, X.copy())
    gpu.captures = True
    with pytest.raises(BackendError, match="a CUDA graph is captured"):
        made.launch((0x10000, 0x20000, 0))
    assert gpu.launches == []


def test_threads_share_the_one_report(gpu: FakeGpu) -> None:
    made, _ = plan(debugging.leading_index, X, X.copy())
    gpu_waits, goes_on = threading.Event(), threading.Event()
    wait = gpu.cuStreamSynchronize

    def slow(stream: int) -> int:
        gpu_waits.set()
        assert goes_on.wait(10)
        return wait(stream)

    gpu.cuStreamSynchronize = slow  # type: ignore[method-assign]
    threads = [threading.Thread(target=made.launch, args=((0x10000, 0x20000, s),)) for s in (1, 2)]
    for thread in threads:
        thread.start()
    assert gpu_waits.wait(10)
    assert len(gpu.launches) == 1
    goes_on.set()
    for thread in threads:
        thread.join()
    assert sorted(gpu.waited) == [1, 2]


def test_a_report_that_nobody_wrote_tells_nothing() -> None:
    assert report.decoded(bytes(report.BYTES)) is None


def test_a_thread_of_no_group_is_told_by_its_block() -> None:
    args = np.zeros((128, 192), ml_dtypes.bfloat16), np.zeros((128, 64), F32)
    source = program(debugging.never_full, *args)
    stop = report.Stop(site_of(source, "inputs.fill()"), 6, 127, (1, 0), ((0,) * 8,) * 3)
    message = str(report.error_of(stop, source, {}))
    assert "deadlock: a thread of block 6 has waited" in message
    assert message.count(" : runs") == 3


def bf16(*shape: int) -> Any:
    return np.zeros(shape, ml_dtypes.bfloat16)


def f32(*shape: int) -> Any:
    return np.full(shape, 3, F32)


def int32(*shape: int) -> Any:
    return np.zeros(shape, np.int32)


# A kernel, its arguments, the site that stops it on a GPU and the numbers told there.
ALIKE = [
    (debugging.flag_outside, (int32(2, 3), 3), "is outside", (0, 3)),
    (debugging.leading_index, (f32(1, 64, 32), f32(1, 64, 32)), "`x`", (1,)),
    (debugging.leading_index_of_a_copy, (f32(1, 64, 32), f32(1, 64, 32)), "`x`", (-1,)),
    (debugging.leading_index_of_a_scalar, (int32(2, 4, 4), int32(64, 64)), "lengths", (2,)),
    (debugging.index_of_a_view, (f32(64, 1, 32), f32(64, 1)), "`x`", (1,)),
    (debugging.flag_outside_a_column, (int32(2, 3), 2), "] is outside", (2, 1)),
    (debugging.leading_index_of_a_window, (f32(4, 64, 64), f32(64, 64), 3), "of `x`", (2, 1, 3)),
    (debugging.far_coordinate, (f32(64, 64), f32(64, 64), 2**30), "overflows", (2**36,)),
    (debugging.view_outside, (f32(64, 64), 2), "part (", (2, 0)),
    (debugging.row_outside, (f32(1, 64), 16), "row {0}", (16,)),
    (debugging.semaphore_outside, (f32(1, 8), 3), "of `full`", (3,)),
    (debugging.untrue_scalar, (f32(4, 8), 2), "is too large", ()),
    (debugging.untrue_tile, (f32(128, 64), f32(128, 64)), "less than three", (0, 0)),
]


@pytest.mark.parametrize(
    ("kernel", "args", "text", "numbers"), ALIKE, ids=lambda x: getattr(x, "__name__", "")
)
def test_a_fault_is_told_as_the_emulator_tells_it(
    kernel: Any, args: Any, text: str, numbers: Any
) -> None:
    with pytest.raises(pk.KernelError) as caught:
        kernel.debug(*args)
    shapes = {
        p: a.shape
        for p, a in zip(kernel.parameters.positional, args, strict=True)
        if hasattr(a, "shape")
    }
    told = fault(program(kernel, *args), text, *numbers, shapes=shapes)
    assert type(told) is type(caught.value)
    assert isinstance(told, AccessError | AssertError)
    assert told.message == caught.value.message
    assert told.loc == caught.value.loc


WAITS = [
    (debugging.never_full, (bf16(128, 192), f32(128, 64)), "inputs.drain()", (1, 1)),
    (debugging.wrong_phase, (bf16(64, 64), f32(64, 64)), "of full[{1}]", (1, 1)),
    (debugging.turns_kept, (int32(2),), "the turn of", (1,)),
    (debugging.never_signalled, (int32(2, 3),), "to be at least", (1, 2, 4, 3)),
]


@pytest.mark.parametrize(
    ("kernel", "args", "text", "numbers"), WAITS, ids=lambda x: getattr(x, "__name__", "")
)
def test_a_wait_without_an_end_is_told_as_the_emulator_tells_it(
    kernel: Any, args: Any, text: str, numbers: Any
) -> None:
    with pytest.raises(DeadlockError) as caught:
        kernel(*args)
    source = program(kernel, *args)
    thread = source.groups[-1].first_warp * 32
    told = fault(
        source, text, *numbers, thread=thread, standing=((-1,),) * (len(source.groups) - 1)
    )
    *_, (_, here) = told.operands.items()
    *_, (_, there, _) = caught.value.waits
    start = str(here).rpartition(", phase")[0] or str(here)
    assert there.startswith(start)
    assert told.loc == caught.value.loc
