"""What an engine carries on is what the target's lowerings leave to it."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.emulate.costs.banks import calls
from pykittens.emulate.costs.engines import box_cols, is_bulk, is_wgmma
from pykittens.ir.op import Engine
from pykittens.targets.cuda import engines
from pykittens.targets.cuda.sm_90 import SM_90
from pykittens.types.dtypes import DTYPES, bf16, e4m3, f32
from tests.cases import CASES
from tests.running import recorded

SHOWN = [
    c for n, c in CASES.items() if n.startswith(("shared", "window", "mma", "by_hand", "atomic"))
]


def carried(case):
    """The copies and products of a case with their roles."""
    inputs, outputs = case.arrays()
    made = recorded(case.kernel, *inputs, *outputs, *case.scalars, **case.constants)
    return [(r, c) for r, c in calls(made) if c.op.effects.engine is not None]


def test_the_engines_are_those_of_the_target_in_every_case():
    kinds = set()
    for case in SHOWN:
        for role, call in carried(case):
            if call.op.effects.engine is Engine.PRODUCT:
                found = is_wgmma(call, role.warps)
            else:
                found = is_bulk(call)
                if found:
                    assert box_cols(engines.ends(call)[0]) is not None
            assert found == SM_90.carries(role, call), case.name
            kinds.add((call.op.effects.engine, found))
    assert len(kinds) == 6  # each engine, and lanes in place of each


@pytest.mark.parametrize("length", [16, 256, 272, 1024, 1040, 4096])
@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.kind != "bool"], ids=str)
def test_vectors_are_cut_into_the_boxes_of_the_target(length, dtype):
    @pk.kernel
    def copy(x):
        s = pk.shared(pk.sv(dtype, length))
        pk.grid(1)
        pk.store_async(x[0], s)

    ((_, call),) = calls(recorded(copy, np.zeros((1, length), dtype.numpy)))
    assert box_cols(call.args["src"]) == engines.box_cols(call.args["src"])


@pytest.mark.parametrize(
    ("dtype", "cols", "width"), [(bf16, 256, 64), (f32, 16, 16), (e4m3, 48, 16)]
)
def test_tiles_are_cut_into_panels(dtype, cols, width):
    @pk.kernel
    def copy(x):
        s = pk.shared(pk.st(dtype, 16, cols))
        pk.grid(1)
        pk.store_async(x[0], s)

    ((_, call),) = calls(recorded(copy, np.zeros((16, cols), dtype.numpy)))
    assert is_bulk(call)
    assert box_cols(call.args["src"]) == width
