"""The interface for observers of a run: race detection, timelines, counts."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from pykittens.ir.op import Engine

if TYPE_CHECKING:
    from pykittens.emulate.barriers import Barrier, Copy
    from pykittens.emulate.block import BlockRun
    from pykittens.emulate.group import Group
    from pykittens.emulate.memory import Box, GlobalTile, Region
    from pykittens.emulate.regions import SharedRegion
    from pykittens.emulate.shared import Turn
    from pykittens.emulate.waiting import Wait
    from pykittens.ir.nodes import Acquire, Call, Node
    from pykittens.ir.values import Value


class Access(Enum):
    """What an operation does to memory; `COMBINE` reads and writes in one step, as `op="add"` does."""

    READ = "reads"
    WRITE = "writes"
    COMBINE = "combines with"

    @property
    def reads(self) -> bool:
        return self is Access.READ


class Watcher:
    """An event a method, told in emulated order before it has its effect. This watcher does nothing.

    tells: it tells itself of what groups and blocks leave unfinished at their end, so that this is no error.
    """

    tells = False

    def together(self, blocks: Sequence[BlockRun], groups: Sequence[Group]) -> None:
        """These blocks start and run at once; those before them have ended."""

    def ended(self, group: Group) -> None:
        """A group is at the end of its role."""

    def over(self, blocks: Sequence[BlockRun]) -> None:
        """Blocks that ran at once have all ended."""

    # -- the lanes of a group ------------------------------------------------------------------

    def runs(self, group: Group, call: Call) -> None:
        """The lanes carry out an operation; the accesses until `ran` are its own."""

    def ran(self, group: Group, call: Call) -> None:
        """They have."""

    def touches(self, where: GlobalTile | SharedRegion, box: Box | Region, access: Access) -> None:
        """The operation that runs accesses memory."""

    def meets(self, group: Group) -> None:
        """The warps of the group wait for one another."""

    def fences(self, group: Group) -> None:
        """What each thread of the group has written is made visible to the engines."""

    # -- engines -------------------------------------------------------------------------------

    def starts_copy(self, group: Group, call: Call, copy: Copy) -> None:
        """The copy engine is asked to bring a tile."""

    def lands(self, copy: Copy) -> None:
        """It has brought it."""

    def starts_product(self, group: Group, call: Call, args: dict[str, Any]) -> None:
        """The tensor cores are asked for a product."""

    def starts_store(self, group: Group, call: Call, args: dict[str, Any]) -> None:
        """The copy engine is asked to write a tile to a tensor."""

    def finishes(self, group: Group, node: Node, engine: Engine, left: int, read: bool) -> None:
        """The group has waited until at most `left` operations of an engine are unfinished (or read, of stores)."""

    def unwaited(self, group: Group, node: Node, product: Call) -> None:
        """A group reads the result of a product that no wait has completed."""

    def overwrites(self, group: Group, node: Node, value: Value, product: Call) -> None:
        """A group makes a value anew whose registers a product still reads."""

    # -- synchronisation -----------------------------------------------------------------------

    def stops(self, group: Group, wait: Wait) -> None:
        """A group stops until something holds."""

    def takes(self, group: Group, node: Acquire, barrier: Barrier, phase: int) -> None:
        """A group has waited for a phase of a stage's barrier, -1 being before the first, and takes the stage."""

    def passes(self, group: Group, call: Call, what: Barrier | Turn | GlobalTile) -> None:
        """A group has found what the call waited for."""

    def arrives(self, group: Group, node: Node, what: Barrier | Turn | GlobalTile) -> None:
        """A group signals."""

    def completes(self, barrier: Barrier) -> None:
        """A phase of a barrier is complete; `barrier.phases` counts it."""

    def empties(self, regions: Sequence[SharedRegion]) -> None:
        """A stage is free: what it holds means nothing from here."""


class Watchers(Watcher):
    """Several watchers as one."""

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self.watchers = tuple(watchers)
        self.tells = any(w.tells for w in watchers)


def _forward(name: str) -> Any:
    def tell(self: Watchers, *args: Any) -> None:
        for watcher in self.watchers:
            getattr(watcher, name)(*args)

    return tell


for _name in [n for n, event in vars(Watcher).items() if callable(event) and n[0] != "_"]:
    setattr(Watchers, _name, _forward(_name))

NOBODY = Watcher()
