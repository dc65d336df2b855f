"""Exchanges if little shared memory is left: in several passes, or an error if one pass does not fit."""

from __future__ import annotations

import re

import numpy as np
import pytest

import pykittens as pk
from pykittens.targets.architectures import TARGETS
from tests import lanes
from tests.cases import CASES

needs_compiler = pytest.mark.skipif(lanes.COMPILER is None, reason="g++ is not installed")

MOVED = [
    "shape-transpose-carried",
    "shape-transpose-bf16-64x128-4",
    "shape-transpose-int8-64x64-4",
    "shape-transpose-int64-64x64-4",
    "shape-part-0-7-int8-4000-8",
    "shape-part-3-100-bf16-1000-4",
    "shape-concat-bf16-2000_2001-8",
    "shape-spread-row-column-f32-64-4",
]


@needs_compiler
def test_what_has_no_room_at_once_goes_in_turns(tmp_path, monkeypatch):
    cases = [CASES[name] for name in MOVED]
    monkeypatch.setattr(TARGETS["sm_90a"], "shared_bytes", 12 * 1024)
    block = lanes.Block(tmp_path, cases)
    texts = [block.sources[name].program for name in MOVED]
    assert sum("int first = 0" in text for text in texts) >= 3
    for case in cases:
        assert block.sources[case.name].shared_bytes <= 12 * 1024
        for seed in range(3):
            case.check(*block.run(case, seed))


def test_an_exchange_without_room_is_told_by_its_name(monkeypatch, golden):
    @pk.kernel
    def turn(x, y):
        pk.grid(1)
        pk.store(y[0], pk.transpose(pk.load(x[0], rows=64, cols=128)))

    monkeypatch.setattr(TARGETS["sm_90a"], "shared_bytes", 4 * 1024)
    x, y = np.zeros((64, 128), np.float32), np.zeros((128, 64), np.float32)
    with pytest.raises(pk.KernelError) as caught:
        turn.source(x, y)
    text = re.sub(r"\S*(tests/targets/test_exchange.py):\d+", r"\1:LINE", str(caught.value))
    golden("errors/no_room_to_exchange.txt", f"{type(caught.value).__name__}: {text}\n")


def test_a_tile_of_one_warp_needs_no_barrier_of_warps():
    @pk.kernel(warps=1)
    def turn(x, y):
        pk.grid(1)
        pk.store(y[0], pk.transpose(pk.load(x[0], rows=16, cols=16)))

    x = np.zeros((16, 16), np.float32)
    program = turn.emitted(x, x.copy()).program
    assert "group_sync" not in program
    assert program.count("__syncwarp();") == 2
