"""Rules for the operands of an operation: a rule says which things are accepted; all others must be refused."""

from __future__ import annotations

from collections.abc import Callable

import pykittens as pk
from pykittens.types.dtypes import DType
from tests.mistakes.things import Thing

Rule = Callable[[Thing], bool]

KINDS = {"float": (float, int, bool), "int": (int, bool), "bool": (bool,)}
HANDLE: Rule = lambda t: t.kind in ("tile", "vector", "scalar", "shared", "tensor", "semaphore")  # noqa: E731


def any_of(*rules: Rule) -> Rule:
    return lambda t: any(rule(t) for rule in rules)


def all_of(*rules: Rule) -> Rule:
    return lambda t: all(rule(t) for rule in rules)


def one_of(*names: str) -> Rule:
    """One of these things; a number of NumPy goes for Python's."""
    return lambda t: t.name in names or (t.name.startswith("np.") and str(t.value) in names)


def in_registers(*kinds: str) -> Rule:
    """A tile, a vector or a scalar of elements of these kinds."""
    return lambda t: t.in_registers and t.dtype.kind in kinds


def python_number(*kinds: str) -> Rule:
    """A number that is computed with when the kernel is recorded, of 64 bits at most."""
    types = tuple(x for kind in kinds for x in KINDS[kind])
    return lambda t: t.kind == "number" and isinstance(t.value, types) and t.value < 2**64


def fits(dtype: DType, *, tile: bool = True) -> Rule:
    """What goes with a tile of 64x64 of a dtype, or with a scalar of it."""

    def rule(t: Thing) -> bool:
        if t.kind == "number":
            return dtype.represents(t.value)
        if not t.in_registers or t.dtype != dtype:
            return False
        return t.kind == "scalar" or (tile and placed(t))

    return rule


def placed(t: Thing) -> bool:
    """A tile of 64x64, or a vector along one of its sides."""
    return t.shape == (64, 64) or (t.shape == (64,) and t.lies != "plain")


def register_tile(*kinds: str, rows: int | None = None, cols: int | None = None) -> Rule:
    def rule(t: Thing) -> bool:
        return (
            t.kind == "tile"
            and t.dtype.kind in (kinds or ("float", "int", "bool"))
            and rows in (None, t.shape[0])
            and cols in (None, t.shape[1])
        )

    return rule


def register_vector(*spreads: str, dtype: DType | None = None, length: int | None = None) -> Rule:
    def rule(t: Thing) -> bool:
        return (
            t.kind == "vector"
            and (not spreads or t.lies in spreads)
            and dtype in (None, t.dtype)
            and length in (None, t.shape[0])
        )

    return rule


def size(unit: int = 1, most: int = 10**6) -> Rule:
    """A positive compile-time int, a multiple of the unit."""
    return lambda t: t.is_int and 0 < t.value <= most and t.value % unit == 0


def compile_time_int(least: int, most: int) -> Rule:
    return lambda t: t.is_int and least <= t.value <= most


def index(count: int | None = None) -> Rule:
    """An int32: a scalar, or a number, which lies below a count."""
    scalar = one_of("count")
    return any_of(
        scalar,
        lambda t: (
            t.is_int and -(2**31) <= t.value < 2**31 and (count is None or 0 <= t.value < count)
        ),
    )


def dtype_word(*kinds: str) -> Rule:
    return lambda t: isinstance(t.value, DType) and t.value.kind in (kinds or t.value.kind)


def tensor(rank: int = 1, *dtypes: DType) -> Rule:
    return lambda t: t.kind == "tensor" and t.shape[0] >= rank and t.dtype in (dtypes or (t.dtype,))


def shared(dtype: DType | None = None, *sides: str) -> Rule:
    """A shared tile or vector: of a pipeline's stage taken so (or of pk.shared, the side "")."""
    return lambda t: (
        t.kind == "shared" and dtype in (None, t.dtype) and (not sides or t.lies in sides)
    )


boolean: Rule = one_of("True")
text: Rule = one_of('"text"', '"add"')
number: Rule = python_number("float")
spread_word: Rule = one_of("pk.per_row")
nothing: Rule = one_of("None")
combining: Rule = one_of("None", '"add"')
same_as_tile: Rule = fits(pk.f32)
