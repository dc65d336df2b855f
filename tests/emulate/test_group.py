"""A group finds what is read too early and numbers that do not fit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16
from pykittens.emulate import machine
from pykittens.errors import AccessError
from pykittens.ir.nodes import WaitProducts, walk
from tests.running import first, put, recorded

BF16 = np.dtype(ml_dtypes.bfloat16)
ONES = np.ones((64, 64), BF16)


def nan(*shape):
    return np.full(shape, np.nan, np.float32)


def test_a_tile_read_without_its_wait_is_a_fault_of_the_wait_pass():
    @pk.kernel
    def kernel(A, C):
        ring = pk.pipeline(1, pk.st(bf16, 64, 64))
        pk.grid(1)
        with pk.producer(), ring.fill() as t:
            pk.load_async(t, A[0])
        with pk.consumers(1):
            with ring.drain() as t:
                c = pk.mma_AB(t, t)
            pk.store(C[0], c)

    C = nan(64, 64)
    made = recorded(kernel, ONES, C)
    for role in made.roles:
        role.body.nodes[:] = [n for n in role.body.nodes if not isinstance(n, WaitProducts)]
    assert not any(isinstance(n, WaitProducts) for n in walk(made.body))
    with pytest.raises(AssertionError, match="read before its wait"):
        machine.run(made, {"A": ONES, "C": C}, {})
    assert np.isnan(C).all()


def test_coordinates_and_integers_that_overflow_are_refused():
    @pk.kernel
    def tile(x, i):
        pk.grid(1)
        pk.store(x[0], pk.load(x[i, 0], rows=64, cols=16))

    x = np.zeros((64, 16), np.float32)
    tile(x, 2**25 - 1)
    for i in (2**25, -(2**25) - 1):
        with pytest.raises(AccessError, match=r"the coordinate -?\d+ in `x` overflows an int32"):
            tile(x, i)

    @pk.kernel
    def number(out, n):
        pk.grid(1)
        put(out, 0, n * 2 - n * 2 + 1)

    assert first(number, 2**30 - 1) == 1
    with pytest.raises(AccessError, match="mul: 2147483648 overflows an int32"):
        first(number, 2**30)


def test_a_division_by_zero_is_refused_where_it_stands():
    @pk.kernel
    def kernel(out, n):
        pk.grid(1)
        put(out, 0, 7 // n)

    assert first(kernel, -2) == -4
    with pytest.raises(AccessError, match="7 is divided by 0") as caught:
        first(kernel, 0)
    assert "7 // n" in str(caught.value)
