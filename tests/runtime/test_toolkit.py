"""The compiler and its tools are found in wheels, in toolkits and beside PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pykittens.runtime import toolkit

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="names of Linux")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine whose only toolkits are in the folder that comes."""
    monkeypatch.setitem(sys.modules, "nvidia", None)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for variable in ("CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def touched(file: Path) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    return str(file)


def wheels(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python finds the wheels in `root`/nvidia."""
    monkeypatch.delitem(sys.modules, "nvidia")
    (root / "nvidia").mkdir(exist_ok=True)


def test_wheels_come_before_condas_and_installed_toolkits(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cuda_nvrtc", "cu13", "cu14"):
        (bare / "nvidia" / name).mkdir(parents=True)
    (bare / "conda" / "targets" / "x86_64-linux").mkdir(parents=True)
    wheels(bare, monkeypatch)
    monkeypatch.setenv("CONDA_PREFIX", str(bare / "conda"))
    monkeypatch.setenv("CUDA_HOME", str(bare / "home"))
    names = ["nvidia/cu14", "nvidia/cu13", "nvidia/cuda_nvrtc"]
    names += ["conda/targets/x86_64-linux", "conda/Library", "conda", "home"]
    assert toolkit.folders() == [*(bare / name for name in names), Path("/usr/local/cuda")]


@on_linux
def test_the_names_of_the_loader_come_before_files_and_pytorchs_is_last(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_HOME", str(bare / "home"))
    of_torch = touched(bare / "torch" / "lib" / "libnvrtc.so.12")
    of_home = touched(bare / "home" / "lib64" / "libnvrtc.so.13")
    older = touched(bare / "nvidia" / "cuda_nvrtc" / "lib" / "libnvrtc.so.12")
    newer = touched(bare / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13")
    wheels(bare, monkeypatch)
    found = [path for path in toolkit.nvrtc_libraries() if not path.startswith("/usr/local")]
    assert found == ["libnvrtc.so.13", "libnvrtc.so.12", newer, older, of_home, of_torch]


def test_a_library_that_the_user_names_is_the_only_candidate(bare, monkeypatch):
    touched(bare / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13")
    monkeypatch.setenv("PYKITTENS_NVRTC", "/opt/libnvrtc.so.13")
    assert list(toolkit.nvrtc_libraries()) == ["/opt/libnvrtc.so.13"]
