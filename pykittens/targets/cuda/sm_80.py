"""Ampere: products and copies that a warp's lanes issue, and barriers in shared memory."""

from __future__ import annotations

from pykittens.targets.simt.target import SIMT
from pykittens.targets.target import TARGETS, Target

SM_80 = TARGETS["sm_80"] = Target(
    "sm_80",
    arch="sm_80",
    parent=SIMT,
    shared_bytes=163 * 1024,
    headers=(*SIMT.headers, "sm_80.cuh", "signals.cuh"),
    cards={"sm_86": 99 * 1024, "sm_87": 163 * 1024},
)
