"""The target SIMT: the lowerings of all GPUs whose threads run in warps of 32 lanes."""

from __future__ import annotations

from pykittens.targets.simt.convert import CONVERT
from pykittens.targets.simt.creation import CREATION
from pykittens.targets.simt.map import MAP
from pykittens.targets.simt.mask import MASK
from pykittens.targets.simt.memory import MEMORY
from pykittens.targets.simt.random import RANDOM
from pykittens.targets.simt.reduce import REDUCE
from pykittens.targets.simt.scan import SCAN
from pykittens.targets.simt.shape import SHAPE
from pykittens.targets.simt.sort import SORT
from pykittens.targets.target import Lowerings, Target

SIMT = Target(
    "simt",
    headers=("device.cuh", "skewed.cuh", "math.cuh", "groups.cuh"),
    lowerings=Lowerings(
        CONVERT | CREATION | MAP | MASK | MEMORY | RANDOM | REDUCE | SCAN | SHAPE | SORT
    ),
)
