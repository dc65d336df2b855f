"""Processes that share a cache folder and are killed while they compile: what is left is right or is not there."""

from __future__ import annotations

import functools
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from pykittens import settings
from pykittens.runtime import cache, cache_folder
from tools.soak.part import Part

CHECKOUT = Path(__file__).resolve().parents[2]
KERNELS = 6
# Compiles all kernels in an order of its own, again and again, and says what each is.
WRITER = """
import hashlib, random, sys
import numpy as np
import pykittens as pk
from tools.soak.cache import KERNELS, scaled

x = np.zeros((64, 64), np.float32)
order = list(range(KERNELS))
while True:
    random.Random(sys.argv[1]).shuffle(order)
    for i in order:
        made = scaled(pk, i).compile(x, x, arch="sm_90a")
        print(i, hashlib.sha256(made.cubin).hexdigest(), flush=True)
    if len(sys.argv) > 2:
        break
"""


@dataclass(frozen=True)
class Kills:
    """Writers that run at once; each is killed after some of these milliseconds and another begins.

    limit: of the folder in MiB, so that entries are also removed; 0 for none.
    """

    writers: int
    after: tuple[int, ...]
    limit: int
    seed: int


def scaled(pk, factor: int):  # type: ignore[no-untyped-def]
    """A kernel whose machine code depends on a number."""

    @pk.kernel
    def scaled(x, y):  # type: ignore[no-untyped-def]
        pk.grid(1)
        pk.store(y[0, 0], pk.load(x[0, 0], rows=64, cols=64) * (factor + 1.5))

    return scaled


def _begin(folder: str, *words: str, limit: int = 0) -> subprocess.Popen[str]:
    own = {settings.CACHE_DIR.variable: folder, "PYTHONPATH": str(CHECKOUT)}
    if limit:
        own["PYKITTENS_CACHE_LIMIT"] = str(limit)
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, *words],
        env=os.environ | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@functools.cache
def expected() -> frozenset[str]:
    """The lines of a writer that nobody disturbs, in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        output, errors = _begin(folder, "0", "once").communicate()
        assert len(output.split("\n")) == KERNELS + 1, errors
        return frozenset(output.split("\n"))


def fault(kills: Kills, on_gpu: bool) -> str:
    """What is wrong after the kills: a writer that failed, or an entry that is another kernel's or is half there."""
    rng = random.Random(kills.seed)
    with tempfile.TemporaryDirectory() as folder:
        for milliseconds in kills.after:
            writers = [
                _begin(folder, str(rng.random()), limit=kills.limit) for _ in range(kills.writers)
            ]
            time.sleep(milliseconds / 1000)
            for writer in writers:
                early = writer.poll()
                if early is None:
                    writer.kill()
                output, errors = writer.communicate()
                whole = set(output.split("\n")[:-1])
                if early is not None or not whole <= expected():
                    return f"wrong: a writer said {output!r} and {errors[-500:]!r}"
        for path in Path(folder).iterdir():
            if path.suffix == cache_folder.ENTRY and cache.read(path) is None:
                return f"wrong: {path.name} is damaged"
        output, errors = _begin(folder, "0", "once").communicate()
        if frozenset(output.split("\n")) != expected():
            return f"wrong: a reader said {output!r} and {errors[-500:]!r}"
    return ""


CACHE = Part(
    lambda seed, on_gpu: st.builds(
        Kills,
        st.integers(1, 4),
        st.lists(st.integers(300, 2500), min_size=1, max_size=6).map(tuple),
        st.sampled_from((0, 1)),
        st.integers(0, 10**6),
    ),
    fault,
    "from tools.soak.cache import Kills",
    each=5,
    emulated=20,
    on_gpu=200,
    seconds=120,
)
