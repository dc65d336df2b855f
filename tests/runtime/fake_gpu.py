"""The stand-in for the driver as fixtures, and tensors that say they were on its GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.c_programs import fake_driver, fake_library

STREAM = 0x5EA


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_library(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def gpu_tensors(fake: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tensors that say they were on a GPU, and the stand-in for its driver."""
    torch = pytest.importorskip("torch")
    place = torch.device("cuda", 0)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda self: 0)
    monkeypatch.setattr(torch.Tensor, "device", property(lambda self: place))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda i: STREAM, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    guards = torch._C._dynamo.guards
    monkeypatch.setattr(guards, "_empty_strided_cuda", guards._empty_strided_cpu)
    with fake_driver(monkeypatch, fake):
        yield
