"""Figures of the benchmarks without a GPU."""

from __future__ import annotations

from typing import Any


def by_letters(program: Any) -> Any:
    """The Bench of a benchmark: each contender is called, and takes so many milliseconds as its name has letters."""
    from protocol import Figure  # type: ignore[import-not-found]  # beside the program, once that is loaded

    def timed(contenders: dict[str, Any], buffers: int) -> list[Any]:
        for call in contenders.values():
            call(buffers - 1)
        return [Figure(name, (float(len(name)),)) for name in contenders]

    return program.Bench("burst", timed, device="cpu", count=lambda tensors: 1)
