"""Rings of shared stages, and the nodes that take their stages and give them back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pykittens.errors import Loc
from pykittens.ir.values import SharedTile
from pykittens.types.tiles import ST

Side = Literal["fill", "drain"]


@dataclass(eq=False)
class Pipeline:
    """A ring of shared stages; `reuse`: the pipeline whose memory it takes over.

    tiles: those of a stage by name. Names of further views, whose tiles share the memory of the first, end in @ and a
    number.
    """

    name: str
    stages: int
    tiles: dict[str, ST]
    loc: Loc | None = None
    reuse: Pipeline | None = None
    flight: int | None = None  # the most stages whose copies have not landed

    def __str__(self) -> str:
        return self.name

    @cached_property
    def offsets(self) -> dict[str, tuple[int, int]]:
        """The bytes from the start of a stage to each tile and to its end."""
        alignment, ends, found = max(t.alignment for t in self.tiles.values()), Counter[str](), {}
        for key, tile in self.tiles.items():
            view = key.partition("@")[2]
            start, ends[view] = ends[view], ends[view] + -(-tile.bytes // alignment) * alignment
            found[key] = start, ends[view]
        return found

    @property
    def contents(self) -> str:
        """The tiles of a stage, in each view."""
        views: dict[str, list[str]] = {}
        for key, tile in self.tiles.items():
            name, _, view = key.partition("@")
            views.setdefault(view, []).append(f"{name}: {tile}" if name else str(tile))
        return " or ".join(", ".join(tiles) for tiles in views.values())

    @property
    def stage_bytes(self) -> int:
        return max(end for _, end in self.offsets.values())

    def tile_offset(self, name: str) -> int:
        """Byte offset of a tile from the start of its stage."""
        return self.offsets[name][0]


@dataclass(eq=False)
class Acquire:
    """Wait until a stage is free (fill) or full (drain) and take it.

    flight: the most stages on their way with that of this fill.
    """

    pipeline: Pipeline
    side: Side
    tiles: dict[str, SharedTile]
    loc: Loc | None = None
    flight: int | None = None


@dataclass(eq=False)
class Stage:
    """A stage that the user holds; `left` is the line at which its `with` ended."""

    acquire: Acquire
    left: Loc | None = None


@dataclass(eq=False)
class Leave:
    """The end of a `with`: the user no longer uses the stage."""

    acquire: Acquire
    loc: Loc | None = None


@dataclass(eq=False)
class GiveBack:
    """Return drained stages of a pipeline, oldest first, until `keep` are held.

    These are `count` stages; if not `exact`, they may be fewer in the first iterations of a loop. fences: lanes of the
    role write to drained stages, which the engine may fill again afterwards.
    """

    pipeline: Pipeline
    keep: int
    count: int
    exact: bool
    loc: Loc | None = None
    fences: bool = False
