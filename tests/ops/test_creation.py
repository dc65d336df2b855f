"""Tiles that are made from numbers: their limits."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk


def test_a_tile_far_beyond_the_registers_is_refused_at_its_line():
    @pk.kernel
    def kernel(out):
        pk.grid(1)
        pk.store(out, pk.zeros(pk.f32, 512, 1024))

    with pytest.raises(pk.KernelError, match="4096 elements per thread of its 4 warps") as caught:
        kernel(np.zeros((512, 1024), np.float32))
    assert "^^^" in str(caught.value)
    assert "smaller tiles" in str(caught.value)
