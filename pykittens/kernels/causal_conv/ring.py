"""Stages of shared memory of each warp, which the copy engine fills while the warp works on those before.

Loads by lanes hold registers until they are used, and a thread has six barriers of loads, which it shares among these
and its exponentials: it waits for loads that it has just started. A stage takes neither, so that several KB of a warp
are on their way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pykittens as pk

STAGES = 2


@dataclass(frozen=True)
class Ring:
    """For each warp of a block some stages of a tile or vector of each of several tensors, and when these are full."""

    tiles: tuple[Any, ...]
    full: Any
    stages: int


def ring_of(stages: int, warps: int, *types: Any) -> Ring | None:
    """A ring of tiles and vectors of these types; None without stages."""
    if not stages:
        return None
    tiles = tuple(pk.shared(type_, count=warps * stages) for type_ in types)
    return Ring(tiles, pk.semaphore(1, count=warps * stages), stages)


@pk.function
def fill(ring: Any, w: Any, k: Any, count: Any, sources: Callable[[Any], Any]) -> None:
    """Start the copies of round k of a warp to its stage, if it has so many rounds; sources: those of a round."""
    if k < count:
        at = w * ring.stages + k % ring.stages
        full, stage = ring.full[at], [tile[at] for tile in ring.tiles]
        full.expect(*stage)
        for tile, source in zip(stage, sources(k), strict=True):
            pk.load_async(tile, source, signal=full)


def begin(ring: Any, w: Any, count: Any, sources: Callable[[Any], Any]) -> None:
    """Start the copies of the first rounds."""
    for k in range(ring.stages if ring is not None else 0):
        fill(ring, w, k, count, sources)


def taken(ring: Any, w: Any, k: Any) -> list[Any]:
    """The tiles and vectors of round k, as soon as they are full."""
    at = w * ring.stages + k % ring.stages
    ring.full[at].wait(k // ring.stages)
    return [tile[at] for tile in ring.tiles]
