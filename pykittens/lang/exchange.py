"""Words that move values from one home to another, each through a ring: `stream`, `fetch`, `hand` and `join`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pykittens.errors import LanguageError
from pykittens.ir.build import Builder, current
from pykittens.ir.nodes import operands
from pykittens.ir.op import Mismatch
from pykittens.ir.values import RegTile, RegVector, SharedVector, TileRef, describe
from pykittens.lang.homes import Homes
from pykittens.ops.arguments import check_int32, check_word
from pykittens.ops.async_copy import load_async
from pykittens.ops.memory import check_tensor, load, store
from pykittens.ops.tagged import load_tagged

if TYPE_CHECKING:
    from pykittens.lang.pipeline import PipelineHandle


def stream(ring: PipelineHandle[Any], sources: dict[str, Any]) -> Any:
    homes, builder = _homes("stream")
    _check_sources("stream", sources, None, "producer")
    _check_way(ring, "producer", "consumers", homes)
    if filled := _filled(ring, sources, "producer", homes, builder):
        for name, src in sources.items():
            load_async(filled[name], src)
    return _drained(ring, "consumers", homes, builder)


def fetch(ring: PipelineHandle[Any], sources: dict[str, Any], tag: Any) -> Any:
    homes, builder = _homes("fetch")
    _check_sources("fetch", sources, tag, "fetchers")
    _check_way(ring, "fetchers", "consumers", homes)
    if filled := _filled(ring, sources, "fetchers", homes, builder):
        for name, src in sources.items():
            dst, part = _shares(filled[name], src, homes)
            # The copy engine takes tiles and whole vectors.
            if tag is None and (dst is filled[name] or not isinstance(dst, SharedVector)):
                load_async(dst, part)
                continue
            _check_vector(name, dst)
            with homes.at("fetchers", builder):
                if tag is None:
                    value = load(part, cols=dst.cols)
                else:
                    value = load_tagged(part, tag, cols=dst.cols)
            store(dst, value)
    return _drained(ring, "consumers", homes, builder)


def hand(ring: PipelineHandle[Any], values: dict[str, Any], to: str) -> Any:
    homes, builder = _homes("hand")
    check_word("to", to, "storer", "consumers", "fetchers")
    for name, value in values.items():
        if not isinstance(value, RegVector | RegTile):
            raise Mismatch(
                f"`{name or 'value'}` must be a vector or tile in registers, not {describe(value)}"
            )
        builder.check_use(value, "hand")
    home = homes.of_operands("hand", values.values()) or "consumers"
    if home == to:
        raise Mismatch(f"the value lives with the {to} already")
    groups = homes.contexts[home].groups
    _check_names(ring, values)
    _check_room(ring, values, groups)
    _check_way(ring, home, to, homes)
    if filled := _filled(ring, values, home, homes, builder):
        for name, value in values.items():
            dst = filled[name]
            if groups > 1 and isinstance(value, RegVector):
                dst = dst.parts(value.length)[homes.mine]
            elif groups > 1:
                dst = dst.tiles(value.rows, value.cols)[homes.mine, 0]
            store(dst, value)
    return _drained(ring, to, homes, builder)


def join(ring: PipelineHandle[Any], value: Any) -> Any:
    homes, _ = _homes("join")
    if not isinstance(value, RegVector):
        raise Mismatch(f"`value` must be a vector in registers, not {describe(value)}")
    stage = hand(ring, {"": value}, "storer")
    total = load(stage.parts(value.length)[0])
    for group in range(1, homes.contexts["consumers"].groups):
        total = total + load(stage.parts(value.length)[group])
    return total


def _homes(word: str) -> tuple[Homes, Builder]:
    builder = current(word)
    if builder.homes is None:
        raise LanguageError(
            f"{word}: moves a value from one home to another, and values have none here",
            help="`w = pk.homes(pk.warps(8))` at the start of the function gives them some; in roles, `fill` and "
            "`drain` move tiles",
        )
    return builder.homes, builder


def _filled(
    ring: PipelineHandle[Any], given: dict[str, Any], home: str, homes: Homes, builder: Builder
) -> dict[str, Any]:
    """The tiles of a stage to fill by name, in the role that fills it; in others none."""
    _check_names(ring, given)
    homes.used.add(home)
    if homes.home != home:
        return {}
    context = ring.fill()
    stage = context.take(builder, home)
    homes.taken.append((builder.stack[-1], context))
    return {name: getattr(stage, name) if name else stage for name in given}


def _drained(ring: PipelineHandle[Any], home: str, homes: Homes, builder: Builder) -> Any:
    """The stage as values of the role that drains it."""
    homes.used.add(home)
    context = ring.drain()
    stage = context.take(builder, home)
    if homes.home == home:
        homes.taken.append((builder.stack[-1], context))
    return stage


def _check_names(ring: PipelineHandle[Any], given: Iterable[str]) -> None:
    if set(given) != ring.names:
        wanted, given = (
            "one tile" if "" in names else f"the tiles {', '.join(names)}"
            for names in (ring.names, given)
        )
        raise Mismatch(f"a stage of the ring has {wanted}, not {given}")


def _check_way(ring: PipelineHandle[Any], home: str, to: str, homes: Homes) -> None:
    known = homes.ways.setdefault(ring.pipeline, (home, to))
    if known != (home, to):
        raise Mismatch(
            f"the ring moves values from the {known[0]} to the {known[1]}, not from the {home} to the {to}",
            help="a ring has one role that fills it and one that drains it; make another with pk.pipeline",
        )


def _check_sources(word: str, sources: dict[str, Any], tag: Any, home: str) -> None:
    """Raise unless the role that copies these tiles knows where they are."""
    for name, src in sources.items():
        check_tensor(name or "src", src)
    if tag is not None:
        check_int32("tag", tag)
    for value in operands({**sources, "tag": tag}):
        current(word).check_use(value, word)
        if value.home not in (None, home):
            named = f"`{value.name}`" if value.name else f"the {value.type} of the place"
            raise LanguageError(
                f"{word}: {named} lives with the {value.home}, and the {home} must know the place to copy from",
                operands=value.origin,
                help="all roles know fields, extents, numbers that are read from memory, and what follows from them",
            )


def _shares(tile: Any, src: Any, homes: Homes) -> tuple[Any, Any]:
    """The part of a tile, in shared memory and in a tensor, that a fetcher copies."""
    groups = homes.contexts["fetchers"].groups
    if groups == 1:
        return tile, src
    is_vector = isinstance(tile, SharedVector)
    axis = 1 if is_vector else 0
    side = tile.shape[axis]
    if side % (16 * groups):
        raise Mismatch(
            f"{groups} fetchers divide {'vectors' if is_vector else 'the rows of tiles'} into multiples of 16, "
            f"not {side}"
        )
    first: TileRef = src.first
    place = first.plane[-1 if is_vector else 0]
    index = tuple(i * groups + homes.mine if a == place else i for a, i in enumerate(first.index))
    part = TileRef(first.tensor, index, first.plane, first.windows)
    if is_vector:
        return tile.parts(side // groups)[homes.mine], part
    return tile.tiles(side // groups, tile.cols)[homes.mine, 0], part


def _check_vector(name: str, tile: Any) -> None:
    if not isinstance(tile, SharedVector):
        raise Mismatch(f"`{name or 'src'}` must be a vector to be loaded by its tag, not a tile")


def _check_room(ring: PipelineHandle[Any], values: dict[str, Any], groups: int) -> None:
    """Raise unless a stage has just room for the values of all groups."""
    for name, value in values.items():
        tile = ring.tile(name)
        if tile is None:
            continue
        rows, cols = value.shape if isinstance(value, RegTile) else (1, value.length)
        is_vector = isinstance(value, RegVector)
        wanted = (1, cols * groups) if is_vector else (rows * groups, cols)
        if (tile.rows, tile.cols) != wanted or tile.dtype != value.dtype:
            room = ", ".join(map(str, wanted[is_vector:]))
            raise Mismatch(
                f"the stage must have room for {describe(value)} of {_counted(groups)}, not {tile}",
                help=f"pk.{'sv' if is_vector else 'st'}(pk.{value.dtype}, {room}) has it",
            )


def _counted(groups: int) -> str:
    return "one group" if groups == 1 else f"each of {groups} groups"
