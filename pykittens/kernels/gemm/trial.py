"""Whether a configuration computes a product right: on random data, into an output of NaN, against float64."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pykittens.errors import KernelError
from pykittens.kernels.arrays import FP8, empty
from pykittens.kernels.gemm.call import GemmCall
from pykittens.kernels.gemm.config import Config
from pykittens.kernels.gemm.operands import OPERANDS
from pykittens.kernels.gemm.reference import reference
from pykittens.kernels.verify import (
    Alike,
    copy_like,
    deviation,
    nans,
    normal_like,
    poison_like,
    positive_like,
    sample,
    wide,
    written_beside,
)
from pykittens.runtime.arrays import describe
from pykittens.types.dtypes import DTYPES, DType

# Products and results up to so many are compared as a whole, larger ones by some of their rows.
MOST_PRODUCTS, MOST_RESULTS = 2**39, 2**26
# Of the results of a function of the user's so many may be others: where it has steps, sums rounded in two ways may
# fall on two sides of one.
STEPS = 1e-3


class GemmTrial:
    """The product of a call on random data. What it should be is worked out once for all configurations."""

    def __init__(self, call: GemmCall) -> None:
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
    def call(self) -> GemmCall:
        """The call with random numbers in arrays of its own."""
        return random_call(self._like)

    @cached_property
    def plain(self) -> GemmCall:
        """The call without the user's function."""
        given = {name: x for name, x in self.call.given.items() if name not in self.call.own}
        return GemmCall(self.call.kernel, given, replace(self.call.options, epilogue=None))

    @cached_property
    def rows(self) -> list[int] | None:
        """The rows that are compared; None for all."""
        call = self._like
        results = call.batch * call.m * call.n
        if results <= MOST_RESULTS and results * call.k <= MOST_PRODUCTS:
            return None
        return sample(call.result[-2])

    @cached_property
    def exact(self) -> Any:
        """What the compared rows should be, without the user's function."""
        options = self.plain.options
        given = {name: x for name, x in self.plain.given.items() if x is not None}
        if self.rows is not None:
            given |= {n: _taken(x, self.rows, n) for n, x in given.items() if n in ROWS}
        return reference(**given, transpose_b=options.transpose_b, activation=options.activation)

    def _fault(self, config: Config) -> str | None:
        if 0 in self.plain.result:
            return None
        result = poisoned(self.plain, config)
        whole = result.out.array
        count = int(nans(whole).sum())
        if count:
            return f"{count} of {math.prod(whole.shape)} elements are NaN"
        dtype = DTYPES[self.plain.dtype]
        wrong = deviation(self._compared(whole), self.exact, dtype, slack(self.plain), self.rows)
        for name, found in zip(self.plain.sums, result.sums, strict=True):
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


def random_call(call: GemmCall) -> GemmCall:
    """The same call on random numbers, of arrays that lie as its own do; what a function of the user's gets is copied.

    Products are normal, too, with a deviation of 1, so that no operand of the epilogue is lost beside them.
    """
    each = max(call.k, 1) ** -0.25
    made: dict[str, Any] = {}
    for seed, name in enumerate(("a", "b", "out", *OPERANDS, *call.own)):
        if describe(x := call.given.get(name)) is None:
            continue
        if name in call.own:
            made[name] = copy_like(x)
        elif name in SCALES:
            made[name] = positive_like(x, seed)
        else:
            made[name] = normal_like(x, seed, each if name in ("a", "b", "gate") else 1.0)
    return call.on(**made)


@dataclass(frozen=True)
class Result:
    """What a launch wrote: the result, in memory of NaN, the sums that were asked for, and flags of blocks."""

    out: Alike
    sums: tuple[Any, ...]
    flags: Any


def poisoned(call: GemmCall, config: Config) -> Result:
    """The result of a launch into memory of NaN, as is what its blocks leave for one another.

    Where the launch reads its output, that holds the numbers of the call.
    """
    given = call.given["out"]
    lies = given is not None and "out" not in call.arrays.copies
    out = poison_like(given if lies else empty(call.arrays.like, call.result, call.dtype))
    if "beta" in call.arrays:
        out.array[...] = given
    plan = call.on(out=out.array).plan(config)
    memory = plan.memory(alone=True)
    for name, scratch in plan.scratch.items():
        if not scratch.flags:
            memory[name][...] = math.nan
    result = plan.run_with(memory)
    return Result(out, result[1:] if isinstance(result, tuple) else (), memory.get("flags"))


def spare_call(call: GemmCall) -> GemmCall:
    """The same call, but what a launch may write is not the caller's: a copy of its output and of its own operands."""
    out, own = call.given["out"], {name: call.given[name] for name in call.own}
    made = empty(call.arrays.like, call.result, call.dtype) if out is None else copy_like(out)
    copies = {name: copy_like(x) for name, x in own.items() if describe(x) is not None}
    return call.on(out=made, **copies)


def _taken(x: Any, rows: list[int], name: str) -> Any:
    return x[..., rows, :] if ROWS[name] == 2 else x[..., rows]


# -- comparison ------------------------------------------------------------------------------------


def slack(call: GemmCall) -> float:
    """How far a result may be off besides its rounding, as a part of the size of all: sums are rounded as they grow.

    Sums of fp8 keep about 14 bits on Hopper (docs/facts.md), those in f16 round each step of 16 anew.
    """
    k, accumulate = call.k, call.options.accumulate
    part = 1e-3
    if call.arrays.found["a"].dtype in FP8:
        part = 1e-2 + 2e-2 * k / 16384
    elif accumulate.bits < 32:
        part = accumulate.epsilon * (8 + 2 * math.sqrt(k / 16))
    return part * (4 if "gate" in call.arrays else 1)


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
