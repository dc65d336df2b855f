"""Every environment variable the package reads, in one table."""

from __future__ import annotations

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


CACHE_DIR = Setting("PYKITTENS_CACHE_DIR", "~/.cache/pykittens", "where compiled kernels are kept")
NO_CACHE = Setting("PYKITTENS_NO_CACHE", "", "any text: compile anew, read and write no cache")
SEED = Setting("PYKITTENS_SEED", "0", "seed of the emulator's scheduler")

SETTINGS = (CACHE_DIR, NO_CACHE, SEED)


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
