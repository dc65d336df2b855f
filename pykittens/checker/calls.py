"""Intercepts the kernel calls of a program, so that each is checked before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pykittens.errors import KernelError
from pykittens.runtime.fakes import has_fakes
from pykittens.runtime.kernel import KernelFunction

Examine = Callable[[KernelFunction, tuple[Any, ...], Mapping[str, Any]], None]
Failed = Callable[[KernelFunction, KernelError], None]


@contextmanager
def checked_calls(examine: Examine, failed: Failed) -> Iterator[None]:
    """In this context `examine` gets every call of a kernel with its arguments before the call runs.

    `failed` gets the error of a call and raises it, or returns, and the program goes on.
    """
    original = KernelFunction.__call__

    def checked(kernel: KernelFunction, *args: Any, **constants: Any) -> None:
        if not has_fakes(args, constants):
            examine(kernel, args, constants)
        try:
            original(kernel, *args, **constants)
        except KernelError as error:
            failed(kernel, error)

    KernelFunction.__call__ = checked  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        KernelFunction.__call__ = original  # type: ignore[method-assign]
