"""What every kernel of the library tells about itself, and the registry KERNELS that tests and benchmarks walk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pykittens.runtime.kernel import KernelFunction


@dataclass(frozen=True)
class Entry:
    """A kernel of the library.

    function: the host function. kernel: what it launches. reference: the same in float64 NumPy.
    cases: shapes and constants, as keyword arguments of `inputs`. inputs: NumPy arrays for a case and a generator.
    """

    name: str
    function: Callable[..., Any]
    kernel: KernelFunction
    reference: Callable[..., Any]
    cases: tuple[dict[str, Any], ...]
    inputs: Callable[..., dict[str, Any]]


KERNELS: dict[str, Entry] = {}


def entry(
    *,
    kernel: KernelFunction,
    reference: Callable[..., Any],
    cases: tuple[dict[str, Any], ...],
    inputs: Callable[..., dict[str, Any]],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: make a host function known to tests, benchmarks and docs."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        KERNELS[function.__name__] = Entry(
            function.__name__, function, kernel, reference, cases, inputs
        )
        return function

    return register
