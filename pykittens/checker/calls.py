"""Intercepts the kernel calls of a program, so that each is checked before it runs, or timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pykittens.errors import KernelError
from pykittens.runtime.fakes import has_fakes
from pykittens.runtime.kernel import KernelFunction

Examine = Callable[[KernelFunction, tuple[Any, ...], Mapping[str, Any]], None]
Failed = Callable[[KernelFunction, KernelError], None]


# A call of a kernel, by the function that runs it as usual.
Run = Callable[..., None]
Call = Callable[[Run, KernelFunction, tuple[Any, ...], Mapping[str, Any]], None]


@contextmanager
def replaced_calls(call: Call) -> Iterator[None]:
    """In this context `call` gets every call of a kernel, with the function that runs it."""
    original = KernelFunction.__call__

    def replaced(kernel: KernelFunction, *args: Any, **constants: Any) -> None:
        call(original, kernel, args, constants)

    KernelFunction.__call__ = replaced  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        KernelFunction.__call__ = original  # type: ignore[method-assign]


@contextmanager
def checked_calls(examine: Examine, failed: Failed) -> Iterator[None]:
    """In this context `examine` gets every call of a kernel with its arguments before the call runs.

    `failed` gets the error of a call and raises it, or returns, and the program goes on.
    """

    def checked(
        run: Run, kernel: KernelFunction, args: tuple[Any, ...], constants: Mapping[str, Any]
    ) -> None:
        if not has_fakes(args, constants):
            examine(kernel, args, constants)
        try:
            run(kernel, *args, **constants)
        except KernelError as error:
            failed(kernel, error)

    with replaced_calls(checked):
        yield
