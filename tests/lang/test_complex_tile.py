"""What complex tiles refuse; tests/cases/complex.py has what they compute."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk


@pk.kernel
def wrong(x, *, operation):
    pk.grid(1)
    t = pk.load(x[0, 0], rows=64, cols=64)
    operation(pk.ComplexTile(t, t), t)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (lambda z, t: z + t, "add: `other` must be a complex tile, not rt<f32, 64x64>"),
        (lambda z, t: z - t, "sub: `other` must be a complex tile"),
        (lambda z, t: z.times_conj(t), "times_conj: `other` must be a complex tile"),
        (lambda z, t: z.store(t), "store: `value` must be a complex tile"),
        (lambda z, t: pk.complex_mma_AB(t, z, t), "complex_mma_AB: `acc` must be a complex tile"),
        (lambda _, t: pk.complex_mma_AB(t, t), "complex_mma_AB: `b` must be a complex tile"),
    ],
)
def test_a_real_tile_is_not_taken_for_a_complex_one(operation, message):
    with pytest.raises(pk.KernelError, match=message):
        wrong(np.zeros((64, 64), np.float32), operation=operation)
