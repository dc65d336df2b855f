"""Checks of arguments that are not tiles: int32 numbers, and values known when a kernel is recorded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykittens.ir.build import current
from pykittens.ir.numbers import is_int
from pykittens.ir.op import Mismatch
from pykittens.ir.values import Global, Scalar, TileRef, describe, is_int32
from pykittens.types.dtypes import DTYPES, DType, int32


def check_int32(name: str, x: Any, help: str | None = None) -> None:
    """Raise unless an argument is an int32, known when the kernel is recorded or when it runs."""
    if is_int32(x):
        return
    if help is None and isinstance(x, Scalar):
        help = f"convert it: `{name}.to(pk.int32)`"
    raise Mismatch(f"`{name}` must be an int32, not {describe(x)}", help=help)


def check_flag(name: str, x: Any) -> None:
    """Raise unless an argument is an element of an int32 tensor."""
    if not isinstance(x, TileRef | Global) or x.dtype != int32:
        raise Mismatch(
            f"`{name}` must be an element of an int32 tensor such as flags[i], not {describe(x)}"
        )


def check_index(name: str, x: Any, count: int, what: str) -> None:
    """Raise unless an argument is an int32 and, if it is known, from 0 to below `count`."""
    check_int32(name, x)
    if isinstance(x, int) and not 0 <= x < count:
        raise Mismatch(f"`{name}` must be {what} from 0 to {count - 1}, not {x}")


def check_block(word: str, x: Any) -> None:
    """Raise unless an argument is the number of a block of the cluster."""
    cluster = current(word).kernel.cluster
    if cluster == 1:
        raise Mismatch(
            f"`block` must be a block of a cluster, not {describe(x)} in a kernel without clusters",
            help="@pk.kernel(cluster=2) makes clusters of two blocks",
        )
    check_index("block", x, cluster, "a block of the cluster")


def either(choices: Iterable[Any]) -> str:
    """What a value may be, as a choice: "bf16, f16 or f32"."""
    *first, last = map(str, choices)
    return f"{', '.join(first)} or {last}" if first else last


def check_between(name: str, x: Any, low: int, high: int) -> None:
    """Raise unless an argument is an int from `low` to `high`, known when the kernel is recorded."""
    if not is_int(x) or not low <= x <= high:
        raise Mismatch(
            f"`{name}` must be a compile-time int from {low} to {high}, not {describe(x)}"
        )


def check_size(name: str, x: Any, unit: int = 1, why: str = "", help: str | None = None) -> None:
    """Raise unless an argument is a positive int known when the kernel is recorded, a multiple of `unit`."""
    if not is_int(x) or x <= 0:
        if isinstance(x, Scalar) and help is None:
            help = "pk.static(...) makes an extent of an argument a compile-time int"
        if isinstance(x, tuple) and name == "rows":
            help = "rows and columns are separate arguments, not a tuple"
        raise Mismatch(f"`{name}` must be a positive compile-time int, not {describe(x)}", help)
    if x > int32.largest:
        raise Mismatch(f"`{name}` must be an int32, not {describe(x)}")
    if x % unit:
        raise Mismatch(
            f"`{name}` must be a multiple of {unit} {why}, not {x}",
            help=f"use {-(-x // unit) * unit}; elements outside a tensor read as the fill",
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


def check_text(name: str, x: Any) -> None:
    """Raise unless an argument is a string."""
    if not isinstance(x, str):
        raise Mismatch(f"`{name}` must be a string, not {describe(x)}")


def check_dtype(name: str, x: Any, *kinds: str) -> None:
    """Raise unless an argument is a dtype, of one of these kinds if any are given."""
    if not isinstance(x, DType) or (kinds and x.kind not in kinds):
        wanted = " or ".join(kinds) + " " if kinds else ""
        message = f"`{name}` must be a {wanted}dtype such as pk.f32, not {describe(x)}"
        raise Mismatch(message, help=_of_another_library(x))


def _of_another_library(x: object) -> str | None:
    """Help for a dtype that is given by its name, or as one of Python, NumPy or PyTorch, or not at all."""
    if isinstance(x, int | tuple | list):
        return "a dtype comes before the extents, as in pk.zeros(pk.f32, 64, 64)"
    if isinstance(x, DType):
        return None
    name = x if isinstance(x, str) else getattr(x, "__name__", None) or str(x).rpartition(".")[2]
    name = {"float": "float32", "half": "float16", "int": "int32"}.get(name, name)
    if name in ("float64", "double"):
        return "kernels do not compute in float64: use pk.f32"
    found = [d.name for d in DTYPES.values() if name in (d.name, d.numpy.name)]
    return f"use pk.{found[0].replace('bool', 'bool_')}" if found else None


def check_number(name: str, x: Any, dtype: DType) -> None:
    """Raise unless an argument is a Python number that the dtype can represent."""
    if not isinstance(x, int | float) or not dtype.represents(x):
        raise Mismatch(f"`{name}` must be a number that {dtype} can represent, not {describe(x)}")
