"""What a target cannot do is refused with a sentence: memory, registers, threads, architectures, missing parts."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.runtime import cubin, driver, nvrtc
from tests.targets.compiling import CASES, matrix


def told(kernel, *args, **options) -> str:
    with pytest.raises(pk.KernelError) as caught:
        kernel.compile(*args, **options)
    return f"{caught.value}\n"


def copying(stages, side, **roles):
    """A kernel that copies tiles through a ring of `stages` squares; roles are given keyword arguments."""

    @pk.kernel
    def copy(x, y):
        ring = pk.pipeline(stages, pk.st(bf16, side, side))
        spare = pk.pipeline(1, pk.st(f32, 64, 64))
        tasks = pk.persistent(y.tiles(side, side))
        with pk.producer(**roles.get("producer", {})):
            for row, col in tasks:
                with ring.fill() as t:
                    pk.load_async(t, x[row, col])
        with pk.consumers(roles.get("groups", 1), **roles.get("consumers", {})):
            for row, col in tasks:
                with spare.fill() as t:
                    pk.store(t, pk.zeros(f32, 64, 64))
        with pk.storer():
            for row, col in tasks:
                with ring.drain() as t:
                    pk.store_async(y[row, col], t)
                with spare.drain() as t:
                    pass

    return copy


def test_too_much_shared_memory(golden):
    golden(
        "errors/too_much_shared_memory.txt",
        told(copying(2, 256), matrix(256, 256), matrix(256, 256)),
    )


def test_as_much_shared_memory_as_there_is():
    assert (
        copying(6, 128).compile(matrix(256, 256), matrix(256, 256)).resources.shared_bytes
        > 200 * 1024
    )


def test_register_budgets_that_cannot_be_met(golden):
    kernel = copying(2, 64, groups=3, consumers={"registers": 240})
    golden("errors/register_budgets.txt", told(kernel, matrix(64, 64), matrix(64, 64)))


def test_register_budgets_that_can_be_met():
    kernel = copying(2, 64, groups=2, consumers={"registers": 208}, producer={"registers": 32})
    assert nvrtc.performance_faults(kernel.compile(matrix(64, 64), matrix(64, 64)).log) == []


@pk.kernel
def shared_by_two(a, out):
    """Two blocks share a multiprocessor."""
    pk.resident(2)
    ring = pk.pipeline(3, pk.st(bf16, 128, 64))
    tasks = pk.persistent(out.tiles(128, 64))
    with pk.producer():
        for row, col in tasks:
            with ring.fill() as t:
                pk.load_async(t, a[row, col])
    with pk.consumers(1):
        for row, col in tasks:
            with ring.drain() as t:
                pk.store(out[row, col], pk.load(t))


@pk.kernel
def too_large_for_two(a, out):
    """Two blocks, each with the most bytes that one block may have."""
    pk.resident(2)
    pk.grid(1)
    ring = pk.pipeline(4, pk.st(bf16, 128, 128))
    with pk.producer(), ring.fill() as t:
        pk.load_async(t, a[0, 0])
    with pk.consumers(1), ring.drain() as t:
        pk.store(out[0, 0], pk.load(t))


def test_blocks_that_share_a_multiprocessor_have_their_part_of_its_registers():
    compiled = shared_by_two.compile(matrix(256, 256), matrix(256, 256))
    assert "__launch_bounds__(256, 2)" in compiled.source.program
    assert dict(compiled.source.budgets) == {"producer": 40, "consumers": 216}
    assert cubin.resources(compiled.cubin).registers <= 65536 // 512
    assert nvrtc.performance_faults(compiled.log) == []


def test_too_much_shared_memory_for_blocks_that_share_a_multiprocessor(golden):
    golden(
        "errors/too_much_shared_memory_for_two.txt",
        told(too_large_for_two, matrix(256, 256), matrix(256, 256)),
    )


def test_too_many_threads(golden):
    kernel = copying(2, 64, groups=8)
    golden("errors/too_many_threads.txt", told(kernel, matrix(64, 64), matrix(64, 64)))


def test_an_unknown_architecture(golden):
    case = CASES["add-f32"]
    golden("errors/unknown_architecture.txt", told(case.kernel, *case.args, arch="sm_75"))


class OnGpu:
    """An array that says it is in the memory of a GPU."""

    def __init__(self, shape=(64, 64), address=1 << 20):
        data = (address, False)
        self.__dict__["__cuda_array_interface__"] = {
            "shape": shape,
            "typestr": "<f4",
            "data": data,
            "version": 3,
        }

    __cuda_array_interface__ = property(lambda self: self.__dict__["__cuda_array_interface__"])


@pytest.mark.skipif(driver.available() is None, reason="there is a CUDA driver here")
def test_no_gpu_library(golden):
    arrays = [OnGpu(address=i << 20) for i in (1, 2, 3)]
    with pytest.raises(pk.KernelError) as caught:
        CASES["add-f32"].kernel(*arrays)
    golden("errors/no_gpu_library.txt", f"{caught.value}\n")


def test_no_compiler(golden, monkeypatch):
    monkeypatch.setattr(
        nvrtc, "available", lambda: "NVRTC was not found: pip install nvidia-cuda-nvrtc"
    )
    case = CASES["add-f32"]
    kernel = type(case.kernel)(case.kernel.function, case.kernel.options)
    golden("errors/no_compiler.txt", told(kernel, *case.args))


def test_arrays_on_two_devices(golden, monkeypatch):
    monkeypatch.setattr(driver, "device_of", lambda address: 0)
    host = np.zeros((64, 64), np.float32)
    with pytest.raises(pk.KernelError) as caught:
        CASES["add-f32"].kernel(host, host, OnGpu())
    golden("errors/two_devices.txt", f"{caught.value}\n")
