"""The checks of driver, GPU and PyTorch tell apart what is absent and what is broken."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest

from pykittens import settings
from pykittens.cli import doctor
from pykittens.cli.doctor import Diagnosis, Status
from pykittens.errors import BackendError
from pykittens.runtime import driver, nvrtc
from pykittens.runtime.driver import Device
from tests.runtime.c_programs import fake_driver, needs_compiler
from tests.runtime.fake_gpu import fake

__all__ = ["fake"]


def one(found) -> Diagnosis:
    (finding,) = list(found)
    return finding


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch):
    """A driver for CUDA 13.0; `machine(cards)` gives it GPUs of these capabilities."""
    monkeypatch.delenv(settings.TARGET.variable, raising=False)
    monkeypatch.setattr(driver, "library", lambda: None)
    monkeypatch.setattr(driver, "version", lambda: (13, 0))
    monkeypatch.setattr(driver, "release", lambda: "580.65.06")
    monkeypatch.setattr(driver, "memory_bytes", lambda ordinal: 141 * 2**30)

    def with_cards(*capabilities: tuple[int, int]) -> None:
        cards = [
            Device(n, f"card {n}", c, 132, 2**25, 232448, 1024, 4.8e12)
            for n, c in enumerate(capabilities)
        ]
        monkeypatch.setattr(driver, "device_count", lambda: len(cards))
        monkeypatch.setattr(driver, "device", lambda ordinal: cards[ordinal])
        monkeypatch.setattr(driver, "available", lambda: None if cards else "no GPU")

    with_cards()
    return with_cards


def fails(message: str):
    def library() -> None:
        raise BackendError(message, help="…")

    return library


@pytest.mark.parametrize(
    ("message", "has_file", "mark"),
    [
        ("the CUDA driver (libcuda.so.1) was not found", False, Status.OPTIONAL),
        ("the CUDA driver (libcuda.so.1) was not found", True, Status.WRONG),
        ("the CUDA driver does not start: CUDA_ERROR_NO_DEVICE: no …", True, Status.OPTIONAL),
        ("the CUDA driver does not start: CUDA_ERROR_UNKNOWN: …", True, Status.WRONG),
        ("the CUDA driver is older than CUDA 12", True, Status.WRONG),
    ],
)
def test_no_driver_is_no_fault_and_a_broken_one_is(
    message, has_file, mark, monkeypatch, tmp_path
) -> None:
    monkeypatch.setattr(driver, "library", fails(message))
    monkeypatch.setattr(doctor, "_DEVICE_FILE", tmp_path if has_file else Path("/nowhere"))
    found = one(doctor.gpu())
    assert found.status is mark
    assert bool(found.help) == (mark is Status.WRONG)


@pytest.mark.parametrize(
    ("cuda", "release", "mark", "text"),
    [
        ((13, 2), "595.10", Status.OK, "595.10, for CUDA 13.2 (12.0 or newer is needed)"),
        ((12, 8), None, Status.OK, "for CUDA 12.8 (12.0 or newer is needed)"),
        ((11, 8), "520.1", Status.WRONG, "520.1, for CUDA 11.8 is older than 12.0"),
    ],
)
def test_the_driver_is_told_with_its_version_and_that_of_cuda(
    cuda, release, mark, text, machine, monkeypatch
) -> None:
    monkeypatch.setattr(driver, "version", lambda: cuda)
    monkeypatch.setattr(driver, "release", lambda: release)
    found = next(iter(doctor.gpu()))
    assert (found.status, found.text) == (mark, text)
    assert found.help == ("update the driver to 525 or newer" if mark is Status.WRONG else "")


@needs_compiler
@pytest.mark.parametrize("cuda", [(12, 8), (12, 9), (13, 0), (13, 2), None])
def test_the_driver_is_read_from_its_libraries(cuda, fake, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(doctor, "_DEVICE_FILE", tmp_path / "none")
    monkeypatch.setattr(driver, "_MANAGEMENT", "libnvidia-ml.so.none")
    with fake_driver(monkeypatch, fake):
        if cuda is None:
            monkeypatch.setattr(driver, "_LIBRARY", "libcuda.so.none")
            assert one(doctor.gpu()).status is Status.OPTIONAL
            return
        monkeypatch.setenv("FAKE_CUDA_VERSION", str(1000 * cuda[0] + 10 * cuda[1]))
        found, gpu = doctor.gpu()
    assert found.text == f"for CUDA {cuda[0]}.{cuda[1]} (12.0 or newer is needed)"
    assert gpu.status is Status.OK


def test_a_driver_without_a_gpu_is_no_fault(machine) -> None:
    assert [f.status for f in doctor.gpu()] == [Status.OK, Status.OPTIONAL]


def test_every_gpu_is_told_with_the_target_that_serves_it(machine) -> None:
    machine((9, 0), (8, 0), (8, 6), (7, 5))
    hopper, ampere, small, old = list(doctor.gpu())[1:]
    assert hopper == Diagnosis(
        "GPU 0", Status.OK, "card 0, sm_90a, 141 GiB, served by the target sm_90a"
    )
    assert ampere.text == "card 1, sm_80, 141 GiB, served by the target sm_80"
    assert small.text == "card 2, sm_86, 141 GiB, served by the target sm_80"
    assert old.status is Status.OPTIONAL
    assert "no target for the architecture 'sm_75'" in old.text


def stub(version: str, available: bool) -> types.ModuleType:
    module = types.ModuleType("torch")
    module.__dict__.update(
        __version__=version,
        version=types.SimpleNamespace(cuda="13.0"),
        cuda=types.SimpleNamespace(is_available=lambda: available),
    )
    return module


@pytest.mark.parametrize(
    ("cards", "available", "mark", "text"),
    [
        ([(9, 0)], True, Status.OK, "2.9.0 with CUDA 13.0 (2.9 or newer is needed)"),
        ([(9, 0)], False, Status.WRONG, "2.9.0, built for CUDA 13.0, cannot use the GPU"),
        ([], False, Status.OK, "2.9.0, on the CPU (2.9 or newer is needed)"),
    ],
)
def test_pytorch_without_cuda_is_wrong_only_beside_a_gpu(
    cards, available, mark, text, machine, monkeypatch
) -> None:
    machine(*cards)
    monkeypatch.setitem(sys.modules, "torch", stub("2.9.0", available))
    found = one(doctor.torch())
    assert (found.status, found.text) == (mark, text)


def test_an_old_pytorch_is_wrong(machine, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", stub("2.8.1+cu128", True))
    found = one(doctor.torch())
    assert (found.status, found.help) == (Status.WRONG, "pip install 'torch>=2.9'")
    assert found.text == "2.8.1+cu128 with CUDA 13.0 is older than 2.9"


def test_a_missing_pytorch_is_no_fault_and_a_broken_one_is(machine, monkeypatch, tmp_path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert one(doctor.torch()).help == ""
    machine((9, 0))
    found = one(doctor.torch())
    assert (found.status, found.help) == (Status.OPTIONAL, "pip install torch")
    (tmp_path / "torch.py").write_text("import torch_needs_what_is_not_here\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch")
    assert one(doctor.torch()).status is Status.WRONG


class OnTheCpu:
    """A tensor that stays where it is."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def cuda(self) -> OnTheCpu:
        return self

    cpu = cuda

    def numpy(self) -> np.ndarray:
        return self.array


