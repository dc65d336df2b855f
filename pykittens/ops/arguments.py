"""Arguments that are not tiles: int32 numbers, and sizes, bools and words known when a kernel is recorded."""

from __future__ import annotations

from typing import Any

from pykittens.ir.op import Mismatch
from pykittens.ir.values import Scalar, describe, is_int32
from pykittens.types.dtypes import int32


def check_int32(name: str, x: Any, help: str | None = None) -> None:
    """Raise unless an argument is an int32, known when the kernel is recorded or when it runs."""
    if is_int32(x):
        return
    if help is None and isinstance(x, Scalar):
        help = f"`{name}.to(pk.int32)` is one"
    raise Mismatch(f"`{name}` must be an int32, not {describe(x)}", help=help)


def check_index(name: str, x: Any, count: int, what: str) -> None:
    """Raise unless an argument is an int32 and, where it is known, below a count of things."""
    check_int32(name, x)
    if isinstance(x, int) and not 0 <= x < count:
        raise Mismatch(f"`{name}` must be from 0 to {count - 1}, {what}, not {x}")


def check_size(name: str, x: Any, unit: int = 1, why: str = "", help: str | None = None) -> None:
    """Raise unless an argument is a positive int known when the kernel is recorded, a multiple of `unit`."""
    if not isinstance(x, int) or isinstance(x, bool) or x <= 0:
        if isinstance(x, Scalar) and help is None:
            help = "pk.static(...) makes an extent of an argument a compile-time int"
        raise Mismatch(f"`{name}` must be a positive compile-time int, not {describe(x)}", help)
    if x > int32.largest:
        raise Mismatch(f"`{name}` must be an int32, not {describe(x)}")
    if x % unit:
        raise Mismatch(
            f"`{name}` must be a multiple of {unit} {why}, not {x}",
            help=f"take {-(-x // unit) * unit}; what lies outside a tensor reads as the fill",
        )


def check_truth(name: str, x: Any) -> None:
    """Raise unless an argument is True or False when the kernel is recorded."""
    if not isinstance(x, bool):
        raise Mismatch(f"`{name}` must be a compile-time bool, not {describe(x)}")


def check_word(name: str, x: Any, *words: str) -> None:
    """Raise unless an argument is one of these strings."""
    if not isinstance(x, str) or x not in words:
        quoted = [f'"{word}"' for word in words]
        listed = " or ".join([", ".join(quoted[:-1]), quoted[-1]])
        raise Mismatch(f"`{name}` must be {listed}, not {describe(x)}")
