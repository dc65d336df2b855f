"""Emitted code that moves elements between lanes, run on the CPU with all the lanes of a block."""

from __future__ import annotations

import pytest

from pykittens.ops.core import OPS
from pykittens.targets.simt.scratch import declared
from tests import lanes
from tests.cases import CASES

pytestmark = pytest.mark.skipif(lanes.COMPILER is None, reason="g++ is not installed")

# Beside the operations that pass data through scratch memory.
FAMILIES = (
    "creation",
    "elements",
    "gather-",
    "mask",
    "plane-by_index",
    "plane-columns",
    "plane-tile",
    "plane-transposed",
    "random",
    "reduce",
    "scan",
    "scatter-",
    "shape",
    "skewed-beside",
    "skewed-rows",
    "skewed-parts",
    "skewed-middle",
    "skewed-stages",
    "skewed-turned-f32",
    "skewed-turned-int8",
    "transposed-tensor",
    "views-reversed",
    "views-elements",
    "views-largest",
    "views-rows",
    "window-tile",
)
# Parts of names of cases of atomics that are written in PTX without a body for the CPU.
IN_PTX = {"async", "block_total", "last_adds_up", "load", "returning"}
TOGETHER = 40
ALL = {
    name: case
    for name, case in CASES.items()
    if (
        not IN_PTX & set(name.split("-"))
        if name.startswith("atomic-")
        else name.startswith(FAMILIES) or any(o in OPS and declared(OPS[o]) for o in case.ops)
    )
}
# One dtype of each width stands for the others.
OTHER_DTYPES = {"f16", "e5m2", "int8", "int64"}
SOME, OTHERS = (
    [c for n, c in ALL.items() if bool(OTHER_DTYPES & set(n.split("-"))) is other]
    for other in (False, True)
)


def check(cases, folder):
    block = lanes.Block(folder, cases)
    for case in cases:
        for seed in range(3):
            case.check(*block.run(case, seed))


@pytest.mark.parametrize("first", range(0, len(SOME), TOGETHER))
def test_lanes_and_warps_meet_and_hold_the_right_elements(first, tmp_path):
    check(SOME[first : first + TOGETHER], tmp_path)


@pytest.mark.units
@pytest.mark.parametrize("first", range(0, len(OTHERS), TOGETHER))
def test_lanes_and_warps_meet_and_hold_the_right_elements_of_other_dtypes(first, tmp_path):
    check(OTHERS[first : first + TOGETHER], tmp_path)