def exact(x: OnTheCpu, y: OnTheCpu) -> None:
    y.array[:] = x.array - x.array.max(axis=1, keepdims=True)


def off_by_one_place(x: OnTheCpu, y: OnTheCpu) -> None:
    exact(x, y)
    y.array[-1] = np.roll(y.array[-1], 1)


def refuses(x: OnTheCpu, y: OnTheCpu) -> None:
    raise BackendError("loading centred failed: CUDA_ERROR_INVALID_IMAGE", help="update it")


@pytest.mark.parametrize(
    ("kernel", "mark"),
    [(exact, Status.OK), (off_by_one_place, Status.WRONG), (refuses, Status.WRONG)],
)
def test_a_kernel_is_launched_and_its_result_compared(kernel, mark, machine, monkeypatch) -> None:
    machine((9, 0))
    module = stub("2.9.0", True)
    module.from_numpy = OnTheCpu
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(nvrtc, "available", lambda: None)
    monkeypatch.setattr(doctor, "centred", kernel)
    found = one(doctor.launch())
    assert (found.name, found.status) == ("launch", mark)


def test_nothing_is_launched_without_a_gpu(machine, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", stub("2.9.0", True))
    assert list(doctor.launch()) == []


@pytest.mark.gpu
def test_a_kernel_runs_on_the_gpu_of_this_machine() -> None:
    pytest.importorskip("torch")
    assert one(doctor.launch()) == Diagnosis("launch", Status.OK, "a kernel ran right on GPU 0")
