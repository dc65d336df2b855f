"""The timings of a launch on a GPU: its timeline, and what the time of each group was for."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from pykittens.analysis.timeline.spans import Activity, Timeline, TrackKind
from pykittens.display import Shown
from pykittens.targets.source import Part

PARTS: tuple[Part, ...] = ("wait", "fetch", "compute", "store", "signal")
BETWEEN = "between instructions"
Table = tuple[tuple[str, ...], list[tuple[str, ...]]]  # columns and rows
_RINGS = (Activity.FILLING, Activity.FULL, Activity.DRAINING)


@dataclass
class Spent:
    """The nanoseconds of each part that the groups of a name spent in instructions of a kind, or outside of them.

    count: of runs of these instructions; outside of them, and in kernels without, of groups.
    """

    kind: str
    group: str
    count: int = 0
    ns: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, repr=False)
class Profile(Shown):
    """The timings of a launch. timeline: its groups and stages; spent: what the time of the groups was for."""

    timeline: Timeline
    spent: tuple[Spent, ...]

    def __repr__(self) -> str:
        shows = "print(profile.table()) shows where the time goes"
        return f"<profile of {self.timeline.title}: {len(self.timeline.spans)} spans; {shows}>"

    def _groups(self) -> Table:
        """Mean nanoseconds of a group, or of an instruction in it, for each part."""
        kinds = any(row.kind for row in self.spent)
        rows = []
        for s in sorted(self.spent, key=lambda s: s.kind == ""):
            name = (s.kind or BETWEEN,) if kinds else ()
            mean = [s.ns[part] / max(s.count, 1) for part in PARTS]
            numbers = (f"{x:,.0f}" for x in (sum(mean), *mean))
            rows.append((*name, s.group, f"{s.count:,}", *numbers))
        return (*("instruction",) * kinds, "group", "times", "ns", *PARTS), rows

    def _rings(self) -> Table:
        """Mean nanoseconds in which a turn of each ring is filled, full and drained."""
        sums: dict[str, Counter[Activity]] = {}
        turns: dict[str, set[object]] = {}
        for span in self.timeline.spans:
            if span.track.kind is TrackKind.STAGE:
                ring = span.track.name.partition("[")[0]
                sums.setdefault(ring, Counter())[span.activity] += span.end - span.start
                turns.setdefault(ring, set()).add((span.track, span.name))
        rows = [
            (ring, f"{len(turns[ring]):,}", *(f"{ns[a] / len(turns[ring]):,.0f}" for a in _RINGS))
            for ring, ns in sums.items()
        ]
        return ("ring", "turns", *(a.name.lower() for a in _RINGS)), rows

    def _waits(self) -> Table:
        """What groups wait for, how often, and mean nanoseconds of a wait."""
        found: dict[tuple[str, ...], list[int]] = {}
        kinds = any(row.kind for row in self.spent)
        for span in self.timeline.spans:
            if span.activity is Activity.WAIT:
                what = re.sub(r"\[\d+\]", "", span.name)
                key = (*(span.kind or BETWEEN,) * kinds, span.track.name, what)
                found.setdefault(key, []).append(span.end - span.start)
        rows = [(*k, f"{len(ns):,}", f"{sum(ns) / len(ns):,.0f}") for k, ns in found.items()]
        return (*("instruction",) * kinds, "group", "waits", "times", "ns"), rows

    def tables(self) -> list[Table]:
        """The tables that have rows."""
        return [t for t in (self._groups(), self._waits(), self._rings()) if t[1]]

    def table(self) -> str:
        """Where the time goes: mean nanoseconds of each group by what they were for, of each wait, and of each ring."""
        return "\n\n".join(aligned(*t) for t in self.tables())


def aligned(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table as text; cells of digits are aligned to the right."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    right = [all(c[:1].isdigit() for c in cells) for cells in zip(*rows, strict=True)]
    lines = []
    for row in (columns, *rows):
        cells = zip(row, widths, right, strict=True)
        lines.append("  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in cells).rstrip())
    return "\n".join(lines)
