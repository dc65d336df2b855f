"""Hopper: products of warpgroups, copies by an engine, and clusters.

Calls that the engines cannot do fall back to the lowerings of Ada and Ampere, as `engines.py` explains.
"""

from __future__ import annotations

from pykittens.targets.cuda.bulk import BULK
from pykittens.targets.cuda.send import SEND
from pykittens.targets.cuda.shared import STMATRIX
from pykittens.targets.cuda.sm_89 import SM_89
from pykittens.targets.cuda.wgmma import WGMMA
from pykittens.targets.target import Lowerings, Target

SM_90 = Target(
    "sm_90a",
    arch="sm_90a",
    parent=SM_89,
    shared_bytes=227 * 1024,
    overlaps=True,
    headers=(*SM_89.headers, "sm_90.cuh"),
    max_cluster=8,
    warpgroups=True,
    lowerings=Lowerings(
        WGMMA  # products by the engine, else mma.sync of single warps, and waits for them
        | BULK  # load_async and store_async by the engine, else by the lanes, and synchronisation with it
        | SEND  # stores of tiles to other blocks of the cluster
        | STMATRIX  # stores of 16-bit tiles to shared memory
    ),
)
