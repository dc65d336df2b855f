"""The operands of the calls of a kernel, sorted by how they are read: a launch runs most calls many times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pykittens.ir.nodes import Call
from pykittens.ir.stages import Pipeline
from pykittens.ir.values import Global, TileRef, Value
from pykittens.types.tiles import SCALAR

TENSORS = (TileRef, Global)  # a tuple is tested faster than a union


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of a tensor: the values that locate it, a window's with its stated end."""

    name: str
    index: tuple[Any, ...]
    plane: tuple[int, ...]
    windows: dict[int, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Operands:
    """The operands of a call, and its results.

    given: all by name, constants as they are. values: those that the group holds. others: those that are found when
    they are read: tensors, rings, tuples with values. results: each with whether it is a number. plain: the lanes
    compute the results at once, and nothing waits, signals or is ordered. elsewhere: those that lie in the block of the
    cluster that the operand `block` names, if it does.
    """

    given: dict[str, Any]
    values: tuple[tuple[str, Value], ...]
    others: tuple[tuple[str, Any], ...]
    results: tuple[tuple[Value, bool], ...]
    plain: bool
    elsewhere: tuple[str, ...]


def operands_of(call: Call) -> Operands:
    """The operands of a call of a lowered kernel, sorted once."""
    if call.prepared is None:
        call.prepared = _sorted(call)
    found: Operands = call.prepared
    return found


def _sorted(call: Call) -> Operands:
    values: list[tuple[str, Value]] = []
    others: list[tuple[str, Any]] = []
    for name, thing in call.args.items():
        if isinstance(thing, Value) and not isinstance(thing, Global):
            values.append((name, thing))
        elif not _is_constant(thing):
            others.append((name, tile_of(thing) if isinstance(thing, TENSORS) else thing))
    results = tuple((r, isinstance(r.type, SCALAR)) for r in call.results)
    effects = call.op.effects
    plain = effects.engine is effects.finishes is None and not (
        effects.flags or effects.fences or effects.meets
    )
    elsewhere = effects.writes + effects.signals if call.names_block else ()
    return Operands(dict(call.args), tuple(values), tuple(others), results, plain, elsewhere)


def _is_constant(thing: Any) -> bool:
    if isinstance(thing, tuple):
        return all(map(_is_constant, thing))
    return not isinstance(thing, (*TENSORS, Pipeline, Value))


def tile_of(tensor: TileRef | Global) -> Tile:
    """The tile that an operand names; the first one of a tensor."""
    ref = tensor.first
    windows = {axis: (*window.bounds, window.stop) for axis, window in ref.windows.items()}
    return Tile(ref.tensor.name, ref.index, ref.plane, windows)
