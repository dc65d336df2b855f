"""Atomics: operations that read and write an element of memory in one step.

Stores with `op="add"`, "max" or "min" combine a value with memory. Their dtypes are f32, f16, bf16, int32 and int64;
sums of integers wrap. The order of stores to one element is undefined, so sums of floats may differ in their last bits
from run to run. A NaN on either side gives NaN. Sums of f32 may treat subnormal numbers as zero.

The functions below return a scalar. `element` is an element of an int32 tensor, as flags are: `counters[i]` is element
i. Or it is one of a shared int32 vector of pk.shared, `v.parts(1)[i]`, and the text below is about the block, not the
GPU. One thread accesses it once for the group, and the whole group has the result. All earlier writes of the group are
visible on the GPU before the element changes; of its asynchronous stores, those that pk.store_wait has covered. After
the function, the group sees everything that was written before the changes of the element that it finds, by these
functions or by pk.signal. The order in which groups change an element is undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import numpy as np

from pykittens.ir.op import Effects, Mismatch, Op
from pykittens.ir.values import Global, Int, Scalar, SharedVector, TileRef, describe
from pykittens.ops.arguments import check_int32, check_word
from pykittens.ops.core import op
from pykittens.ops.map import computed, rounded
from pykittens.types.dtypes import DType, int32
from pykittens.types.tiles import SCALAR

F = TypeVar("F", bound=Callable[..., Any])
Element = TileRef | Global | SharedVector

Combining = Literal["add", "max", "min"]
COMBINING: dict[str, np.ufunc] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
}


def check_combining(op: Any, dtype: DType) -> None:
    """Raise unless `op` is None or a way to combine elements of a dtype with those in memory."""
    if op is None:
        return
    check_word("op", op, *COMBINING)
    if dtype.bits < 16:
        raise Mismatch(
            f"`op` must be left out for {dtype}, as atomics take 16 bits or more, not {describe(op)}",
            help="combine tiles in registers and store the result, or make the tensor f32 or int32",
        )


def combining(op: str | None) -> Callable[[Any, Any], Any] | None:
    """The NumPy meaning of `op`: the new value of memory, rounded once."""
    if op is None:
        return None
    function = COMBINING[op]
    return lambda old, new: rounded(function(*computed([old, new])), [old])


# -- with a result ---------------------------------------------------------------------------------


def _type(element: Any, **operands: Any) -> SCALAR:
    if isinstance(element, SharedVector):
        is_one = element.length == 1 and element.dtype == int32 and element.stage is None
    else:
        is_one = isinstance(element, TileRef | Global) and element.dtype == int32
    if not is_one:
        raise Mismatch(
            "`element` must be an element of an int32 tensor such as counters[i], or of a shared int32 vector such as "
            f"v.parts(1)[i], not {describe(element)}",
            help='pk.store(x[i, j], value, op="add") adds tiles, vectors and numbers of other dtypes'
            if isinstance(element, TileRef | Global)
            else getattr(element, "way_in", None),
        )
    for name, value in operands.items():
        check_int32(name, value)
    return SCALAR(int32)


def _atomic(changed: Callable[..., int]) -> Callable[[F], Op[F]]:
    """Decorator: an operation that sets an element to `changed(element, **operands)` and returns the value before."""
    effects = Effects(
        *(("element",),) * 2,
        signals=("element",),
        acquires=("element",),
        meets=True,
        fences=("tensors",),
    )

    def make(function: F) -> Op[F]:
        def meaning(element: Any, **operands: int) -> int:
            memory = element.element()
            before = int(memory)
            memory[...] = int32.wrapped(changed(before, **operands))
            return before

        made = op(effects=effects)(function)
        made.type(_type)
        made.numpy(meaning)
        return made

    return make


@_atomic(lambda element, value: element + value)
def atomic_add(element: Element, value: Int) -> Scalar:
    """Add a value to an element; returns the element before. The sum wraps."""


@_atomic(lambda element, value: max(element, value))
def atomic_max(element: Element, value: Int) -> Scalar:
    """Set an element to the larger of itself and a value; returns the element before."""


@_atomic(lambda element, value: min(element, value))
def atomic_min(element: Element, value: Int) -> Scalar:
    """Set an element to the smaller of itself and a value; returns the element before."""


@_atomic(lambda element, value: element & value)
def atomic_and(element: Element, value: Int) -> Scalar:
    """Clear the bits of an element that a value lacks; returns the element before."""


@_atomic(lambda element, value: element | value)
def atomic_or(element: Element, value: Int) -> Scalar:
    """Set the bits of an element that a value has; returns the element before."""


@_atomic(lambda element, value: element ^ value)
def atomic_xor(element: Element, value: Int) -> Scalar:
    """Flip the bits of an element that a value has; returns the element before."""


@_atomic(lambda element, value: value)
def atomic_exchange(element: Element, value: Int) -> Scalar:
    """Set an element to a value; returns the element before."""


@_atomic(lambda element, expected, value: value if element == expected else element)
def atomic_cas(element: Element, expected: Int, value: Int) -> Scalar:
    """Set an element to a value if it is `expected`; returns the element before.

    Otherwise it writes nothing, and makes no write of the group visible.
    """


@op(effects=Effects(reads=("element",), acquires=("element",), meets=True))
def atomic_load(element: Element) -> Scalar:
    """The element now; all writes before the changes that led to it are visible then. It makes no write visible."""


atomic_load.type(_type)


@atomic_load.numpy
def _atomic_load_numpy(element: Any) -> int:
    return int(element.element())
