"""Figures of the benchmarks without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykittens.cli.arguments import load

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


def program(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A benchmark as a module, with the import path as it was afterwards."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return load(BENCHMARKS / f"{name}.py")


def by_letters(program: Any) -> Any:
    """The Bench of a benchmark: each contender is called, and takes so many milliseconds as its name has letters."""
    from protocol import Figure  # type: ignore[import-not-found]  # beside the program, once that is loaded

    def timed(contenders: dict[str, Any], buffers: int) -> list[Any]:
        for call in contenders.values():
            call(buffers - 1)
        return [Figure(name, (float(len(name)),)) for name in contenders]

    return program.Bench("burst", timed, device="cpu", count=lambda tensors: 1)
