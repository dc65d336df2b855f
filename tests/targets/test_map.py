"""Operations element by element compile for operands of every kind."""

import numpy as np
import pytest

import pykittens as pk
from pykittens.runtime import nvrtc
from tests.targets.compiling import matrix

F32 = np.dtype(np.float32)


@pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
def test_a_mask_with_a_run_time_offset():
    @pk.kernel
    def band(x, y, offset):
        row, col = pk.grid(*y.tiles(64, 64))
        t = pk.load(x[row, col], rows=64, cols=64)
        first = {"row": row * 64, "col": col * 64}
        pk.store(y[row, col], pk.mask(t, **first, cols=x.cols, causal=True, offset=-offset))

    assert (
        band.compile(matrix(64, 64, dtype=F32), matrix(64, 64, dtype=F32), 3).resources.frame == 0
    )
