"""Blocks at once on a multiprocessor, against what the vendor's calculator says."""

from __future__ import annotations

import pytest

from pykittens.checker.proofs.occupancy import Load, occupancy
from pykittens.types.devices import A100, H200, L40S


@pytest.mark.parametrize(
    ("load", "device", "blocks", "limiting"),
    [
        (Load(384, 213 * 1024, 168), H200, 1, ("shared memory", "registers")),
        (Load(256, 0, 32), H200, 8, ("threads", "registers")),
        (Load(256, 0, 33), H200, 6, ("registers",)),  # 40 registers, 48 warps
        (Load(256, 0, 255), H200, 1, ("registers",)),
        (Load(1024, 0, 64), H200, 1, ("registers",)),
        (Load(32, 0, 16), H200, 32, ("blocks",)),
        (Load(32, 0, 16), L40S, 24, ("blocks",)),
        (Load(96, 0, 168), H200, 4, ("registers",)),  # 12 warps fit, in fours
        (Load(128, 56 * 1024), H200, 4, ("shared memory",)),  # 57 KiB with what the system takes
        (Load(128, 56 * 1024 + 1), H200, 3, ("shared memory",)),
        (Load(128, 227 * 1024), H200, 1, ("shared memory",)),
        (Load(128, 227 * 1024 + 16), H200, 0, ("shared memory",)),
        (Load(128, 163 * 1024), A100, 1, ("shared memory",)),
        (Load(128, 164 * 1024), A100, 0, ("shared memory",)),
        (Load(1024, 0, 80), H200, 0, ("registers",)),
        (Load(1024, 0), L40S, 1, ("threads",)),
    ],
)
def test_blocks_at_once(load, device, blocks, limiting):
    held = occupancy(load, device)
    assert held.blocks == blocks
    assert held.limiting == limiting
    assert held.warps == blocks * load.threads // 32


def test_registers_are_no_limit_before_they_are_known():
    assert "registers" not in occupancy(Load(128, 0), H200).limits
