"""The driver says what the GPU is, loads what it can run and refuses the rest in sentences."""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path

import pytest

from pykittens.errors import BackendError, ResourceError
from pykittens.runtime import driver, nvrtc
from pykittens.runtime.driver import Device
from tests.runtime.c_programs import fake_driver, needs_compiler
from tests.runtime.device import AXPY, MIRROR, loaded, raw


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


@needs_compiler
def test_a_failure_in_a_forked_process_says_that_it_was_forked(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_driver(monkeypatch, fake):
        driver.library()
        with pytest.raises(BackendError, match="^launching k failed: CUDA error 3\n"):
            driver.check(3, "launching k")
        parent = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: parent + 1)
        with pytest.raises(BackendError, match="was forked from one that used CUDA") as caught:
            driver.check(3, "launching k")
    assert "spawn" in str(caught.value)


@needs_compiler
def test_a_driver_that_another_library_started_before_a_fork_says_that_it_was_forked(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_started", set())  # PyTorch alone has used CUDA
    monkeypatch.setenv("FAKE_CUDA_INIT", "3")
    sentence = "starting the CUDA driver failed: this process was forked from one that used CUDA"
    with fake_driver(monkeypatch, fake):
        assert (driver.available() or "").startswith(sentence)
        with pytest.raises(BackendError, match=sentence) as caught:
            driver.device_of(1)
    assert "spawn" in str(caught.value)


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
def test_what_is_no_cubin_is_refused(gpu: Device) -> None:
    with pytest.raises(BackendError, match="loading k failed: CUDA_ERROR_"):
        driver.load(b"no cubin at all", "k", 0)


@pytest.mark.gpu
def test_a_kernel_that_a_cubin_lacks_is_refused(gpu: Device) -> None:
    cubin = nvrtc.compile(AXPY, gpu.arch, "axpy.cu").cubin
    with pytest.raises(BackendError, match="finding axby failed: CUDA_ERROR_NOT_FOUND"):
        driver.load(cubin, "axby", 0)


@pytest.mark.gpu
def test_more_shared_memory_than_there_is_is_refused(gpu: Device) -> None:
    limit = gpu.shared_bytes_per_block_optin
    with pytest.raises(ResourceError, match=f"needs {limit + 1} bytes of shared memory per block"):
        loaded(MIRROR, "mirror", limit + 1)


@pytest.mark.gpu
def test_a_capturing_stream_is_known(gpu: Device) -> None:
    stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
    assert raw("cuStreamCreate", ctypes.byref(stream), 1) == 0
    assert not driver.stream_is_capturing(stream.value or 0, 0)
    assert raw("cuStreamBeginCapture_v2", stream, 2) == 0
    assert driver.stream_is_capturing(stream.value or 0, 0)
    assert raw("cuStreamEndCapture", stream, ctypes.byref(graph)) == 0
    assert not driver.stream_is_capturing(stream.value or 0, 0)
    assert raw("cuStreamDestroy_v2", stream) == 0
