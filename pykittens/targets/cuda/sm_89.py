"""Ada: Ampere with products of 8-bit floats."""

from __future__ import annotations

from pykittens.targets.cuda.mma_sync import MMA_SYNC_FP8
from pykittens.targets.cuda.sm_80 import SM_80
from pykittens.targets.target import Lowerings, Target

# Newer cards without a target run these programs.
LARGE = ("sm_90", "sm_100", "sm_103", "sm_107", "sm_110")

SM_89 = Target(
    "sm_89",
    arch="sm_89",
    parent=SM_80,
    shared_bytes=99 * 1024,
    headers=SM_80.headers,
    cards={card: 227 * 1024 for card in LARGE},
    lowerings=Lowerings(MMA_SYNC_FP8),
)
