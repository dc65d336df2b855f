"""Checks that a configuration computes a product right: on random data, into an output of NaN, against float64."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pykittens.errors import KernelError
from pykittens.kernels.arrays import FP8
from pykittens.kernels.gemm.call import GemmCall
from pykittens.kernels.gemm.config import Config
from pykittens.kernels.gemm.operands import OPERANDS
from pykittens.kernels.gemm.reference import reference
from pykittens.runtime.arrays import describe, empty
from pykittens.runtime.verify import (
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
from pykittens.types.dtypes import DTYPES, DType

# A result of more multiplications or elements is compared in some of its rows only.
MOST_PRODUCTS, MOST_RESULTS = 2**39, 2**26
# The fraction of results of the user's function that may differ: if the function has a step, sums that are rounded
# differently may fall on different sides of it.
STEPS = 1e-3


class GemmTrial:
    """The product of a call on random data. The expected result is computed once for all configurations."""

    def __init__(self, call: GemmCall) -> None:
        self._like = call
        self._first: tuple[Config, Any] | None = None

    def fault(self, config: Config) -> str | None:
        """The fault in the results of a configuration, or None.

        The user's function has no reference. The product without it is compared with the reference, and the product
        with it with that of the first configuration that was right without it; a KernelError if the two differ.
        """
        fault = self._fault(config)
        if fault is None and self.call.options.epilogue is not None:
            self._compare_with_first(config)
        return fault

    @cached_property
    def call(self) -> GemmCall:
        """The call with random numbers in new arrays."""
        return random_call(self._like)

    @cached_property
    def plain(self) -> GemmCall:
        """The call without the user's function."""
        none = dict.fromkeys(self.call.function_operands)
        return self.call.on(replace(self.call.options, epilogue=None), **none)

    @cached_property
    def rows(self) -> list[int] | None:
        """The rows that are compared; None for all rows."""
        call = self._like
        results = call.batch * call.m * call.n
        if results <= MOST_RESULTS and results * call.k <= MOST_PRODUCTS:
            return None
        return sample(call.result[-2])

    @cached_property
    def exact(self) -> Any:
        """The expected values of the compared rows, without the user's function."""
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
            wrong = "states of split tiles are not 0 after the launch"
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
# Operands that have rows of the product, and the axis of the rows, counted from the last.
ROWS = {"a": 2, "out": 2, "residual": 2, "row_blocks": 2, "row_scale": 1}


def random_call(call: GemmCall) -> GemmCall:
    """The same call on random numbers in arrays of the same layout; operands of the user's function are copied.

    Products are normal, too, with a deviation of 1, so that no operand of the epilogue is negligible.
    """
    each = max(call.k, 1) ** -0.25
    made: dict[str, Any] = {}
    for seed, name in enumerate(("a", "b", "out", *OPERANDS, *call.function_operands)):
        if describe(x := call.given.get(name)) is None:
            continue
        if name in call.function_operands:
            made[name] = copy_like(x)
        elif name in SCALES:
            made[name] = positive_like(x, seed)
        else:
            made[name] = normal_like(x, seed, each if name in ("a", "b", "gate") else 1.0)
    return call.on(**made)


@dataclass(frozen=True)
class TrialResult:
    """The result of a launch, in memory filled with NaN, the sums asked for, and the states of split tiles."""

    out: Alike
    sums: tuple[Any, ...]
    flags: Any


def poisoned(call: GemmCall, config: Config) -> TrialResult:
    """The result of a launch into memory filled with NaN, as the partial sums that its blocks exchange are.

    If the launch reads its output, the output holds the numbers of the call.
    """
    given = call.given["out"]
    in_place = given is not None and "out" not in call.arrays.copies
    out = poison_like(given if in_place else empty(call.arrays.like, call.result, call.dtype))
    if "beta" in call.arrays:
        out.array[...] = given
    plan = call.on(out=out.array).plan(config)
    memory = plan.memory(alone=True)
    for name, scratch in plan.scratch.items():
        if not scratch.flags:
            memory[name][...] = math.nan
    result = plan.run_with(memory)
    return TrialResult(out, result[1:] if isinstance(result, tuple) else (), memory.get("flags"))


def spare_call(call: GemmCall) -> GemmCall:
    """The same call with copies of all arrays that a launch may write: the output, the user's function's operands."""
    if call.given["out"] is None:
        call = call.on(out=empty(call.arrays.like, call.result, call.dtype))
    written = [name for name in ("out", *call.function_operands) if name in call.arrays.found]
    return call.on(**{name: copy_like(call.given[name]) for name in written})


def _taken(x: Any, rows: list[int], name: str) -> Any:
    return x[..., rows, :] if ROWS[name] == 2 else x[..., rows]


# -- comparison ------------------------------------------------------------------------------------


def slack(call: GemmCall) -> float:
    """The error that the rounding of sums may add to a result, relative to the root mean square of all results.

    Sums of fp8 keep about 14 bits on Hopper (docs/facts.md); sums in f16 are rounded after each step of 16.
    """
    k, accumulate = call.k, call.options.accumulate
    relative = 1e-3
    if call.arrays.found["a"].dtype in FP8:
        relative = 1e-2 + 2e-2 * k / 16384
    elif accumulate.bits < 32:
        relative = accumulate.epsilon * (8 + 2 * math.sqrt(k / 16))
    return relative * (4 if "gate" in call.arrays else 1)


def _fault_of_sums(name: str, found: Any, whole: Any, dtype: DType) -> str | None:
    """The fault in sums of a result that is known to be right, or None. Sums are of its elements before rounding.

    Roundings have either sign, so the error of a sum grows as the root of the sum of their squares.
    """
    axis = -1 if name == "row_sums" else -2
    terms = wide(whole)
    bound = 4 * dtype.epsilon * (terms**2).sum(axis) ** 0.5 + 1e-6 * abs(terms).sum(axis)
    # An element outside the range of the dtype has another value in the sum.
    known = ~(abs(terms) >= dtype.largest).any(axis)
    wrong = known & ~(abs(wide(found) - terms.sum(axis)) <= bound)
    count = int(wrong.sum())
    return f"{count} of {math.prod(wrong.shape)} {name} are wrong" if count else None
