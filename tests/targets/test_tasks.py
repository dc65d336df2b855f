"""The emitted loops over tasks give blocks, on the CPU, the tasks that the emulator gives them, in the same order."""

from __future__ import annotations

import ctypes
import itertools
import math
import subprocess

import numpy as np
import pytest

import pykittens as pk
from pykittens.emulate import machine
from pykittens.ir.nodes import Order
from pykittens.ir.orders import positions
from pykittens.targets.tasks import task_loop
from pykittens.types.dtypes import int32
from tests import lanes
from tests.cases.core import Case
from tests.running import UNWRITTEN, put

pytestmark = pytest.mark.skipif(lanes.COMPILER is None, reason="g++ is not installed")

DIMS = (2, 3, 5)
ORDERS = (
    pk.row_major,
    pk.column_major,
    pk.supergroup(2),
    pk.longest_first,
    pk.longest_first(1),
    pk.longest_first(4),
)
# Two below 1, some that cut the six heads, and some for all of them at once.
SECTIONS = (-3, 0, 1, 4, 6, 7, 2**31 - 1)
COMPUTED = None


@pk.kernel
def trail(out, n, *, order):
    """For each task the block that takes it, and how many it has taken before."""
    tasks = pk.persistent(DIMS, pk.longest_first(n) if order is COMPUTED else order)
    before = 0
    for i, j, k in tasks:
        row = ((i * DIMS[1] + j) * DIMS[2] + k) * 2
        put(out, row, tasks.block)
        put(out, row + 1, before)
        before = before + 1


def case_of(order: Order | None, n: int = 0) -> Case:
    return Case(
        f"{order}, {n}",
        (),
        trail,
        lambda rng: (),
        (((2 * math.prod(DIMS), 8), int32),),
        lambda *_: (),
        constants={"order": order},
        scalars=(n,),
        before=UNWRITTEN,
    )


def emulated(case: Case) -> np.ndarray:
    _, (out,) = case.arrays()
    trail(out, *case.scalars, **case.constants)
    return out


def text_of(order: Order | None, n: int) -> str:
    _, (out,) = case_of(order).arrays()
    return trail.source(out, n, order=order)


def test_the_text_gives_blocks_the_tasks_that_the_emulator_gives_them(tmp_path, monkeypatch):
    cases = [*map(case_of, ORDERS), *(case_of(COMPUTED, n) for n in SECTIONS)]
    text = lanes.Block(tmp_path, cases)
    for case, blocks in itertools.product(cases, (1, 2, 3, 7, 30)):
        monkeypatch.setattr(machine, "BLOCKS", blocks)
        _, (found,) = text.run(case, 0, blocks)
        assert np.array_equal(found, emulated(case)), (case.name, blocks)


@pytest.mark.parametrize("n", SECTIONS)
def test_a_computed_section_gives_the_order_of_a_constant_one(n):
    """Below 1 it counts as 1, and above the six heads as 6."""
    constant = pk.longest_first(min(max(n, 1), 6))
    assert np.array_equal(emulated(case_of(COMPUTED, n)), emulated(case_of(constant)))


def test_a_constant_section_is_part_of_the_text_and_a_computed_one_is_not():
    assert "const int section = task / 5 / 4 * 4;" in text_of(pk.longest_first(4), 0)
    assert "const int heads_at_once = max_nan(n, 1);" in text_of(COMPUTED, 1)
    assert text_of(COMPUTED, 1) == text_of(COMPUTED, 9)


CLUSTERS = (1, 2, 4, 8)
HARNESS = """
extern "C" int positions_%d(unsigned block, unsigned blocks, int count, int* found) {
    const struct { unsigned x; } blockIdx = {block}, gridDim = {blocks};
    int taken = 0;
    %s found[taken++] = task;
    return taken;
}
"""


@pytest.mark.parametrize("order", [pk.row_major, pk.longest_first], ids=lambda o: o.kind)
def test_the_blocks_of_a_cluster_take_the_same_positions(order, tmp_path):
    file, library = tmp_path / "loops.cpp", tmp_path / "loops.so"
    file.write_text("".join(HARNESS % (c, task_loop(order, "count", c)) for c in CLUSTERS))
    command = [str(lanes.COMPILER), "-shared", "-fPIC", "-o", str(library), str(file)]
    subprocess.run(command, check=True)
    loaded, found = ctypes.CDLL(str(library)), (ctypes.c_int * 100)()
    for cluster, count, clusters in itertools.product(CLUSTERS, (0, 1, 9, 50), (1, 2, 5, 9)):
        run = getattr(loaded, f"positions_{cluster}")
        for block in range(cluster * clusters):
            taken = found[: run(block, cluster * clusters, count, found)]
            assert taken == list(positions(order, block // cluster, clusters, count))
