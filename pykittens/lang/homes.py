"""Values with homes: a function without roles, of which each value lives in a role of the block.

An operation runs where its operands live. Numbers that follow from arguments and fields live everywhere, and so do
vectors and tiles that are made of them, such as zeros; what is read or written without an operand that has a home lives
with the consumers. Rings move values: `stream` and `fetch` bring tiles of tensors to the consumers, `hand` and `join`
what a role has computed to another.

The function is recorded once for each role. There, a value of another role is a handle that has its type, and an
operation on it is not written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pykittens.errors import LanguageError
from pykittens.ir.build import Builder
from pykittens.ir.nodes import Block, Call, Node, Role, While, all_blocks, within
from pykittens.ir.stages import Acquire, Pipeline
from pykittens.ir.structure import memory_of, reads, uses
from pykittens.ir.values import Global, Scalar, SharedTile, TileRef, Value
from pykittens.types.dtypes import int32
from pykittens.types.tiles import RT, RV, SCALAR

if TYPE_CHECKING:
    from pykittens.lang.pipeline import StageContext
    from pykittens.lang.roles import RoleContext

# The kind of a role, and its number among those of this kind in a function.
RolePlace = tuple[str, int]


class Restart(BaseException):
    """A kernel has homes: it is recorded again, once for each of them."""


@dataclass(eq=False)
class Homes:
    """The roles of a function with homes, and one recording of it.

    contexts, roles, places: by home. group: that of the consumers, in recordings of other roles. used: the homes in
    which something runs. home: the one that is recorded, None while the function is recorded to find `used` and
    `at_heads`. default: where an operation runs whose operands have no home. at_heads: by the number of a loop and a
    name, where the value lives that the name has at the head of the loop. is_known: this recording has found nothing
    new. taken: the stages of the words, each with the block in which it is left. mine: the group of the role that is
    recorded. ways: the homes from which and to which rings move values.
    """

    contexts: dict[str, RoleContext[Any]]
    roles: dict[str, Role]
    places: dict[str, RolePlace]
    group: Scalar
    used: set[str] = field(default_factory=set)
    home: str | None = None
    default: str = "consumers"
    at_heads: dict[tuple[int, str], str] = field(default_factory=dict)
    is_known: bool = False
    loops: int = 0
    taken: list[tuple[Block, StageContext[Any]]] = field(default_factory=list)
    mine: Scalar | None = None
    ways: dict[Pipeline, tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, contexts: dict[str, RoleContext[Any]], builder: Builder) -> Homes:
        role = builder.role
        roles, places = dict[str, Role](), dict[str, RolePlace]()
        for home, context in contexts.items():
            roles[home] = context.opened(builder)
            builder.stack.pop()
            places[home] = context.kind, sum(kind == context.kind for kind, _ in places.values())
        builder.role = role
        group = Scalar(SCALAR(int32), contexts["consumers"].name)
        group.home = "consumers"
        return cls(contexts, roles, places, group)

    def begin(self, place: RolePlace | None, group: Scalar | None) -> Scalar:
        """Begin a recording for a role, whose group is `group`; returns the group of the consumers."""
        self.home = next((home for home, at in self.places.items() if at == place), None)
        self.mine, self.is_known, self.loops = group, True, 0
        self.taken.clear()
        if self.home != "consumers" or group is None:
            return self.group
        group.home = "consumers"
        return group

    def runs(self, home: str | None) -> bool:
        """Whether what lives there is written down in this recording."""
        return home is None or home == self.home

    # -- where operations run --------------------------------------------------------------------

    def of_operands(self, what: str, values: Iterable[Any]) -> str | None:
        """Where the values live, None if everywhere; raises if they live in two roles."""
        found = _by_home(values)
        if len(found) > 1:
            raise _two(what, found)
        return next(iter(found), None)

    @staticmethod
    def apart(values: Iterable[Any]) -> str | None:
        """Two roles in which these values live, None if they live in one or everywhere."""
        found = _by_home(values)
        return " and with the ".join([*found][:2]) if len(found) > 1 else None

    @property
    def consumers(self) -> tuple[Role, Scalar]:
        """The role of the consumers, and its group."""
        group = self.mine if self.home == "consumers" and self.mine is not None else self.group
        return self.roles["consumers"], group

    def append(self, call: Call, home: str | None, builder: Builder) -> None:
        """Write an operation down if this role runs it; home: that of its operands."""
        if home is None and not is_everywhere(call):
            home = self.default
        if home is not None:
            self.used.add(home)
        for value in call.results:
            value.home = home
            builder.define(value, call, builder.stack[-1])
        if self.runs(home):
            builder.append(call)

    @contextmanager
    def at(self, home: str | None, builder: Builder) -> Iterator[None]:
        """Types are those of the role of a home, where operations run without operands of any."""
        before = builder.role, self.default
        self.default = home or self.default
        builder.role = self.roles[self.default]
        try:
            yield
        finally:
            builder.role, self.default = before

    # -- loops -----------------------------------------------------------------------------------

    def next_loop(self) -> int:
        """The number of a loop, the same in all recordings."""
        self.loops += 1
        return self.loops

    def at_head(self, loop: int, name: str, before: Any) -> str | None:
        """Where a carried value lives at the head of an iteration."""
        return self.at_heads.get((loop, name)) or getattr(before, "home", None)

    def carried(self, loop: int, name: str, values: Iterable[Any]) -> str | None:
        """Where a carried value lives: before the loop, at the end of an iteration, and where its end is decided."""
        home = self.of_operands(f"`{name}` is carried by the loop", values)
        if home is not None and self.at_heads.get((loop, name)) != home:
            self.at_heads[loop, name] = home
            self.is_known = False
        return home

    # -- the end of a recording ------------------------------------------------------------------

    def finish(self, body: Block) -> None:
        """Leave each stage after its last use, and drop what depends on conditions of other roles."""
        for block, context in self.taken:
            nodes, acquire = block.nodes, context.acquire
            last = max(i for i, n in enumerate(nodes) if n is acquire or _takes(n, acquire))
            context.leave(nodes, last + 1, context.loc)
        for block in all_blocks(body):
            block.nodes[:] = [n for n in block.nodes if self._is_decided_here(n)]

    def _is_decided_here(self, node: Node) -> bool:
        """Whether this role knows the condition or the bounds of a loop or branch; raises if it has work there."""
        if isinstance(node, Call):
            return True
        away = next((v for v in deciding(node) if not self.runs(v.home)), None)
        if away is None:
            return True
        for inner in within(node):
            if isinstance(inner, Acquire) or (
                isinstance(inner, Call) and not inner.op.effects.removable
            ):
                what = inner.op.shown if isinstance(inner, Call) else inner.side
                raise LanguageError(
                    f"{what}: runs with the {self.home}, in a loop or branch that only "
                    f"the {away.home} can decide",
                    loc=inner.loc,
                    operands=away.origin,
                    help="decide by fields, extents or numbers that are read from memory, which all roles know",
                )
        return False


def deciding(node: Node) -> list[Value]:
    """The bounds or the condition of a loop or branch."""
    given = (node.condition,) if isinstance(node, While) else reads(node)
    return [v for v in given if isinstance(v, Value)]


def is_everywhere(call: Call) -> bool:
    """Whether each role can do this for itself, if the operands live everywhere: it reads at most a number.

    A vector or a tile that is made of numbers alone, such as zeros, is dropped where nothing uses it.
    """
    effects = call.op.effects
    if effects.removable:
        return bool(call.results)
    only_tensors = all(isinstance(call.args[name], TileRef | Global) for name in effects.reads)
    reads_a_number = only_tensors and effects.only_reads and not makes_tiles(call)
    return bool(call.results) and reads_a_number


def makes_tiles(call: Call) -> bool:
    return any(isinstance(x.type, RT | RV) for x in call.results)


def _takes(node: Node, acquire: Acquire) -> bool:
    """Whether a node, or one inside it, uses the stage."""
    tiles = {id(t) for t in acquire.tiles.values()}
    return any(
        isinstance(value, SharedTile) and id(memory_of(value)) in tiles
        for inner in within(node)
        for value in uses(inner)
    )


def _by_home(values: Iterable[Any]) -> dict[str, Value]:
    """The first of these values that lives in each role."""
    found: dict[str, Value] = {}
    for value in values:
        if isinstance(value, Value) and value.home is not None:
            found.setdefault(value.home, value)
    return found


def _two(what: str, found: dict[str, Value]) -> LanguageError:
    (one, a), (other, b) = list(found.items())[:2]
    name, second = (f"`{v.name}`" if v.name else f"a {v.type}" for v in (a, b))
    return LanguageError(
        f"{what}: {name} lives with the {one} and {second} with the {other}",
        operands={**a.origin, **b.origin},
        help="ring.join(...) brings the sum over the consumers to the storer, ring.hand(...) a value to another role",
    )
