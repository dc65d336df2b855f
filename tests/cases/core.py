"""A case: a small kernel for an operation, its inputs, its result in float64 and a bound on the error.

The test of the emulator, the compilation for every target and the run on a GPU use the same list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pykittens.types.dtypes import DType, f32, int32
from tests import tolerance

Array = np.ndarray[Any, Any]
FULL = (
    f32,
    int32,
)  # dtypes with tiles of several panels of columns; the others have one, which compiles sooner


def columns(dtype: DType) -> int:
    """Of the tiles of a dtype, where every dtype has a case."""
    return 48 if dtype in FULL else 16


@dataclass(frozen=True)
class Case:
    """One kernel with one set of argument types.

    name: family-operation-dtype-size, unique. ops: the operations it shows, by their names in OPS.
    inputs: makes the input arrays from a seeded generator. outputs: shape and dtype of each output, which is
    passed behind the inputs, filled with NaN (integers with -77, bools with True). reference: the exact outputs
    (float64, or the integer or bool type itself) from the inputs as they are. bound: the largest absolute error
    of each element of each output, from the exact outputs and the inputs; what is not finite is to be equal, as is
    everything where there is no bound.
    """

    name: str
    ops: tuple[str, ...]
    kernel: Any
    inputs: Callable[[np.random.Generator], Sequence[Array]]
    outputs: tuple[tuple[tuple[int, ...], DType], ...]
    reference: Callable[..., Sequence[Array]]
    bound: Callable[..., Sequence[Array]] | None = None
    constants: dict[str, Any] = field(default_factory=dict)
    scalars: tuple[Any, ...] = ()  # numbers passed behind the outputs
    before: float | None = (
        None  # what every element of the outputs holds before; None: what no kernel writes
    )

    def arrays(self, seed: int = 0) -> tuple[list[Array], list[Array]]:
        """The inputs, and outputs that hold what no kernel writes."""
        inputs = list(self.inputs(np.random.default_rng(seed)))
        if self.before is not None:
            return inputs, [np.full(shape, self.before, d.numpy) for shape, d in self.outputs]
        return inputs, [unwritten(shape, dtype) for shape, dtype in self.outputs]

    def check(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Raise unless every output is what the reference says, within the bound."""
        exact = list(self.reference(*inputs, *self.scalars, **self.constants))
        if self.bound is None:
            for found, wanted, (_, dtype) in zip(outputs, exact, self.outputs, strict=True):
                same(found, np.asarray(wanted).astype(dtype.numpy))
            return
        bounds = self.bound(exact, *inputs)
        for found, wanted, most in zip(outputs, exact, bounds, strict=True):
            within(found, np.asarray(wanted), np.asarray(most))


def unwritten(shape: tuple[int, ...], dtype: DType) -> Array:
    """An output before the kernel ran."""
    match dtype.kind:
        case "float":
            return np.full(shape, np.nan, dtype.numpy)
        case "int":
            return np.full(shape, -77 if dtype.least else 177, dtype.numpy)
        case "bool":
            return np.ones(shape, dtype.numpy)


def within(found: Array, wanted: Array, most: Array) -> None:
    """Raise unless every number is as near as the bound asks, and infinite or no number where that is wanted."""
    finite = np.isfinite(wanted)
    same(found[~finite], wanted[~finite].astype(found.dtype))
    tolerance.assert_within(
        found[finite], wanted[finite], np.broadcast_to(most, wanted.shape)[finite]
    )


def same(found: Array, wanted: Array) -> None:
    """Raise unless two arrays are equal, NaN where NaN is wanted."""
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    wide = [a if a.dtype.kind in "iub" else a.astype(np.float64) for a in (found, wanted)]
    equal = (wide[0] == wide[1]) | ((wide[0] != wide[0]) & (wide[1] != wide[1]))
    if not equal.all():
        place = tuple(int(i) for i in np.argwhere(~equal)[0])
        raise AssertionError(
            f"{(~equal).sum()} of {equal.size} elements differ; at {place}: {found[place]} instead of {wanted[place]}"
        )
