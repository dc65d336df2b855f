"""What the tests of launching share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pykittens.runtime import driver, releases, tune, tuning_records
from pykittens.runtime.driver import Device
from tests.runtime.c_programs import Log, fake_driver
from tests.runtime.fake_gpu import fake, gpu_tensors
from tests.runtime.tuned_calls import TunedGpu
from tests.runtime.tuning import Work

__all__ = ["fake", "gpu_tensors"]


@pytest.fixture
def gpu() -> Iterator[Device]:
    device = driver.device(0)
    with device.current():
        yield device


@pytest.fixture
def forgetful() -> Iterator[None]:
    """The libraries of NVRTC are looked for again, in the test and after it."""
    remembered = (releases.releases, releases.chosen)
    for each in remembered:
        each.cache_clear()
    yield
    for each in remembered:
        each.cache_clear()


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setenv("FAKE_CUDA_LOG", str(tmp_path / "log"))
    return Log(tmp_path / "log")


@pytest.fixture
def work(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Work]]:
    """`work({64: 0.5, 128: 0.3})` is a kernel to tune on the stand-in for libcuda, with a memory of its own."""
    monkeypatch.setenv("PYKITTENS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("PYKITTENS_NO_CACHE", raising=False)
    monkeypatch.setattr(tuning_records, "_found", {})
    monkeypatch.setattr(tune, "_warned", set())
    with fake_driver(monkeypatch, fake):
        yield lambda times: Work(fake, times)


@pytest.fixture
def tuned_gpu(
    fake: Path, gpu_tensors: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> TunedGpu:
    """A GPU for kernels that are tuned, whose results of tuning are forgotten."""
    monkeypatch.setattr(tuning_records, "folder", lambda: tmp_path / "tuning")
    monkeypatch.setattr(tuning_records, "_found", {})
    monkeypatch.setattr(tune, "_warned", set())
    monkeypatch.delenv("PYKITTENS_NO_CACHE", raising=False)
    return TunedGpu(fake, monkeypatch)
