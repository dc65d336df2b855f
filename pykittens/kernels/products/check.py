"""Whether a configuration computes a product right: on random data, into an output of NaN, against float64."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from pykittens.errors import KernelError
from pykittens.kernels.alike import (
    Alike,
    copy_like,
    nans,
    normal_like,
    poison_like,
    positive_like,
    written_beside,
)
from pykittens.kernels.core import empty
from pykittens.kernels.products.config import Config
from pykittens.kernels.products.launch import Call
from pykittens.kernels.products.operands import FP8, OPERANDS, has_lines
from pykittens.kernels.products.options import GIVEN
from pykittens.kernels.products.reference import reference, wide
from pykittens.runtime.arrays import describe
from pykittens.types.dtypes import DTYPES, DType

# Products and results up to so many are compared as a whole, larger ones by some of their rows.
MOST_PRODUCTS, MOST_RESULTS = 2**39, 2**26
STRIP = 64  # rows of the smallest tile: of each such strip one is compared
MOST_ROWS = 512
# Of the results of a function of the user's so many may be others: where it has steps, sums rounded in two ways may
# fall on two sides of one.
STEPS = 1e-3


class Trial:
    """The product of a call on random data. What it should be is worked out once for all configurations."""

    def __init__(self, call: Call) -> None:
        self._like = call
        self._faults: dict[Config, str | None] = {}
        self._first: tuple[Config, Any] | None = None

    def fault(self, config: Config) -> str | None:
        """What is wrong with the results of a configuration, or None.

        A function of the user's has no reference. The product without it is held against one, and the product with it
        against that of the first configuration that was right without; a KernelError if these are not the same.
        """
        if config not in self._faults:
            self._faults[config] = self._fault(config)
        fault = self._faults[config]
        if fault is None and self.call.options.epilogue is not None:
            self._compare_with_first(config)
        return fault

    @cached_property
    def call(self) -> Call:
        """The call with random numbers in arrays of its own."""
        return random_call(self._like)

    @cached_property
    def plain(self) -> Call:
        """The call without the user's function."""
        options = replace(self.call.options, epilogue=None)
        return Call(self.call.kernel, self.call.given[: len(GIVEN)], options)

    @cached_property
    def rows(self) -> list[int] | None:
        """The rows that are compared; None for all."""
        p = self._like.p
        results = p.batch * p.m * p.n
        if results <= MOST_RESULTS and results * p.k <= MOST_PRODUCTS:
            return None
        return sample(p.shape[-2])

    @cached_property
    def exact(self) -> Any:
        """What the compared rows should be, without the user's function."""
        options = self.plain.options
        given = {n: x for n, x in zip(GIVEN, self.plain.given, strict=True) if x is not None}
        if self.rows is not None:
            given |= {n: _taken(x, self.rows, n) for n, x in given.items() if n in ROWS}
        return reference(**given, transpose_b=options.transpose_b, activation=options.activation)

    def _fault(self, config: Config) -> str | None:
        if 0 in self.plain.p.shape:
            return None
        result = poisoned(self.plain, config)
        whole = result.out.array
        count = int(nans(whole).sum())
        if count:
            return f"{count} of {math.prod(whole.shape)} elements are NaN"
        dtype = DTYPES[self.plain.dtype]
        wrong = deviation(self._compared(whole), self.exact, dtype, slack(self.plain), self.rows)
        for (name, _), found in zip(self.plain.sums(), result.sums, strict=True):
            wrong = wrong or _fault_of_sums(name, found, whole, dtype)
        if wrong is None and result.flags is not None and bool((result.flags != 0).any()):
            wrong = "flags by which blocks wait for one another stay set"
        if wrong is None and written_beside(result.out):
            wrong = "something is written beside the result"
        return wrong

    def _compare_with_first(self, config: Config) -> None:
        whole = poisoned(self.call, config).out.array
        found = self._compared(whole)
        if self._first is None:
            self._first = config, found
        first, expected = self._first
        steps = int(STEPS * math.prod(found.shape))
        dtype = DTYPES[self.call.dtype]
        wrong = deviation(found, expected, dtype, slack(self.call), self.rows, steps)
        if wrong is not None:
            raise KernelError(
                f"with `epilogue` its results are not those of {first!r}: {wrong}",
                help="the result of an epilogue may not depend on how the product is cut into tiles",
            )

    def _compared(self, whole: Any) -> Any:
        return whole if self.rows is None else _taken(whole, self.rows, "out")


# -- data ------------------------------------------------------------------------------------------

SCALES = ("alpha", "gate_alpha", *(n for n in OPERANDS if n.endswith(("_scale", "_blocks"))))
# Operands that have rows of the product, and the axis that counts them from behind.
ROWS = {"a": 2, "out": 2, "residual": 2, "row_blocks": 2, "row_scale": 1}


def random_call(call: Call) -> Call:
    """The same call on random numbers, of arrays that lie as its own do; what a function of the user's gets is copied.

    Products are normal, too, with a deviation of 1, so that no operand of the epilogue is lost beside them.
    """
    each = max(call.p.k, 1) ** -0.25
    made: list[Any] = []
    for seed, (name, x) in enumerate(zip(GIVEN, call.given, strict=False)):
        if describe(x) is None:
            made.append(x)
        elif name in SCALES:
            made.append(positive_like(x, seed))
        else:
            factor = each if name in ("a", "b", "gate") else 1.0
            made.append(normal_like(x, seed, factor))
    own = [x if describe(x) is None else copy_like(x) for x in call.given[len(GIVEN) :]]
    return Call(call.kernel, (*made, *own), call.options)


