"""Ampere: products and copies by the lanes of a warp, and barriers in shared memory."""

from __future__ import annotations

from pykittens.targets.cuda.atomic import ATOMIC
from pykittens.targets.cuda.copies import COPIES
from pykittens.targets.cuda.debug import DEBUG
from pykittens.targets.cuda.flags import FLAGS
from pykittens.targets.cuda.inline import INLINE
from pykittens.targets.cuda.mma_sync import MMA_SYNC
from pykittens.targets.cuda.pipeline import PIPELINE
from pykittens.targets.cuda.prefetch import L2
from pykittens.targets.cuda.semaphores import SEMAPHORES
from pykittens.targets.cuda.shared import SHARED
from pykittens.targets.cuda.sync import SYNC
from pykittens.targets.simt.target import SIMT
from pykittens.targets.target import Lowerings, Target

SM_80 = Target(
    "sm_80",
    arch="sm_80",
    parent=SIMT,
    shared_bytes=163 * 1024,
    headers=(*SIMT.headers, "sm_80.cuh", "fills.cuh", "signals.cuh"),
    cards={"sm_86": 99 * 1024, "sm_87": 163 * 1024},
    unsupported={"send": "blocks do not see the shared memory of others before Hopper"},
    lowerings=Lowerings(
        ATOMIC
        | COPIES
        | MMA_SYNC
        | PIPELINE
        | SHARED
        | SEMAPHORES
        | SYNC
        | FLAGS
        | L2
        | DEBUG
        | INLINE
    ),
)
