"""Values of the host as functions of a call's numbers are what they are for these numbers alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pykittens.errors import KernelError
from pykittens.ir.evaluate import host_text, host_value
from pykittens.ir.nodes import Require, walk
from pykittens.ir.values import Global, Value
from tests.aot.test_expressions import INPUTS, evaluated, expressions
from tests.running import recorded

X = np.zeros((8, 8), np.float32)


def conditions(kernel: Any) -> list[Value]:
    return [node.condition for node in walk(kernel.body) if isinstance(node, Require)]


def function_of(values: list[Any], known: dict[Value, Any], numbers: dict[Value, int]) -> Any:
    """The values as a function of the numbers of a call, which stand at these positions."""
    constants: dict[str, Any] = {}
    names = {p: f"numbers[{i}]" for p, i in numbers.items()}
    texts = "".join(f"{host_text(v, known, names, constants)}, " for v in values)
    return eval(f"lambda numbers: ({texts})", constants)


def of_extents(kernel: Any, extent: int) -> dict[Value, Any]:
    (x,) = [p for p in kernel.params if isinstance(p, Global)]
    return {x.extents[0]: extent, x.extents[1]: 8}


@pytest.mark.parametrize("seed", range(3))
def test_a_function_of_numbers_gives_the_values_for_them(seed: int) -> None:
    kernel = recorded(expressions, X, 1, 1, 1.0, True, seed=seed)
    numbers: dict[Value, int] = {p: i for i, p in enumerate(kernel.params) if i}
    *equalities, floats, truths, more = conditions(kernel)
    values = [c.source.args["a"] for c in equalities] + [*equalities, floats, truths, more]  # type: ignore[union-attr]
    compared = refused = 0
    for extent, *given in INPUTS:
        extents = of_extents(kernel, extent)
        known = extents | dict(zip(numbers, given, strict=True))
        for value in values:
            try:
                expected = host_value(value, known)
            except (KernelError, OverflowError) as fault:  # of NumPy's maximum and minimum
                with pytest.raises(type(fault)):
                    function_of([value], extents, numbers)((0, *given))
                refused += 1
                continue
            if fits_int64(value, known):
                assert function_of([value], extents, numbers)((0, *given)) == (expected,)
                compared += 1
    assert compared > 300
    assert refused > 10


def fits_int64(value: Any, known: dict[Value, Any]) -> bool:
    try:
        return evaluated(value, known)[1] < 2**63
    except KernelError:
        return True


def test_functions_of_several_values_keep_their_order() -> None:
    kernel = recorded(expressions, X, 1, 1, 1.0, True, seed=0)
    numbers: dict[Value, int] = {p: i for i, p in enumerate(kernel.params) if i}
    _, a, b, *_ = kernel.params
    rows, cols = of_extents(kernel, 5)
    function = function_of([b, rows, a, 7, cols], {rows: 5, cols: 8}, numbers)
    assert function((0, 3, 4, 0.5, True)) == (4, 5, 3, 7, 8)
    assert function((0, -1, 9, 0.5, True)) == (9, 5, -1, 7, 8)
    assert function_of([], {}, numbers)((0, 1, 2, 0.5, True)) == ()