@dataclass(frozen=True)
class Result:
    """What a launch wrote: the result, in memory of NaN, the sums that were asked for, and flags of blocks."""

    out: Alike
    sums: tuple[Any, ...]
    flags: Any


def poisoned(call: Call, config: Config) -> Result:
    """The result of a launch into memory of NaN, as is what its blocks leave for one another.

    Where the launch reads its output, that holds the numbers of the call.
    """
    given = call.given[2]
    lies = given is not None and has_lines(call.flat(given))
    out = poison_like(given if lies else empty(call.like, call.p.shape, call.dtype))
    if "beta" in call.p.extras:
        out.array[...] = given
    again = Call(call.kernel, (*call.given[:2], out.array, *call.given[3:]), call.options)
    made = call.room(config).alone(call.like)
    for name, array in made.items():
        if name != "flags":
            array[...] = math.nan
    result = again.result(config, made)
    return Result(out, result[1:] if isinstance(result, tuple) else (), made.get("flags"))


def spare_call(call: Call) -> Call:
    """The same call, but what a launch may write is not the caller's: a copy of its output and of its own operands."""
    out, own = call.given[2], call.given[len(GIVEN) :]
    made = empty(call.like, call.p.shape, call.dtype) if out is None else copy_like(out)
    copies = [x if describe(x) is None else copy_like(x) for x in own]
    given = (*call.given[:2], made, *call.given[3 : len(GIVEN)], *copies)
    return Call(call.kernel, given, call.options)


def sample(count: int) -> list[int]:
    """Some hundred rows: those at both ends and at edges of tiles, and a random one of each strip."""
    strip = max(STRIP, -(-count // MOST_ROWS))
    chosen = random.Random(0)
    rows = {min(i + chosen.randrange(strip), count - 1) for i in range(0, count, strip)}
    for side in (64, 128, 256):
        last = (count - 1) // side * side
        rows |= {0, side - 1, side, last - 1, last, count - 1}
    return sorted(i for i in rows if 0 <= i < count)


def _taken(x: Any, rows: list[int], name: str) -> Any:
    return x[..., rows, :] if ROWS[name] == 2 else x[..., rows]


# -- comparison ------------------------------------------------------------------------------------


def slack(call: Call) -> float:
    """How far a result may be off besides its rounding, as a part of the size of all: sums are rounded as they grow.

    Sums of fp8 keep about 14 bits on Hopper (docs/facts.md), those in f16 round each step of 16 anew.
    """
    k, accumulate = call.p.k, call.options.accumulate
    part = 1e-3
    if describe(call.like).dtype in FP8:  # type: ignore[union-attr]
        part = 1e-2 + 2e-2 * k / 16384
    elif accumulate.bits < 32:
        part = accumulate.epsilon * (8 + 2 * math.sqrt(k / 16))
    return part * (4 if "gate" in call.p.extras else 1)


def deviation(
    found: Any, exact: Any, dtype: DType, slack: float, rows: list[int] | None, allowed: int = 0
) -> str | None:
    """Which elements are further from what they should be than rounding explains, if more than are allowed.

    Beyond the largest number of the dtype all are the same; NaN may only be where it should.
    """
    found, exact = (wide(x).clip(dtype.least, dtype.largest) for x in (found, exact))
    both = nans(found) & nans(exact)
    found[both] = exact[both] = 0
    numbers = exact[~nans(exact)]
    size = float((numbers**2).mean() ** 0.5) if len(numbers) else 0.0
    tiny = float(ml_dtypes.finfo(dtype.numpy).smallest_subnormal)  # type: ignore[no-untyped-call]
    wrong = ~(abs(found - exact) <= dtype.epsilon * abs(exact) + tiny + slack * size)
    count = int(wrong.sum())
    if count <= allowed:
        return None
    first = int(wrong.reshape(-1).nonzero()[0][0])
    place = [int(i) for i in np.unravel_index(first, tuple(wrong.shape))]
    if rows is not None:
        place[-2] = rows[place[-2]]
    pair = float(found.reshape(-1)[first]), float(exact.reshape(-1)[first])
    return (
        f"{count} of {math.prod(wrong.shape)} compared elements are wrong; that at {tuple(place)} "
        f"is {pair[0]:.6g} instead of {pair[1]:.6g}"
    )


def _fault_of_sums(name: str, found: Any, whole: Any, dtype: DType) -> str | None:
    """What is wrong with sums of a result, which is known to be right: they are of its elements before their rounding.

    Roundings have either sign, so errors of a sum grow as the root of their squares.
    """
    axis = -1 if name == "row_sums" else -2
    terms = wide(whole)
    bound = 4 * dtype.epsilon * (terms**2).sum(axis) ** 0.5 + 1e-6 * abs(terms).sum(axis)
    # An element that did not fit into the dtype is another one in the sum.
    known = ~(abs(terms) >= dtype.largest).any(axis)
    wrong = known & ~(abs(wide(found) - terms.sum(axis)) <= bound)
    count = int(wrong.sum())
    return f"{count} of {math.prod(wrong.shape)} {name} are wrong" if count else None
