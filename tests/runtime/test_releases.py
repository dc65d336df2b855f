"""Of the NVRTC libraries on a machine, the newest whose code the driver loads compiles."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from pykittens.errors import BackendError
from pykittens.runtime import driver, launch, nvrtc, releases, toolkit
from tests.runtime.c_programs import build, compiled, fake_driver, needs_compiler
from tests.runtime.calling import scaled

Machine = Callable[..., list[str]]
pytestmark = needs_compiler
SOURCE = Path(__file__).with_name("fake_nvrtc.c")
BOTH = ("12.8", "13.5")


@pytest.fixture
def machine(
    fake: Path, forgetful: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Machine]:
    """`machine("13.0", "12.8", "13.5")`: a driver for CUDA 13.0 and two libraries; a driver of None is none."""
    monkeypatch.delenv("PYKITTENS_NVRTC", raising=False)

    def made(cuda: str | None, *versions: str) -> list[str]:
        paths = []
        for version in versions:
            major, minor = version.split(".")
            path = tmp_path / version / f"libnvrtc.so.{major}"
            path.parent.mkdir()
            build(*("-shared", "-fPIC", f"-DMAJOR={major}", f"-DMINOR={minor}"), "-o", path, SOURCE)
            paths.append(str(path))
        monkeypatch.setattr(toolkit, "nvrtc_libraries", lambda: iter(paths))
        if cuda is None:
            monkeypatch.setattr(driver, "_LIBRARY", "libcuda.so.none")
        else:
            major, minor = map(int, cuda.split("."))
            monkeypatch.setenv("FAKE_CUDA_VERSION", str(1000 * major + 10 * minor))
        return paths

    with fake_driver(monkeypatch, fake):
        yield made


@pytest.mark.parametrize(
    ("cuda", "versions", "number"),
    [
        ("12.0", BOTH, (12, 8)),
        ("12.8", BOTH, (12, 8)),
        ("12.9", ("12.8", "12.9", "13.0"), (12, 9)),
        ("12.8", ("12.8", "12.9"), (12, 9)),  # of the same major version any
        ("13.0", BOTH, (13, 5)),
        ("13.2", ("13.5", "13.0"), (13, 5)),
        ("13.2", ("12.9",), (12, 9)),
        ("14.0", BOTH, (13, 5)),
        (None, BOTH, (13, 5)),
    ],
)
def test_the_newest_that_the_driver_permits_compiles(
    machine: Machine, cuda: str | None, versions: tuple[str, ...], number: tuple[int, int]
) -> None:
    paths = machine(cuda, *versions)
    assert nvrtc.version() == number
    assert nvrtc.library_path() == paths[versions.index(".".join(map(str, number)))]
    releases.require_loadable()


def test_the_first_of_two_equal_libraries_compiles(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = machine("13.0", "13.0")
    (tmp_path / "link.so").symlink_to(path)
    (tmp_path / "copy.so").write_bytes(Path(path).read_bytes())
    twice = [str(tmp_path / name) for name in ("copy.so", "link.so")]
    monkeypatch.setattr(toolkit, "nvrtc_libraries", lambda: iter(twice))
    assert nvrtc.library_path() == str(tmp_path / "copy.so")
    assert [r.path for r in releases.releases()] == [str(tmp_path / "copy.so"), path]


@pytest.mark.parametrize("cuda", ["12.8", "12.9"])
def test_without_one_for_the_driver_kernels_are_compiled_and_not_launched(
    machine: Machine, cuda: str
) -> None:
    (path,) = machine(cuda, "13.5")
    assert nvrtc.available() is None
    assert nvrtc.version() == (13, 5)
    with pytest.raises(BackendError) as caught:
        releases.require_loadable()
    assert caught.value.message == (
        f"NVRTC 13.5 ({path}) is not for this driver: "
        f"the driver is for CUDA {cuda} and does not load what it compiles"
    )
    assert caught.value.help == (
        "pip install 'nvidia-cuda-nvrtc-cu12>=12.8', "
        "or update the driver to 580 or newer, for CUDA 13"
    )


def test_a_library_that_the_user_names_is_not_replaced(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = machine("12.8", "13.5")
    monkeypatch.setenv("PYKITTENS_NVRTC", path)
    with pytest.raises(BackendError, match="unset PYKITTENS_NVRTC, or update the driver to 580"):
        releases.require_loadable()


@pytest.mark.parametrize(
    ("cuda", "package"),
    [
        ("12.8", "nvidia-cuda-nvrtc-cu12>=12.8"),
        ("13.0", "nvidia-cuda-nvrtc>=13,<14"),
        (None, "nvidia-cuda-nvrtc>=13,<14"),
    ],
)
def test_a_missing_library_is_reported_with_the_command_for_the_driver(
    machine: Machine, cuda: str | None, package: str
) -> None:
    machine(cuda)
    assert nvrtc.available() == f"the NVRTC library was not found: pip install '{package}'"


def test_old_and_broken_libraries_are_passed_over_and_named(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, good = machine("13.0", "12.4", "12.9")
    broken = tmp_path / "libnvrtc.so.13"
    broken.write_text("no library")
    monkeypatch.setattr(toolkit, "nvrtc_libraries", lambda: iter([str(broken), old, good]))
    assert nvrtc.library_path() == good
    assert [(r.path, r.fault[:15]) for r in releases.releases()[1:]] == [
        (old, "is older than 1"),
        (str(broken), "cannot be loade"),
    ]
    releases.releases.cache_clear()
    releases.chosen.cache_clear()
    monkeypatch.setattr(toolkit, "nvrtc_libraries", lambda: iter([old]))
    assert str(nvrtc.available()).startswith(f"no NVRTC library can be used: {old} is older than")


def test_the_driver_is_asked_for_its_version_before_it_is_started(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that has only compiled can be forked and use the GPU afterwards."""
    machine("12.8", *BOTH)
    monkeypatch.setattr(driver, "_started", set())
    assert nvrtc.version() == (12, 8)
    assert driver._started == set()


def test_a_launch_is_refused_before_the_driver_gets_the_code(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.zeros((64, 64), np.float32)
    made = compiled(scaled, x, x, 2.0)
    monkeypatch.setenv("FAKE_CUDA_VERSION", "11080")
    monkeypatch.setattr(driver, "load", lambda *_: pytest.fail("loaded"))
    with (
        fake_driver(monkeypatch, fake),
        pytest.raises(BackendError, match="is not for this driver"),
    ):
        launch.Loaded(made.kernel, made, 0)


def test_a_name_that_the_loader_does_not_know_is_no_library(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("13.0")
    monkeypatch.setattr(toolkit, "NVRTC", ("libnvrtc-of-nobody.so",))
    monkeypatch.setattr(toolkit, "nvrtc_libraries", lambda: iter(toolkit.NVRTC))
    assert releases.releases() == ()


def test_a_library_without_the_functions_is_too_old(
    forgetful: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolkit, "nvrtc_libraries", lambda: ["libnvrtc.so.7"])
    monkeypatch.setattr(ctypes, "CDLL", lambda path: object())
    assert str(nvrtc.available()).startswith(
        "no NVRTC library can be used: libnvrtc.so.7 is older than 12.8: pip install"
    )


def test_a_library_that_the_user_names_and_that_is_none_is_reported(
    forgetful: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYKITTENS_NVRTC", "/nowhere/libnvrtc.so.13")
    assert str(nvrtc.available()).startswith("PYKITTENS_NVRTC names no NVRTC library")
    assert str(nvrtc.available()).endswith("set it to a file like libnvrtc.so.13")
