"""The releases of NVRTC on this machine, and the one that compiles: the newest that the driver's CUDA permits.

A driver loads machine code of its own major version of CUDA and of those before, whatever the minor versions (NVIDIA,
"CUDA Compatibility", Minor Version Compatibility). PTX of a newer minor version it would refuse; none is loaded.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from dataclasses import dataclass

from pykittens import settings
from pykittens.errors import BackendError
from pykittens.runtime import compiler, driver, least, toolkit


@dataclass(frozen=True)
class Release:
    """An NVRTC library: its file, its version, and why it cannot be used; the version is (0, 0) if it is unknown."""

    path: str
    version: tuple[int, int] = (0, 0)
    fault: str = ""
    library: ctypes.CDLL | None = None

    def __str__(self) -> str:
        return f"NVRTC {least.shown(self.version)} ({self.path})"


@functools.cache
def releases() -> tuple[Release, ...]:
    """The libraries on this machine: the usable ones first, newest first; of equal ones the first that was found."""
    found: dict[str, Release] = {}
    for release in _candidates():
        found.setdefault(release.path, release)
    return tuple(sorted(found.values(), key=lambda r: (not r.fault, r.version), reverse=True))


def _candidates() -> Iterator[Release]:
    given = settings.NVRTC.read()
    for path in toolkit.nvrtc_libraries():
        try:
            nvrtc = compiler.load(path)
            version = compiler.version(nvrtc)
        except (OSError, compiler.Failure) as error:
            if path not in toolkit.NVRTC or given:  # the loader may not know a name
                yield Release(path, fault=f"cannot be loaded: {error}")
        except AttributeError:
            yield Release(path, fault=f"is older than {least.shown(least.NVRTC)}")
        else:
            old = version < least.NVRTC
            fault = f"is older than {least.shown(least.NVRTC)}" if old else ""
            yield Release(compiler.file_of(nvrtc, path), version, fault, nvrtc)


@functools.cache
def chosen() -> Release:
    """The release that compiles; if the driver loads the code of none, the newest, with which no kernel is launched."""
    usable = [release for release in releases() if not release.fault]
    if usable:
        return next((r for r in usable if refusal(r) is None), usable[0])
    given = settings.NVRTC.read()
    faults = "; ".join(f"{release.path} {release.fault}" for release in releases())
    if given:
        raise BackendError(
            f"{settings.NVRTC.variable} names no NVRTC library that can be used: {faults}",
            help=f"unset {settings.NVRTC.variable}, or set it to a file like libnvrtc.so.13",
        )
    message = (
        f"no NVRTC library can be used: {faults}" if faults else "the NVRTC library was not found"
    )
    raise BackendError(message, help=install())


def refusal(release: Release) -> str | None:
    """Why the driver does not load what a release compiles; None if it does, or if there is no driver."""
    cuda = driver_cuda()
    if cuda is None or release.version[0] <= cuda[0]:
        return None
    return f"the driver is for CUDA {least.shown(cuda)} and does not load what it compiles"


def require_loadable() -> None:
    """Raise BackendError if the driver does not load what the chosen release compiles."""
    if (reason := refusal(chosen())) is not None:
        raise BackendError(f"{chosen()} is not for this driver: {reason}", help=remedy())


def remedy() -> str:
    """What makes up for a release that is too new for the driver."""
    major = chosen().version[0]
    update = f"update the driver to {least.DRIVERS.get(major, 'one')} or newer, for CUDA {major}"
    if settings.NVRTC.read():
        return f"unset {settings.NVRTC.variable}, or {update}"
    return f"{install()}, or {update}"


def install() -> str:
    """The command that installs a release for the driver of this machine."""
    cuda = driver_cuda()
    if cuda is not None and cuda[0] < 13:
        return f"pip install 'nvidia-cuda-nvrtc-cu12>={least.shown(least.NVRTC)}'"
    return "pip install 'nvidia-cuda-nvrtc>=13,<14'"


def driver_cuda() -> tuple[int, int] | None:
    """The version of CUDA that the driver is for; None if there is no driver that works."""
    try:
        return driver.version()
    except BackendError:
        return None
