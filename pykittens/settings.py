"""All environment variables that the package reads, in one table."""

from __future__ import annotations

import functools
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pykittens.errors import ArgumentError


@dataclass(frozen=True)
class Setting:
    """An environment variable: its name, its default and its meaning."""

    variable: str
    default: str
    meaning: str

    def read(self) -> str:
        """The current value in the environment, or the default."""
        return os.environ.get(self.variable, self.default)


CACHE_DIR = Setting(
    "PYKITTENS_CACHE_DIR",
    "~/.cache/pykittens",
    "the folder of compiled kernels and tuning results",
)
CACHE_LIMIT = Setting(
    "PYKITTENS_CACHE_LIMIT",
    "1024",
    "the most MiB of compiled kernels in that folder; those used least recently are removed; `0`: no limit",
)
LOG = Setting(
    "PYKITTENS_LOG",
    "",
    "`1`: recordings, compilations, loads and the results of tuning are shown on standard error",
)
NO_CACHE = Setting("PYKITTENS_NO_CACHE", "", "any text: compile always, read and write no cache")
NVRTC = Setting("PYKITTENS_NVRTC", "", "the file of the NVRTC library that compiles kernels")
OVERLAP = Setting(
    "PYKITTENS_OVERLAP",
    "1",
    "`0`: a launch starts after the previous one has ended, even if the kernel calls `pk.overlap()`",
)
SEED = Setting("PYKITTENS_SEED", "0", "seed of the emulator's scheduler")
DEBUG = Setting(
    "PYKITTENS_DEBUG", "", "`1`: launches on a GPU check waits, accesses and assertions"
)
DEBUG_SECONDS = Setting(
    "PYKITTENS_DEBUG_SECONDS", "5", "the longest wait in such a launch, in seconds"
)
TARGET = Setting(
    "PYKITTENS_TARGET", "", "the target whose programs are used in place of the GPU's own"
)

SETTINGS = (
    CACHE_DIR,
    CACHE_LIMIT,
    DEBUG,
    DEBUG_SECONDS,
    LOG,
    NO_CACHE,
    NVRTC,
    OVERLAP,
    SEED,
    TARGET,
)


def cache_dir() -> Path:
    """The folder of compiled kernels, with `~` expanded; a user without a home has one among the temporary files."""
    given = CACHE_DIR.read()
    try:
        if os.environ.get("HOME") == "":
            raise RuntimeError("a home without a name")
        return Path(given or CACHE_DIR.default).expanduser()
    except RuntimeError:
        if given and not given.startswith("~"):
            return Path(given)
        if given not in ("", CACHE_DIR.default):
            raise ArgumentError(
                f"{CACHE_DIR.variable} must be a folder: there is no home for {given!r}"
            ) from None
        return Path(tempfile.gettempdir(), f"pykittens-{os.getuid() if os.name == 'posix' else ''}")


def cache_limit() -> int | None:
    """The most bytes of compiled kernels on disk, None for no limit."""
    text = CACHE_LIMIT.read() or CACHE_LIMIT.default
    try:
        limit = int(float(text) * 2**20)
    except (ValueError, OverflowError):
        limit = -1
    if limit < 0:
        raise ArgumentError(f"{CACHE_LIMIT.variable} must be a number of MiB, not {text!r}")
    return limit or None


def seed() -> int:
    """The seed of the emulator's scheduler."""
    text = SEED.read()
    try:
        return int(text)
    except ValueError:
        raise ArgumentError(f"{SEED.variable} must be an integer, not {text!r}") from None


# The settings of every launch are read once: reading the environment takes a tenth of the time of a launch.


@functools.cache
def target() -> str:
    """The name of the target whose programs are used, empty for the GPU's own."""
    return TARGET.read()


@functools.cache
def debug() -> bool:
    """Whether all launches are launches for debugging."""
    return DEBUG.read() not in ("", "0")


@functools.cache
def overlap() -> bool:
    """Whether a launch may start before the previous one has ended."""
    return OVERLAP.read() != "0"


@functools.cache
def debug_seconds() -> float:
    """The longest wait in a launch for debugging, in seconds."""
    text = DEBUG_SECONDS.read()
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise ArgumentError(
            f"{DEBUG_SECONDS.variable} must be a number of seconds above 0, not {text!r}"
        )
    return seconds
