"""The kernels that type checkers accept are kernels: the emulator runs them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from tests.typing import right

RNG = np.random.default_rng(0)
SHORT = ml_dtypes.bfloat16


def array(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def ints(*shape: int) -> Any:
    return np.zeros(shape, np.int32)


MATRICES = array(128, 64, dtype=SHORT), array(256, 64, dtype=SHORT), array(128, 256, dtype=SHORT)
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "softmax": ((array(9, 100), array(9, 100)), {}),
    "matvec": ((array(40, 300, dtype=SHORT), array(300), array(40)), {}),
    "matmul": ((*MATRICES, array(1, 256)), {}),
    "attention": ((*array(4, 1, 2, 100, 64, dtype=SHORT),), {"causal": True}),
    "steps_of_softmax": ((array(64, 128), array(64, 64), 1.0), {}),
    "totals": ((array(2, 100), array(2, 2), array(2), ints(2)), {}),
    "rows_by_index": ((array(8, 32), ints(1, 64), ints(256), array(64, 32)), {}),
    "elements": ((array(64, 64), array(64, 64), right.Weights(array(64), 0.5)), {}),
    "by_hand": ((array(64, 128), array(64, 128)), {}),
    "scaled": ((array(64, 64), array(1, 64), array(64, 64)), {}),
    "odds_and_ends": ((array(64, 64), array(64, 64), ints(1)), {}),
    "from_template": (MATRICES, {}),
}


def test_each_kernel_has_a_call() -> None:
    kernels = {name for name, x in vars(right).items() if isinstance(x, pk.KernelFunction)}
    assert kernels == CALLS.keys()


@pytest.mark.parametrize("name", CALLS)
def test_the_kernel_runs(name: str) -> None:
    args, constants = CALLS[name]
    getattr(right, name)(*args, **constants)
