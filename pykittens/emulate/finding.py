"""A fault of a kernel: its kind, both accesses, what is missing between them and what to change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from pykittens.errors import Loc

_QUOTED, _INDEX = re.compile(r"`([^`]*)`"), re.compile(r"\[[^\]]*\]")


class Kind(Enum):
    """What kernels do wrong; the values are the names by which a report, `--ignore` and JSON know them."""

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
    NAMED_BARRIER = "named-barrier"
    RESOURCES = "resources"
    ALIASING = "aliasing"
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
    Kind.MISSING_FENCE: "what lanes stored is read by the copy or matrix engine with no fence_async between",
    Kind.DEADLOCK: "every group that is left waits",
    Kind.BARRIER_COUNT: "fills and drains, or arrivals and what a phase expects, do not match",
    Kind.BYTE_COUNT: "a phase expects other bytes than the copies bring",
    Kind.UNWRITTEN_MEMORY: "memory is read that nothing wrote, or an output is not written",
    Kind.OUT_OF_RANGE: "a leading coordinate is outside its axis, or a tile lies wholly outside its tensor",
    Kind.BLOCK_CONFLICT: "two blocks write the same elements, or one reads what another writes, unordered",
    Kind.SCHEDULE_DEPENDENT: "the result depends on who comes first",
    Kind.NAMED_BARRIER: "CUDA C++ in the kernel uses a barrier, and no check covers its use",
    Kind.RESOURCES: "more shared memory, registers, threads or blocks than the hardware has",
    Kind.ALIASING: "an output shares memory with another argument in a way the kernel does not allow",
    Kind.FAULT: "the kernel or the call is refused for another reason",
}


# Those that a line may show of several tensors or tiles, each of which is told.
_OF_MEMORY = {
    Kind.UNLANDED_COPY,
    Kind.OVERWRITTEN_IN_USE,
    Kind.RACE,
    Kind.MISSING_FENCE,
    Kind.UNWRITTEN_MEMORY,
    Kind.OUT_OF_RANGE,
    Kind.BLOCK_CONFLICT,
    Kind.SCHEDULE_DEPENDENT,
}


class Level(Enum):
    """How bad: an error is wrong on a GPU, a warning may be meant, a note costs time only."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Scope(Enum):
    """For what an answer holds."""

    ALWAYS = "for all arguments, from the program itself"
    EVERY_SCHEDULE = "for every schedule with these arguments"
    TRIED = "in the schedules tried with these arguments"


@dataclass(frozen=True)
class Step:
    """One of the places of a finding: who did what there."""

    who: str
    what: str
    loc: Loc | None

    def __str__(self) -> str:
        return f"{self.who} {self.what}"


@dataclass(frozen=True)
class Finding:
    """Something wrong. `message` says what, `missing` the edge between the steps, `help` what to change.

    seed: the first schedule that showed it, None where none is needed; schedules: how many of those tried did.
    """

    kind: Kind
    message: str
    steps: tuple[Step, ...] = ()
    missing: str = ""
    help: str = ""
    level: Level = Level.ERROR
    scope: Scope = Scope.TRIED
    seed: int | None = None
    schedules: int = 0
    operands: Mapping[str, object] = field(default_factory=dict)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for what is one finding in several schedules, blocks or groups."""
        places = tuple(str(s.loc) for s in self.steps)
        about = self._memory if self.kind in _OF_MEMORY else ""
        return (self.kind, self.level, places, about if places else self.message)

    @property
    def _memory(self) -> str:
        """What the message is about, the name that it quotes first, without an index."""
        quoted = _QUOTED.search(self.message)
        return _INDEX.sub("", quoted[1]) if quoted else ""
