"""The interface for observers of a run: race detection, timelines, counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from pykittens.ir.op import Engine, Space

if TYPE_CHECKING:
    from pykittens.emulate.barriers import Barrier, Copy
    from pykittens.emulate.block import BlockRun
    from pykittens.emulate.elements import Elements
    from pykittens.emulate.group import Group
    from pykittens.emulate.memory import Area, Box, GlobalTile
    from pykittens.emulate.regions import SharedRegion
    from pykittens.emulate.shared import Signalled
    from pykittens.emulate.waiting import Wait
    from pykittens.ir.nodes import Call, Node
    from pykittens.ir.stages import Acquire
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
    """One method per event, called in emulated order before the effect of the event. This watcher does nothing.

    `ran`, `completes`, `finishes`, `ended` and `over` are called after it. reports_unfinished: the watcher reports work
    that groups and blocks leave unfinished; otherwise this work raises.
    """

    reports_unfinished = False

    def together(self, blocks: Sequence[BlockRun], groups: Sequence[Group]) -> None:
        """These blocks start and run at once; the blocks before them have ended."""

    def begins(self, group: Group, task: int) -> None:
        """A group begins one of the tasks of the launch."""

    def ended(self, group: Group) -> None:
        """A group is at the end of its role."""

    def over(self, blocks: Sequence[BlockRun]) -> None:
        """Blocks that ran at once have all ended."""

    # -- the lanes of a group ------------------------------------------------------------------

    def runs(self, group: Group, call: Call) -> None:
        """The lanes carry out an operation; the accesses until `ran` belong to it."""

    def ran(self, group: Group, call: Call) -> None:
        """The lanes have carried the operation out."""

    def computes(self, call: Call, args: Mapping[str, Any], result: Any) -> None:
        """An operation of the lanes, or a product, has this result."""

    def touches(
        self,
        where: GlobalTile | SharedRegion,
        box: Box | Area,
        access: Access,
        elements: Elements | None = None,
    ) -> None:
        """The operation that runs accesses memory: all of the box, or the elements of it that an index names."""

    def meets(self, group: Group) -> None:
        """The warps of the group wait for one another."""

    def fences(self, group: Group, spaces: tuple[Space, ...]) -> None:
        """The engines see what each thread of the group has written to memory of these spaces."""

    # -- engines -------------------------------------------------------------------------------

    def starts_copy(self, group: Group, call: Call, copy: Copy) -> None:
        """The copy engine starts to copy a tile to shared memory."""

    def lands(self, copy: Copy) -> None:
        """The tile lands."""

    def starts_product(self, group: Group, call: Call, args: dict[str, Any]) -> None:
        """The tensor cores start a product."""

    def starts_store(self, group: Group, call: Call, args: dict[str, Any]) -> None:
        """The copy engine starts to write a tile to a tensor."""

    def finishes(self, group: Group, node: Node, engine: Engine, pending: int, read: bool) -> None:
        """At most `pending` operations of an engine are unfinished, or with `read`, stores that still read."""

    def unwaited(self, group: Group, node: Node, product: Call) -> None:
        """A group reads the result of a product that no wait has completed."""

    def overwrites(self, group: Group, node: Node, value: Value, product: Call) -> None:
        """A group writes a value whose registers a product may still read."""

    # -- synchronisation -----------------------------------------------------------------------

    def stops(self, group: Group, wait: Wait) -> None:
        """A group stops until a condition holds."""

    def takes(self, group: Group, node: Acquire, barrier: Barrier, phase: int) -> None:
        """A group has waited for a phase of a stage's barrier (-1: for none) and takes the stage."""

    def passes(self, group: Group, call: Call, what: Signalled) -> None:
        """The condition that a call waited for holds."""

    def arrives(self, group: Group, node: Node, what: Signalled) -> None:
        """A group signals."""

    def completes(self, barrier: Barrier) -> None:
        """A phase of a barrier is complete and counted in `barrier.phases`."""

    def empties(self, regions: Sequence[SharedRegion]) -> None:
        """A stage is free: its contents are no longer valid."""


class Watchers(Watcher):
    """Several watchers as one."""

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self.watchers = tuple(watchers)
        self.reports_unfinished = any(w.reports_unfinished for w in watchers)


def _forward(name: str) -> Any:
    def forward(self: Watchers, *args: Any) -> None:
        for watcher in self.watchers:
            getattr(watcher, name)(*args)

    return forward


for _name in [n for n, event in vars(Watcher).items() if callable(event) and n[0] != "_"]:
    setattr(Watchers, _name, _forward(_name))

NOBODY = Watcher()
