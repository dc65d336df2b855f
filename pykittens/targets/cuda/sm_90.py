"""Hopper: products of warpgroups, copies by an engine of their own, and clusters."""

from __future__ import annotations

from pykittens.targets.cuda.sm_89 import SM_89
from pykittens.targets.target import TARGETS, Target

SM_90 = TARGETS["sm_90a"] = Target(
    "sm_90a",
    arch="sm_90a",
    parent=SM_89,
    shared_bytes=227 * 1024,
    overlaps=True,
    headers=(*SM_89.headers, "sm_90.cuh"),
    max_cluster=8,
    warpgroups=True,
)
