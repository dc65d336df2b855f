"""Kernels that are right in ways that resemble faults, with their arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pykittens import f32

Made = tuple[tuple[Any, ...], Mapping[int, Any]]
RIGHT: dict[str, tuple[Any, Callable[[np.random.Generator], Made]]] = {}


def right(made: Callable[[np.random.Generator], Made]) -> Callable[[Any], Any]:
    """Register a kernel with its arguments and, by position, the arrays after the launch."""

    def add(kernel: Any) -> Any:
        RIGHT[kernel.function.__name__] = kernel, made
        return kernel

    return add


def whole(rng: np.random.Generator, *shape: int, dtype: Any = f32) -> Any:
    return rng.integers(-4, 5, shape).astype(dtype.numpy)


def nothing(*shape: int) -> Any:
    return np.full(shape, np.nan, np.float32)
