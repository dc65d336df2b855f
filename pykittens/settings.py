"""All environment variables that the package reads, in one table."""

from __future__ import annotations

import functools
import os
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

SETTINGS = (CACHE_DIR, DEBUG, DEBUG_SECONDS, NO_CACHE, NVRTC, OVERLAP, SEED, TARGET)


def cache_dir() -> Path:
    """The folder of compiled kernels, with `~` expanded."""
    return Path(CACHE_DIR.read()).expanduser()


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
