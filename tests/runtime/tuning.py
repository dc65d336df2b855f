"""A kernel whose configurations take the milliseconds of a table, on the clock of the stand-in for libcuda."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykittens.runtime.progress import Step
from pykittens.runtime.tune import remembered, tune

GPU = ("cuda", 0)
KEY = {"m": 4096, "n": 512, "dtype": "bf16"}


@dataclass(frozen=True)
class Rows:
    """A configuration: rows of a tile."""

    rows: int


class Work:
    """What a host function hands to the tuner. times: the milliseconds of a launch, or the error it raises."""

    def __init__(self, fake: Path, times: Mapping[int, float | Exception]) -> None:
        self.times = {Rows(rows): time for rows, time in times.items()}
        self.wrong: dict[Rows, str | Exception] = {}
        self.launches: list[int] = []
        self.checks: list[int] = []
        self.steps: list[Step] = []
        self._pass = ctypes.CDLL(str(fake)).fake_pass
        self._pass.argtypes, self._pass.restype = (ctypes.c_double,), None

    @property
    def candidates(self) -> list[Rows]:
        return list(self.times)

    def run(self, candidate: Rows) -> None:
        self.launches.append(candidate.rows)
        time = self.times[candidate]
        if isinstance(time, Exception):
            raise time
        self._pass(time)

    def check(self, candidate: Rows) -> str | None:
        self.checks.append(candidate.rows)
        reason = self.wrong.get(candidate)
        if isinstance(reason, Exception):
            raise reason
        return reason

    def tune(self, key: Mapping[str, Any] = KEY, **options: Any) -> int:
        """The rows of the configuration that is chosen."""
        chosen = tune(
            "product",
            key,
            self.candidates,
            self.run,
            self.check,
            **{"device": GPU, "kernels": (), "progress": self.steps.append, **options},
        )
        return chosen.rows

    def remembered(self, key: Mapping[str, Any] = KEY) -> int | None:
        """The rows of the configuration that is remembered."""
        found = remembered("product", key, self.candidates, GPU, ())
        return None if found is None else found.rows
