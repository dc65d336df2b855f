"""Pipelines: rings of shared stages between roles, and the types of shared tiles and vectors."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from pykittens.errors import LanguageError, Loc, TypeMismatch
from pykittens.ir.build import Builder, current
from pykittens.ir.nodes import Node
from pykittens.ir.op import Mismatch, called
from pykittens.ir.operators import Arithmetic
from pykittens.ir.stages import Acquire, Leave, Pipeline, Side, Stage
from pykittens.ir.values import (
    Global,
    Int,
    RegTile,
    RegVector,
    Scalar,
    SharedTile,
    SharedVector,
    TileRef,
    describe,
    handle,
)
from pykittens.lang import exchange
from pykittens.lang.bindings import Named
from pykittens.lang.merging import declared
from pykittens.ops.arguments import check_between, check_dtype, check_size
from pykittens.ops.map import NUMBER
from pykittens.ops.ring import is_full
from pykittens.types.dtypes import DType
from pykittens.types.tiles import ST, SV, shared_tile, shared_vector

if TYPE_CHECKING:
    from pykittens.ir.views import SharedEither

    class TileType(ST):
        """The type of a shared tile; ST is that of a vector, too."""


_SHARED = "in shared memory"
T = TypeVar("T", bound=SharedTile)
S = TypeVar("S")  # what a stage is: a tile, a vector, or several


@called("st", TypeMismatch)
def st(dtype: DType, rows: int, cols: int) -> TileType:
    """The type of a shared tile of rows x cols: sides are multiples of 16, with at most 256 rows."""
    check_dtype("dtype", dtype, *NUMBER)
    check_size("rows", rows, 16, _SHARED)
    check_size("cols", cols, 16, _SHARED)
    if rows > 256:
        raise Mismatch(f"`rows` must be at most 256, the limit of the copy engine, not {rows}")
    type: Any = shared_tile(dtype, rows, cols)
    return cast("TileType", type)


@called("sv", TypeMismatch)
def sv(dtype: DType, length: int) -> SV:
    """The type of a shared vector, whose length is a multiple of 16."""
    check_dtype("dtype", dtype, *NUMBER)
    check_size("length", length, 16, _SHARED)
    return shared_vector(dtype, length)


class NamedTiles(Arithmetic, Generic[T]):
    """The named tiles of a stage of a pipeline: `stage.a`, `stage.b`."""

    def __init__(self, tiles: dict[str, T]) -> None:
        self._tiles = tiles

    @property
    def description(self) -> str:
        return f"a stage with the tiles {', '.join(self._tiles)}"

    @property
    def way_in(self) -> str:
        return f"select a tile of the stage, as in `stage.{next(iter(self._tiles))}`"

    def __getattr__(self, name: str) -> T:
        if name.startswith("__"):  # Python looks for these in any object
            raise AttributeError(name)
        try:
            return self._tiles[name]
        except KeyError:
            known = ", ".join(self._tiles)
            raise LanguageError(f"the stage has no tile `{name}`", help=f"it has {known}") from None


class StageContext(Named, Generic[S]):
    """`with pipeline.fill() as stage`: the stage while it is held.

    keys: of the tiles of a view by their names. flight: the most stages on their way with that of a fill.
    """

    def __init__(
        self, pipeline: Pipeline, side: Side, keys: dict[str, str], flight: int | None = None
    ) -> None:
        self.pipeline, self.side, self.keys, self.flight = pipeline, side, keys, flight
        self.loc = Loc.here()

    @property
    def description(self) -> str:
        return f"`{self.pipeline.name}.{self.side}()` without `with`"

    def __enter__(self) -> S:
        builder = current(self.side)
        if builder.homes is not None:
            raise LanguageError(
                f"{self.side}: the values of this function have homes, and it has no roles",
                help="`stream` and `fetch` of the ring bring tiles to the consumers, `hand` and `join` move values",
            )
        if builder.role is None and builder.kernel.has_roles:
            raise LanguageError(f"{self.side}: a stage must be taken inside a role")
        return self.take(builder)

    def take(self, builder: Builder, home: str | None = None) -> S:
        """The stage; home: the role that has it, if values have homes."""
        tiles: dict[str, SharedTile] = {}
        self.acquire = Acquire(self.pipeline, self.side, tiles, self.loc, self.flight)
        self.stage = Stage(self.acquire)
        for field, key in self.keys.items():
            tile = handle(self.pipeline.tiles[key], field or self.name, self.loc)
            assert isinstance(tile, SharedTile)
            tile.stage, tile.home = self.stage, home
            tiles[key] = tile
            builder.define(tile, self.acquire, builder.stack[-1])
        if builder.homes is None or builder.homes.runs(home):
            builder.append(self.acquire)
        named = dict(zip(self.keys, tiles.values(), strict=True))
        taken: Any = named[""] if "" in named else NamedTiles(named)
        stage: S = taken
        return stage

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            nodes = current(self.side).stack[-1].nodes
            self.leave(nodes, len(nodes), Loc.here())

    def leave(self, nodes: list[Node], at: int, loc: Loc | None) -> None:
        """End the use of the stage, at a place among these nodes."""
        self.stage.left = loc
        nodes.insert(at, Leave(self.acquire, loc))


class PipelineHandle(Named, Arithmetic, Generic[S]):
    """A pipeline as the user sees it: `fill()` takes a free stage, `drain()` a full one."""

    def __init__(self, pipeline: Pipeline, keys: dict[str, str], flight: int | None) -> None:
        self._pipeline, self._keys = pipeline, keys
        # As many as there are stages are no limit.
        self._flight = None if flight == pipeline.stages else flight

    @property
    def name(self) -> str:
        return self._pipeline.name

    @name.setter
    def name(self, name: str) -> None:
        if not any("@" in key for key in self._keys.values()):  # else it is that of a view
            self._pipeline.name = name

    @property
    def description(self) -> str:
        return f"the pipeline `{self.name or '_'}`"

    @property
    def way_in(self) -> str:
        ring = self.name or "ring"
        return f"`with {ring}.fill() as stage:` or `{ring}.drain()` takes a stage of it"

    @property
    def pipeline(self) -> Pipeline:
        """The ring, of which this may be a view."""
        return self._pipeline

    @property
    def names(self) -> Set[str]:
        """The names of the tiles of a stage; "" if it is one."""
        return self._keys.keys()

    def tile(self, name: str) -> ST | None:
        """The type of a tile of a stage."""
        return self._pipeline.tiles[self._keys[name]] if name in self._keys else None

    def fill(self) -> StageContext[S]:
        """`with ring.fill() as stage`: wait until a stage is free. The stage is full after the `with`, when all copies
        to it have landed."""
        return StageContext(self._pipeline, "fill", self._keys, self._flight)

    def drain(self) -> StageContext[S]:
        """`with ring.drain() as stage`: wait until a stage is full. The stage is free after the `with`, when the
        products that read it are complete."""
        return StageContext(self._pipeline, "drain", self._keys)

    @called("is_full")
    def is_full(self, after: int = 0) -> Scalar:
        """Whether the next fill of the ring would wait, and would after so many cycles of the clock.

        It returns as soon as a stage is free. Only a role of one warp that fills the ring may ask. What it answers
        depends on the speed of others: use it for hints, such as a prefetch of what comes next.
        """
        return is_full(self._pipeline, after)

    @called("stream")
    def stream(self, src: TileRef | Global | None = None, **named: TileRef | Global) -> S:
        """A stage with these tiles of tensors, which a producer copies ahead; it lives with the consumers.

        Only in functions with pk.homes. The producer waits for a free stage and for nothing else if no instruction
        writes the tensors; the consumers wait for the copies, and give the stage back after its last use.
        """
        stage: S = exchange.stream(self, _given(src, named))
        return stage

    @called("fetch")
    def fetch(
        self,
        src: TileRef | Global | None = None,
        *,
        tag: Int | None = None,
        **named: TileRef | Global,
    ) -> S:
        """The same by the fetchers, behind the waits of an instruction; tag: load f32 vectors whose elements have it.

        The fetchers divide tiles by their rows, and vectors.
        """
        stage: S = exchange.fetch(self, _given(src, named), tag)
        return stage

    @called("hand")
    def hand(
        self,
        value: RegVector | RegTile | None = None,
        *,
        to: str = "storer",
        **named: RegVector | RegTile,
    ) -> S:
        """A stage with what each group of a role has computed; it lives with the role `to`.

        to: "storer", "consumers" or "fetchers". The stage has the vectors or tiles of the groups one after another,
        tiles by rows.
        """
        stage: S = exchange.hand(self, _given(value, named), to)
        return stage

    @called("join")
    def join(self, value: RegVector) -> RegVector:
        """The sum of the vectors of all groups of consumers; it lives with the storer. A stage has all of them."""
        total: RegVector = exchange.join(self, value)
        return total

    @called("view")
    def view(
        self, tile: ST | None = None, *, flight: int | None = None, **tiles: ST
    ) -> PipelineHandle[Any]:
        """The same ring with other tiles in the memory of its stages; a stage has room for the largest of its views.

        What is filled in one view is drained in the same: tiles of other types are laid out differently. flight: the
        most stages on their way when one is filled in this view, by default as in the ring.
        """
        return declared("view", lambda: self._view(_fields(tile, tiles), flight))

    def _view(self, fields: dict[str, ST], flight: int | None) -> PipelineHandle[Any]:
        if current("view").role is not None:
            raise LanguageError("view: must be before the roles, which share the ring")
        known = self._pipeline.tiles
        number = 1 + max(int(key.partition("@")[2] or 0) for key in known)
        keys = {name: f"{name}@{number}" for name in fields}
        known |= {keys[name]: type_ for name, type_ in fields.items()}
        if flight is not None:
            check_between("flight", flight, 1, self._pipeline.stages)
        return PipelineHandle(self._pipeline, keys, flight or self._pipeline.flight)


Ring = PipelineHandle[Any]


@overload
def pipeline(  # type: ignore[overload-overlap]
    stages: int, tile: SV, *, reuse: Ring | None = None, flight: int | None = None
) -> PipelineHandle[SharedVector]: ...
@overload
def pipeline(  # type: ignore[overload-overlap]
    stages: int, tile: ST, *, reuse: Ring | None = None, flight: int | None = None
) -> PipelineHandle[SharedTile]: ...
@overload
def pipeline(  # type: ignore[overload-overlap]
    stages: int, *, reuse: Ring | None = None, flight: int | None = None, **tiles: TileType
) -> PipelineHandle[NamedTiles[SharedTile]]: ...
@overload
def pipeline(  # type: ignore[overload-overlap]
    stages: int, *, reuse: Ring | None = None, flight: int | None = None, **tiles: SV
) -> PipelineHandle[NamedTiles[SharedVector]]: ...
@overload
def pipeline(
    stages: int, *, reuse: Ring | None = None, flight: int | None = None, **tiles: ST
) -> PipelineHandle[NamedTiles[SharedEither]]: ...
@called("pk.pipeline")
def pipeline(
    stages: int,
    tile: ST | None = None,
    *,
    reuse: Ring | None = None,
    flight: int | None = None,
    **tiles: ST,
) -> PipelineHandle[Any]:
    """A ring of `stages` stages of shared memory, each of one tile or of several named tiles.

    `reuse` is a pipeline whose memory this one takes over; its last use precedes the first fill of this one.

    With `flight`, at most so many stages are on their way at a time, from 1 to `stages`: a fill waits for the copies of
    the fill `flight` before it. A ring that runs far ahead then does not fill the queues of the memory, in which other
    loads would wait.
    """
    builder = current("pipeline")
    if builder.merging is not None and not builder.merging.is_kernel and reuse is not None:
        raise LanguageError(
            "pk.pipeline: `reuse` takes over the memory of a ring for good, and the next instruction needs that ring "
            "again"
        )
    return declared("pk.pipeline", lambda: _pipeline(stages, tile, reuse, flight, tiles))


def _pipeline(
    stages: int, tile: ST | None, reuse: Ring | None, flight: int | None, tiles: dict[str, ST]
) -> PipelineHandle[Any]:
    builder = current("pipeline")
    if builder.role is not None:
        raise LanguageError("pk.pipeline: must be before the roles, which share it")
    check_size("stages", stages)
    if reuse is not None and not isinstance(reuse, PipelineHandle):
        raise Mismatch(f"`reuse` must be a pipeline, not {describe(reuse)}")
    fields = _fields(tile, tiles)
    if flight is not None:
        check_between("flight", flight, 1, stages)
    below = reuse._pipeline if reuse is not None else None
    ring = Pipeline("", stages, fields, Loc.here(), below, flight)
    builder.kernel.pipelines.append(ring)
    handle: PipelineHandle[Any] = PipelineHandle(
        ring, dict(zip(fields, fields, strict=True)), flight
    )
    return handle


def _given(one: Any, named: dict[str, Any]) -> dict[str, Any]:
    """What is moved through a stage, by the names of its tiles; "" if it is one tile."""
    if (one is None) == (not named):
        raise Mismatch("takes one tile or value, or one for each name of the ring's tiles")
    return {"": one} if one is not None else named


def _fields(tile: ST | None, tiles: dict[str, ST]) -> dict[str, ST]:
    """The types of the tiles of a stage by name; "" if it is one tile."""
    if (tile is None) == (not tiles):
        raise Mismatch(
            f"`tile` must be one tile, or left out for named tiles, not {describe(tile)}",
            help="pk.pipeline(3, pk.st(...)), or pk.pipeline(3, a=pk.st(...), b=pk.st(...))",
        )
    fields = {"": tile} if tile is not None else tiles
    for name, type_ in fields.items():
        if not isinstance(type_, ST):
            raise Mismatch(
                f"`{name or 'tile'}` must be a shared tile such as pk.st(pk.bf16, 128, 64), "
                f"not {describe(type_)}"
            )
    return fields
