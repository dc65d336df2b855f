"""The target SIMT: everything shared by GPUs whose threads run in warps of 32 lanes."""

from __future__ import annotations

from pykittens.targets.target import Target

SIMT = Target("simt", headers=("device.cuh", "math.cuh", "groups.cuh"))
