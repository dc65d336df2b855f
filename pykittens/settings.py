"""Every environment variable the package reads, in one table."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

from pykittens.errors import ArgumentError


@dataclass(frozen=True)
class Setting:
    """One environment variable: its name, its default and what it does."""

    variable: str
    default: str
    meaning: str

    def read(self) -> str:
        """The value in the environment now, or the default."""
        return os.environ.get(self.variable, self.default)


CACHE_DIR = Setting(
    "PYKITTENS_CACHE_DIR",
    "~/.cache/pykittens",
    "where compiled kernels are kept, and what tuning found",
)
NO_CACHE = Setting("PYKITTENS_NO_CACHE", "", "any text: compile anew, read and write no cache")
OVERLAP = Setting(
    "PYKITTENS_OVERLAP",
    "1",
    "`0`: a launch starts when the one before it has ended, also where the kernel says `pk.overlap()`",
)
SEED = Setting("PYKITTENS_SEED", "0", "seed of the emulator's scheduler")
DEBUG = Setting(
    "PYKITTENS_DEBUG", "", "`1`: launches on a GPU check waits, accesses and assertions"
)
DEBUG_SECONDS = Setting("PYKITTENS_DEBUG_SECONDS", "5", "how long a wait of such a launch may take")
TARGET = Setting(
    "PYKITTENS_TARGET", "", "a target whose programs are taken in place of the card's own"
)

SETTINGS = (CACHE_DIR, DEBUG, DEBUG_SECONDS, NO_CACHE, OVERLAP, SEED, TARGET)


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


# What every launch depends on is read once: a look at the environment costs a tenth of a launch.


@functools.cache
def target() -> str:
    """The name of the target whose programs are taken, empty for that of the card."""
    return TARGET.read()


@functools.cache
def debug() -> bool:
    """Whether every launch is one for debugging."""
    return DEBUG.read() not in ("", "0")


@functools.cache
def overlap() -> bool:
    """Whether launches may start before those before them have ended."""
    return OVERLAP.read() != "0"


@functools.cache
def debug_seconds() -> float:
    """How long a wait may take in a launch for debugging."""
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
