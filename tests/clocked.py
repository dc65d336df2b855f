"""A kernel and a program with clock reads, and records as a GPU would write them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

import pykittens as pk
from pykittens import f32
from pykittens.analysis.timeline.clocks import HEAD
from pykittens.analysis.timeline.profile import PARTS, Profile
from pykittens.analysis.timeline.spans import Activity, Span, Track, TrackKind
from pykittens.emulate.watch import Watcher
from pykittens.ir.stages import GiveBack, Leave
from pykittens.runtime.arguments import check
from pykittens.targets.clock_reads import WORK
from pykittens.targets.emit import emit
from pykittens.targets.source import Source

WIDTH = 128


@pk.kernel
def ring(x, y):
    """Doubles vectors, which go through a ring of two stages, and counts them with a flag."""
    parts = pk.pipeline(2, pk.sv(f32, WIDTH))
    (block,) = pk.grid(2)
    with pk.producer():
        for k in pk.range(3):
            with parts.fill() as s:
                pk.load_async(s, x[block, k])
    with pk.warps(1):
        for k in pk.range(3):
            with parts.drain() as s:
                pk.store(y[block, k], 2 * pk.load(s))


@pk.kernel
def words(x, y, flags):
    """Every word at which roles meet: stages, a semaphore, turns, flags, stores of the engine."""
    outputs, full = pk.pipeline(1, pk.sv(f32, WIDTH)), pk.semaphore(1)
    (block,) = pk.grid(2)
    with pk.warps(2) as w:
        with pk.in_turn():
            pk.store(y[block, w], pk.load(x[block, w], cols=WIDTH))
        with outputs.fill() as s:
            if w == 0:
                pk.store(s, pk.load(x[block, 0], cols=WIDTH))
        full.wait(0)
        pk.signal(flags[block], 1)
    with pk.storer():
        if block > 0:
            pk.wait(flags[block - 1], 1)
        with outputs.drain() as s:
            pk.store_async(y[block, 2], s)
        pk.store_wait()
        full.arrive()


def emitted(kernel: Any, *args: Any, arch: str = "sm_90a", clocks: bool = True) -> Source:
    """The program of a kernel for arguments like these."""
    return emit(kernel.record(check(kernel.parameters, args, {})), arch, clocks=clocks)


def ring_arrays() -> tuple[Any, Any]:
    x = np.arange(2 * 3 * WIDTH, dtype=np.float32).reshape(2, 3 * WIDTH)
    return x, np.zeros_like(x)


def place(source: Source, part: str, seen: str = "", text: str = "", subject: str = "") -> int:
    """The number of the read that says this."""
    assert source.reads is not None
    (found,) = (
        number
        for number, r in enumerate(source.reads)
        if (r.part, r.seen) == (part, seen)
        and (text in r.text if text else not r.text)
        and (not subject or r.subject == subject)
    )
    return found


Read = tuple[int, int]  # a place and cycles


def records(
    blocks: Sequence[Sequence[Sequence[Read]]],
    most: int = 32,
    ns: int = 1_000_000,
    cycles: int = 5_000,
    rate: int = 2,
) -> np.ndarray[Any, Any]:
    """The words of groups that read these places after so many cycles, `rate` in a nanosecond."""
    words = np.zeros((len(blocks), len(blocks[0]), HEAD + most), np.uint64)
    for number, groups in enumerate(blocks):
        # Every multiprocessor has its own count of cycles.
        own = cycles + 1_000_003 * number
        for group, reads in enumerate(groups):
            last = reads[-1][1]
            end = -(-last // rate) + 10
            words[number, group, :HEAD] = ns, own, ns + end, own + end * rate, len(reads)
            for i, (where, after) in enumerate(reads[:most]):
                words[number, group, HEAD + i] = where << 48 | (own + after)
    return words


def ring_reads(source: Source) -> tuple[list[Read], list[Read]]:
    """What the groups of `ring` read: the last fill waits for a free stage, the first drain for a copy."""
    fetch, free = place(source, "fetch"), place(source, "wait", text="free")
    taken, filled = place(source, "fetch", "taken"), place(source, "fetch", "filled")
    end = place(source, "end")
    producer = [
        (fetch, 0), (free, 10), (taken, 20), (filled, 60), (free, 60), (taken, 80), (filled, 120),
        (free, 130), (taken, 2400), (filled, 2440), (end, 2450),
    ]  # fmt: skip
    work, full = place(source, "compute"), place(source, "wait", text="full")
    drained, returned = place(source, "compute", "drained"), place(source, "compute", "returned")
    warp = [
        (work, 6), (full, 20), (drained, 2020), (returned, 2380), (full, 2400), (drained, 2420),
        (returned, 2800), (full, 2820), (drained, 4000), (returned, 4400), (end, 4500),
    ]  # fmt: skip
    return producer, warp


class EmulatedReads(Watcher):
    """Reads the clock where a program on a GPU does, for stages; a tick of the clock is an event of the emulator."""

    def __init__(self, source: Source) -> None:
        self.source, self.now = source, 0
        self.reads: dict[tuple[int, str], list[Read]] = defaultdict(list)
        self.numbers = {
            (r.part, r.seen, r.text, r.subject): n for n, r in enumerate(source.reads or ())
        }

    def read(
        self, group: Any, seen: str = "", subject: str = "", text: str = "", part: str = ""
    ) -> None:
        self.now += 1
        work = WORK.get(group.role.kind, "compute")
        number = self.numbers[part or work, seen, text, subject]
        self.reads[group.block.number, group.name].append((number, self.now))

    def together(self, blocks: Any, groups: Any) -> None:
        for group in groups:
            self.read(group)

    def ended(self, group: Any) -> None:
        self.read(group, part="end")

    def takes(self, group: Any, node: Any, barrier: Any, phase: int) -> None:
        side, ring = node.side, node.pipeline.name
        state = "free" if side == "fill" else "full"
        self.read(group, text=f"until {{stage}} is {state}", part="wait", subject=ring)
        self.read(group, "taken" if side == "fill" else "drained", ring)

    def arrives(self, group: Any, node: Any, what: Any) -> None:
        if isinstance(node, Leave):
            self.read(group, "filled", node.acquire.pipeline.name)
        if isinstance(node, GiveBack):
            self.read(group, "returned", node.pipeline.name)

    def words(self) -> np.ndarray[Any, Any]:
        """The records of all blocks."""
        blocks = sorted({block for block, _ in self.reads})
        groups = [[self.reads[b, g.name] for g in self.source.groups] for b in blocks]
        return records(groups, max(map(len, self.reads.values())), rate=1)


# -- what holds of every profile -------------------------------------------------------------------


def of_tracks(profile: Profile) -> dict[Track, list[Span]]:
    """The spans of each track that has some."""
    found: dict[Track, list[Span]] = defaultdict(list)
    for span in profile.timeline.spans:
        found[span.track].append(span)
    return found


def check_order(profile: Profile) -> None:
    """Fail unless the spans of each track do not overlap, and each turn of a stage is filled before it is drained."""
    for track, spans in of_tracks(profile).items():
        for one, other in itertools.pairwise(spans):
            assert one.start < one.end <= other.start < other.end, (one, other)
        if track.kind is TrackKind.STAGE:
            turns = [(int(s.name.split()[1]), list(Activity).index(s.activity)) for s in spans]
            assert turns == sorted(set(turns))
    groups = {t for t in profile.timeline.tracks if t.kind is TrackKind.GROUP}
    assert groups <= set(of_tracks(profile))
    assert "no room" not in profile.timeline.note


def check_groups(profile: Profile, names: set[str]) -> None:
    """Fail unless every block has groups of these names, whose time is what the table adds up."""
    timeline = profile.timeline
    for process in timeline.processes:
        own = [t for t in timeline.tracks if t.process == process and t.kind is TrackKind.GROUP]
        assert {t.name for t in own} == names
    spans = [s for s in timeline.spans if s.track.kind is TrackKind.GROUP]
    assert sum(sum(s.ns.values()) for s in profile.spent) == sum(s.end - s.start for s in spans)
    assert {p for s in profile.spent for p in s.ns} <= set(PARTS)
