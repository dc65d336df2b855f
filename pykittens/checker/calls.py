"""Intercepts the kernel calls of a program, so that each is checked before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pykittens.runtime.kernel import KernelFunction

Examine = Callable[[KernelFunction, tuple[Any, ...], Mapping[str, Any]], None]


@contextmanager
def checked_calls(examine: Examine) -> Iterator[None]:
    """In this context `examine` gets every call of a kernel with its arguments before the call runs."""
    original = KernelFunction.__call__

    def checked(kernel: KernelFunction, *args: Any, **constants: Any) -> None:
        examine(kernel, args, constants)
        original(kernel, *args, **constants)

    KernelFunction.__call__ = checked  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        KernelFunction.__call__ = original  # type: ignore[method-assign]
