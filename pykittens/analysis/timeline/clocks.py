"""The timeline of a launch on a GPU, from the clock reads that its groups recorded.

The layout of the records is that of `Clocks` in targets/cuda/clock.cuh. Cycles count within a multiprocessor, and
nanoseconds are the same for all: the nanoseconds and cycles at the start and at the end of each block convert one into
the other, so the reads of a block are in the order in which they happened.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np

from pykittens.analysis.timeline.profile import PARTS, Profile, Spent
from pykittens.analysis.timeline.spans import (
    Activity,
    Args,
    Arrow,
    Span,
    Timeline,
    Track,
    TrackKind,
)
from pykittens.targets.source import ClockRead, Part, Source

HEAD = 5  # words of a group before its records
_CYCLES = np.uint64((1 << 48) - 1)
# A wait that takes less counts as none: the barrier was complete before it. An assumption, with room for clock reads.
_INSTANT = 100  # nanoseconds

NOTE = "Clock reads of the first thread of each group; the work of engines is not seen."
# The instructions of a block of each kind, in words, in their order; or those of a ticket.
Names = Mapping[tuple[int, str], Sequence[str]]


@dataclass
class _Use:
    """A use of a stage: when groups took it, left it full, found it full (and began to wait), returned it.

    fillers, returners: what groups did before they left or returned it. waiting_to: the waits before it was taken.
    """

    taken: list[int] = field(default_factory=list)
    filled: list[int] = field(default_factory=list)
    drained: list[tuple[int, int]] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)
    fillers: list[Span] = field(default_factory=list)
    returners: list[Span] = field(default_factory=list)
    waiting_to: dict[str, list[Span]] = field(default_factory=lambda: defaultdict(list))

    def arrows(self, before: _Use | None) -> Iterator[Arrow]:
        """From what ended the waits for the stage to these waits; before: the previous use of the stage."""
        returners = before.returners if before is not None else []
        for seen, causes in (("taken", returners), ("drained", self.fillers)):
            for wait in self.waiting_to[seen]:
                if causes and wait.end - wait.start > _INSTANT:
                    yield Arrow(max(causes, key=lambda s: s.end), wait)

    def spans(self, track: Track, name: str) -> Iterator[Span]:
        """It is filled until its copies are issued, or until a group that waits for it goes on."""
        if not self.taken or not self.filled:
            return
        taken, full = min(self.taken), max(self.filled)
        if not self.drained:
            yield Span(track, name, taken, full, Activity.FILLING)
            return
        drained, waited = min(self.drained)
        full = drained if drained - waited > _INSTANT else min(full, drained)
        returned = max(self.returned, default=drained)
        times = taken, full, drained, returned
        kinds = Activity.FILLING, Activity.FULL, Activity.DRAINING
        for start, end, activity in zip(times, times[1:], kinds, strict=False):
            if start < end:
                yield Span(track, name, start, end, activity)


class _Group:
    """The spans of a group, found read by read."""

    def __init__(self, track: Track, uses: dict[tuple[str, int], _Use], names: Names) -> None:
        self.track, self.uses, self.names = track, uses, names
        self.counts: Counter[tuple[str, str]] = Counter()
        self.held: list[tuple[str, str]] = []  # stages, and what the group does with each
        self.kind, self.began = "", 0
        self.last: Span | None = None
        self.args: dict[Part, Args] = {}
        self.runs: Counter[str] = Counter()  # of instructions, by kind
        self.tickets: Iterator[int] = iter(())  # of its instructions, if they have some
        self._name_parts("")

    def spans(self, reads: Sequence[ClockRead], times: Sequence[int]) -> Iterator[Span]:
        """Its spans; what it does after the last read is known if that is the end of its role."""
        block = int(self.track.process.rpartition(" ")[2])
        ends = [*times[1:], *times[-1:]]
        for read, start, end in zip(reads, times, ends, strict=True):
            name = self._name(read, start)
            if read.seen in ("begins", "ends"):
                self._instruction(read, block)
            if start < end:
                waits = read.text.startswith("until")
                activity = Activity.WAIT if waits else Activity.WORK
                args = self.args[read.part]
                span = Span(self.track, name, start, end, activity, read.loc, args, self.kind)
                self.last = span
                yield span
            self.began = start

    def _name(self, read: ClockRead, now: int) -> str:
        if read.seen not in ("", "begins", "ends"):
            self._happens(read, now)
        if "{stage}" in read.text:
            return read.text.format(stage=_stage(read, self._number(read.subject, read.text)))
        return read.text or (f"{self.held[-1][1]} {self.held[-1][0]}" if self.held else "works")

    def _happens(self, read: ClockRead, now: int) -> None:
        """A stage changes hands; groups take the stages of a ring in turn."""
        turn = self._number(read.subject, read.seen)
        stage, use = _stage(read, turn), self.uses[read.subject, turn]
        last = [self.last] if self.last is not None else []
        # The read before one that takes a stage is that of the wait for it.
        waited = last if self.began < now else []
        match read.seen:
            case "taken":
                use.taken.append(now)
                self.held.append((stage, "fills"))
            case "drained":
                use.drained.append((now, self.began))
                self.held.append((stage, "drains"))
            case "filled":
                use.filled.append(now)
                use.fillers += last
                self.held.remove((stage, "fills"))
            case "returned":
                use.returned.append(now)
                use.returners += last
                self.held.remove((stage, "drains"))
        if read.seen in ("taken", "drained"):
            use.waiting_to[read.seen] += waited

    def _instruction(self, read: ClockRead, block: int) -> None:
        """An instruction begins or ends."""
        self.kind = read.subject if read.seen == "begins" else ""
        ticket = next(self.tickets, None) if self.kind else None
        names = self.names.get((block if ticket is None else ticket, self.kind), ())
        self._name_parts(names[self.runs[self.kind] if ticket is None else 0] if names else "")
        if self.kind:
            self.runs[self.kind] += 1

    def _name_parts(self, instruction: str) -> None:
        """What the spans of an instruction show."""
        shown = {"instruction": instruction} if instruction else {}
        self.args = {part: {"part": part, **shown} for part in PARTS}
        self.args["end"] = {}

    def _number(self, subject: str, what: str) -> int:
        """How often it has happened before."""
        self.counts[subject, what] += 1
        return self.counts[subject, what] - 1


def profile_of(
    title: str, device: str, source: Source, words: np.ndarray[Any, Any], names: Names | None = None
) -> Profile:
    """The timings in the records of a launch: uint64 (blocks, groups, HEAD and those of a group)."""
    assert source.reads is not None, "this program reads no clocks"
    tracks: list[Track] = []
    spans: list[Span] = []
    arrows: list[Arrow] = []
    spent: dict[tuple[str, str], Spent] = {}
    first = int(words[..., 0].min())
    for block, of_block in enumerate(words):
        process, uses = f"block {block}", defaultdict[tuple[str, int], _Use](_Use)
        for warps, record, times in zip(
            source.groups, of_block, _times(of_block, first), strict=True
        ):
            group = _Group(Track(process, warps.name, TrackKind.GROUP), uses, names or {})
            records = record[HEAD : HEAD + len(times)]
            reads = [source.reads[place] for place in (records >> np.uint64(48)).tolist()]
            has_time = np.array([read.seen != "ticket" for read in reads], np.bool_)
            group.tickets = iter((records[~has_time] & _CYCLES).tolist())
            found = list(group.spans([*compress(reads, has_time)], [*compress(times, has_time)]))
            tracks.append(group.track)
            spans += found
            _count(spent, group, found)
        of_stages, found_arrows = _stages_of(process, source.reads, uses)
        tracks += of_stages
        spans += [span for found in of_stages.values() for span in found]
        arrows += found_arrows
    lost = int(np.maximum(words[..., 4].astype(np.int64) - (words.shape[-1] - HEAD), 0).sum())
    note = f"{device}. {NOTE}" + (f" {lost:,} later reads had no room." if lost else "")
    timeline = Timeline(title, note, "ns", tuple(tracks), tuple(spans), tuple(arrows))
    return Profile(timeline, tuple(spent.values()))


def _times(groups: np.ndarray[Any, Any], first: int) -> Iterator[list[int]]:
    """The times of the reads of each group of a block, in nanoseconds after `first`."""
    most = groups.shape[-1] - HEAD
    one, other = int(groups[:, 1].argmin()), int(groups[:, 3].argmax())
    from_ns, from_cycles = map(int, groups[one, :2])
    to_ns, to_cycles = map(int, groups[other, 2:4])
    rate = (to_ns - from_ns) / max(to_cycles - from_cycles, 1)
    for record in groups:
        cycles = record[HEAD : HEAD + min(int(record[4]), most)] & _CYCLES
        passed = (cycles - np.uint64(from_cycles)) & _CYCLES
        times = from_ns - first + np.rint(passed.astype(np.float64) * rate).astype(np.int64)
        yield times.tolist()


def _stage(read: ClockRead, turn: int) -> str:
    return f"{read.subject}[{turn % read.stages}]" if read.stages > 1 else read.subject


def _stages_of(
    process: str, reads: Sequence[ClockRead], uses: Mapping[tuple[str, int], _Use]
) -> tuple[dict[Track, list[Span]], list[Arrow]]:
    """The spans of each stage of a block, and the arrows to waits for stages."""
    rings = {read.subject: read for read in reads if read.stages}
    tracks: dict[Track, list[Span]] = {}
    arrows: list[Arrow] = []
    for read in rings.values():
        for number in range(read.stages):
            tracks[Track(process, _stage(read, number), TrackKind.STAGE)] = []
    for (ring, turn), use in sorted(uses.items(), key=lambda item: item[0][1]):
        track = Track(process, _stage(rings[ring], turn), TrackKind.STAGE)
        tracks[track] += use.spans(track, f"turn {turn}")
        arrows += use.arrows(uses.get((ring, turn - rings[ring].stages)))
    return tracks, arrows


def _count(spent: dict[tuple[str, str], Spent], group: _Group, spans: Sequence[Span]) -> None:
    """Add the spans of a group to the time that the groups of its name have spent."""
    name = group.track.name
    for kind, count in [("", 1), *group.runs.items()]:
        spent.setdefault((kind, name), Spent(kind, name)).count += count
    for span in spans:
        spent[span.kind, name].ns[str(span.args["part"])] += span.end - span.start
