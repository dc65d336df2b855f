"""What any GPU whose threads run in warps of 32 lanes shares."""

from __future__ import annotations

from pykittens.targets.target import Target

SIMT = Target("simt", headers=("device.cuh", "math.cuh", "groups.cuh"))
