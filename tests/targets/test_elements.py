"""Elements by index in machine code: one atomic instruction each, and no bounds check of an index that is known."""

from __future__ import annotations

import re

import numpy as np
import pytest

import pykittens as pk
from pykittens import int32
from pykittens.runtime import cubin, nvrtc

pytestmark = pytest.mark.skipif(
    nvrtc.available() is not None or cubin.disassembler() is None, reason="no compiler"
)
WIDTH = 1024  # 8 elements a lane


@pk.kernel
def counted(x, values, y, *, weighted: bool):
    """Bytes in bins of shared memory."""
    bins = pk.shared(pk.sv(int32, 256))
    (row,) = pk.grid(x.rows)
    pk.store(bins, pk.zeros(int32, 256))
    pk.sync()
    for j in pk.range(x.cols // WIDTH):
        weights = pk.load(values[row, j], cols=WIDTH) if weighted else 1
        pk.scatter(bins, pk.load(x[row, j], cols=WIDTH).to(int32), weights, op="add")
    pk.sync()
    pk.store(y, pk.load(bins), op="add")


def instructions(arch, weighted):
    """The names of the instructions that the kernel consists of."""
    args = np.zeros((2, 4096), np.uint8), np.zeros((2, 4096), np.int32), np.zeros(256, np.int32)
    sass = counted.compile(*args, arch=arch, weighted=weighted).sass
    return re.findall(r"/\*[0-9a-f]{4,}\*/ +(?:@!?U?P\w+ )?([A-Z0-9.]+)", sass)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_count_in_shared_memory_is_an_instruction_that_returns_nothing_per_element(
    arch, weighted
):
    found = instructions(arch, weighted)
    name = "ATOMS.ADD" if weighted else "ATOMS.POPC.INC.32"
    # The second copy of the loop is that of a row outside the matrix.
    assert found.count(name) in (8, 16)
    assert not [i for i in found if i.startswith("ATOM.") or (i.startswith("ATOMS") and i != name)]
    assert [i for i in found if i.startswith("LDG.E.64")], "eight bytes a load"


@pk.kernel
def rows_counted(index, y):
    pk.grid(1)
    pk.scatter(y, pk.load(index, cols=64, spread=pk.per_row), 1, op="add")


def test_one_of_the_lanes_that_hold_an_element_stores_it():
    args = np.zeros(64, np.int32), np.zeros(64, np.int32)
    assert "if (!(lane % 4 == 0)) continue;" in rows_counted.source(*args, arch="sm_90a")
