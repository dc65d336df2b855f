"""Pipelines: rings of shared stages between roles, and the types of shared tiles."""

from __future__ import annotations

from typing import Any

from pykittens.errors import LanguageError, Loc, TypeMismatch
from pykittens.ir.build import current
from pykittens.ir.nodes import Acquire, Leave, Pipeline, Side, Stage
from pykittens.ir.op import Mismatch, called
from pykittens.ir.operators import Arithmetic
from pykittens.ir.values import SharedTile, describe, handle
from pykittens.lang.bindings import Named
from pykittens.ops.arguments import check_size
from pykittens.types.dtypes import DType
from pykittens.types.tiles import ST, SV, shared_tile, shared_vector


@called("st", TypeMismatch)
def st(dtype: DType, rows: int, cols: int) -> ST:
    """A shared tile of rows x cols, as a pipeline takes it; sides are multiples of 16 and at most 256 rows."""
    if not isinstance(dtype, DType) or dtype.kind == "bool":
        raise Mismatch(f"`dtype` must be a dtype of numbers, not {describe(dtype)}")
    for name, side in (("rows", rows), ("cols", cols)):
        _check_side(name, side)
    if rows > 256:
        raise Mismatch(
            f"`rows` must be at most 256, what the copy engine moves at a time, not {rows}"
        )
    return shared_tile(dtype, rows, cols)


@called("sv", TypeMismatch)
def sv(dtype: DType, length: int) -> SV:
    """A shared vector, as a pipeline takes it beside tiles or alone; its length is a multiple of 16."""
    if not isinstance(dtype, DType) or dtype.kind == "bool":
        raise Mismatch(f"`dtype` must be a dtype of numbers, not {describe(dtype)}")
    _check_side("length", length)
    return shared_vector(dtype, length)


def _check_side(name: str, side: Any) -> None:
    if not isinstance(side, int) or isinstance(side, bool) or side <= 0 or side % 16:
        raise Mismatch(
            f"`{name}` must be a positive multiple of 16, known when the kernel is compiled, "
            f"not {describe(side)}",
            help="pk.static(...) makes an extent a compile-time constant"
            if not isinstance(side, int)
            else None,
        )
    check_size(name, side)


class NamedTiles(Arithmetic):
    """The tiles of a stage of a pipeline made with names: `stage.a`, `stage.b`."""

    def __init__(self, tiles: dict[str, SharedTile]) -> None:
        self._tiles = tiles

    @property
    def description(self) -> str:
        return f"a stage with the tiles {', '.join(self._tiles)}"

    @property
    def way_in(self) -> str:
        return f"its tiles are named, as in `stage.{next(iter(self._tiles))}`"

    def __getattr__(self, name: str) -> SharedTile:
        if name.startswith("__"):  # what Python asks of any object
            raise AttributeError(name)
        try:
            return self._tiles[name]
        except KeyError:
            known = ", ".join(self._tiles)
            raise LanguageError(f"the stage has no tile `{name}`", help=f"it has {known}") from None


class _StageContext(Named):
    """`with pipeline.fill() as stage`: the stage while it is held."""

    def __init__(self, pipeline: Pipeline, side: Side) -> None:
        self.pipeline, self.side = pipeline, side
        self.loc = Loc.here()

    @property
    def description(self) -> str:
        return f"`{self.pipeline.name}.{self.side}()` without `with`"

    def __enter__(self) -> Any:
        builder = current(self.side)
        if builder.role is None and builder.kernel.has_roles:
            raise LanguageError(f"{self.side}: a stage is taken inside a role")
        tiles: dict[str, SharedTile] = {}
        self.acquire = Acquire(self.pipeline, self.side, tiles, self.loc)
        self.stage = Stage(self.acquire)
        for field, type_ in self.pipeline.tiles.items():
            tile = handle(type_, field or self.name, self.loc)
            assert isinstance(tile, SharedTile)
            tile.stage = self.stage
            tiles[field] = tile
        builder.append(self.acquire, list(tiles.values()))
        return tiles[""] if "" in tiles else NamedTiles(tiles)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            builder = current(self.side)
            loc = Loc.here()
            self.stage.left = loc
            builder.append(Leave(self.acquire, loc))


class Ring(Named, Arithmetic):
    """A pipeline in the user's hand: `fill()` takes a free stage, `drain()` a full one."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    @property
    def name(self) -> str:
        return self._pipeline.name

    @name.setter
    def name(self, name: str) -> None:
        self._pipeline.name = name

    @property
    def description(self) -> str:
        return f"the pipeline `{self.name or '_'}`"

    @property
    def way_in(self) -> str:
        ring = self.name or "ring"
        return f"`with {ring}.fill() as stage:` or `{ring}.drain()` takes a stage of it"

    def fill(self) -> _StageContext:
        """`with ring.fill() as stage`: wait until a stage is free; it is full when the `with` is left and all
        copies have landed."""
        return _StageContext(self._pipeline, "fill")

    def drain(self) -> _StageContext:
        """`with ring.drain() as stage`: wait until a stage is full; it is given back when the `with` is left and
        the products that read it are done."""
        return _StageContext(self._pipeline, "drain")


@called("pk.pipeline")
def pipeline(
    stages: int, tile: ST | None = None, *, reuse: Ring | None = None, **tiles: ST
) -> Ring:
    """A ring of `stages` stages of shared memory: of one tile, or of several by name.

    `reuse` takes over the memory of a pipeline that is done with when this one is first filled.
    """
    builder = current("pipeline")
    if builder.role is not None:
        raise LanguageError("pk.pipeline: stands before the roles, which share it")
    check_size("stages", stages)
    if reuse is not None and not isinstance(reuse, Ring):
        raise Mismatch(f"`reuse` must be a pipeline, not {describe(reuse)}")
    if (tile is None) == (not tiles):
        raise Mismatch(
            f"`tile` must be one tile, or left out for tiles by name, not {describe(tile)}",
            help="pk.pipeline(3, pk.st(...)), or pk.pipeline(3, a=pk.st(...), b=pk.st(...))",
        )
    fields = {"": tile} if tile is not None else tiles
    for name, type_ in fields.items():
        if not isinstance(type_, ST):
            raise Mismatch(
                f"`{name or 'tile'}` must be a shared tile such as pk.st(pk.bf16, 128, 64), "
                f"not {describe(type_)}"
            )
    made = Pipeline("", stages, fields, Loc.here(), reuse._pipeline if reuse is not None else None)
    builder.kernel.pipelines.append(made)
    return Ring(made)
