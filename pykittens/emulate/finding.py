"""A fault of a kernel: its kind, both accesses, what is missing between them and what to change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from pykittens.errors import Loc

_QUOTED, _INDEX = re.compile(r"`([^`]*)`"), re.compile(r"\[[^\]]*\]")


class Kind(Enum):
    """The kinds of faults. The values are the names that reports, `--ignore` and JSON use."""

    UNLANDED_COPY = "unlanded-copy"
    OVERWRITTEN_IN_USE = "overwritten-in-use"
    UNWAITED_PRODUCT = "unwaited-product"
    RACE = "race"
    MISSING_FENCE = "missing-fence"
    DEADLOCK = "deadlock"
    BARRIER_COUNT = "barrier-count"
    BYTE_COUNT = "byte-count"
    UNWRITTEN_MEMORY = "unwritten-memory"
    OUT_OF_RANGE = "out-of-range"
    BLOCK_CONFLICT = "block-conflict"
    SCHEDULE_DEPENDENT = "schedule-dependent"
    NON_FINITE = "non-finite"
    NAMED_BARRIER = "named-barrier"
    RESOURCES = "resources"
    ALIASING = "aliasing"
    MULTICAST = "multicast"
    SPEED = "speed"
    UNUSED = "unused"
    FAULT = "fault"

    @property
    def meaning(self) -> str:
        """One sentence for a table."""
        return MEANINGS[self]


MEANINGS = {
    Kind.UNLANDED_COPY: "memory is read before the copy into it is known to have landed",
    Kind.OVERWRITTEN_IN_USE: "memory or registers are written while a product or a copy still reads them",
    Kind.UNWAITED_PRODUCT: "the result of a product is read before the wait that completes it",
    Kind.RACE: "two accesses to the same memory, one of them a write, and nothing orders them",
    Kind.MISSING_FENCE: "the copy or matrix engine reads what lanes stored, with no fence_async between",
    Kind.DEADLOCK: "every group that has not ended waits",
    Kind.BARRIER_COUNT: "fills and drains, or arrivals and what a phase expects, do not match",
    Kind.BYTE_COUNT: "a phase expects more or fewer bytes than its copies bring",
    Kind.UNWRITTEN_MEMORY: "memory that nothing wrote is read, or an output is not written",
    Kind.OUT_OF_RANGE: "a coordinate is outside an axis without edges, or a tile lies wholly outside its tensor",
    Kind.BLOCK_CONFLICT: "two blocks write the same elements, or one reads what another writes, unordered",
    Kind.SCHEDULE_DEPENDENT: "the result depends on the order of the accesses",
    Kind.NON_FINITE: "finite inputs give NaN or infinity in an output",
    Kind.NAMED_BARRIER: "CUDA C++ in the kernel uses a barrier, and no check covers its use",
    Kind.RESOURCES: "more shared memory, registers, threads or blocks than the hardware has",
    Kind.ALIASING: "an output shares memory with another argument in a way the kernel does not allow",
    Kind.MULTICAST: "the blocks of a cluster copy different tiles with multicast=True",
    Kind.SPEED: "spills, serialised products, or products without the warpgroup instruction",
    Kind.UNUSED: "an argument, a pipeline or shared memory that the kernel does not use",
    Kind.FAULT: "the kernel or the call is refused for another reason",
}


# On one line, findings of these kinds are reported once for each tensor or tile.
_OF_MEMORY = {
    Kind.UNLANDED_COPY,
    Kind.OVERWRITTEN_IN_USE,
    Kind.RACE,
    Kind.MISSING_FENCE,
    Kind.UNWRITTEN_MEMORY,
    Kind.OUT_OF_RANGE,
    Kind.BLOCK_CONFLICT,
    Kind.SCHEDULE_DEPENDENT,
    Kind.UNUSED,
}


class Level(Enum):
    """An error is wrong on a GPU, a warning may be intended, a note costs time only or is about values."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Scope(Enum):
    """The runs for which a finding or a guarantee holds."""

    ALWAYS = "for all arguments, from the program itself"
    EVERY_SCHEDULE = "for every schedule with these arguments"
    TRIED = "in the schedules tried with these arguments"


@dataclass(frozen=True)
class FindingStep:
    """One of the lines of a finding: who did what there."""

    who: str
    what: str
    loc: Loc | None

    def __str__(self) -> str:
        return f"{self.who} {self.what}"


@dataclass(frozen=True)
class TileMoment:
    """A shared tile at a moment: its name, what it holds, whether a copy into it is under way, what reads it."""

    name: str
    contents: str = ""
    landing: bool = False
    readers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Moment:
    """One step of a run: who did what, and the tiles of a ring after it.

    seen: the index of the moment whose signal the group of the second access has seen by then, None for none.
    is_access: whether this is one of the two accesses of the finding.
    """

    who: str
    what: str
    loc: Loc | None
    tiles: tuple[TileMoment, ...]
    seen: int | None = None
    is_access: bool = False


@dataclass(frozen=True)
class Finding:
    """A fault: what is wrong, which edge is missing between the steps, and what to change (`help`).

    seed: the first schedule that showed the fault, None if no run was needed. schedules: how many of them showed it.
    history: what led to the fault, which may differ between schedules. moments: for two accesses to shared memory in
    the first schedule, what led from one to the other.
    """

    kind: Kind
    message: str
    steps: tuple[FindingStep, ...] = ()
    missing: str = ""
    help: str = ""
    level: Level = Level.ERROR
    scope: Scope = Scope.TRIED
    seed: int | None = None
    schedules: int = 0
    operands: Mapping[str, object] = field(default_factory=dict)
    history: tuple[FindingStep, ...] = ()
    moments: tuple[Moment, ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for findings of several schedules, blocks or groups that are one finding."""
        lines = tuple(s.loc and s.loc.path for s in self.steps)
        about = self._memory if self.kind in _OF_MEMORY else ""
        return (self.kind, self.level, lines, about if lines else self.message)

    @property
    def _memory(self) -> str:
        """The memory that the message is about: the name that it quotes first, without an index."""
        quoted = _QUOTED.search(self.message)
        return _INDEX.sub("", quoted[1]) if quoted else ""
