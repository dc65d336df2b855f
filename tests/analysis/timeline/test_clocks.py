"""Records of clock reads become the rows of a timeline, and a table of where the time goes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from pykittens.analysis.timeline.clocks import HEAD, profile_of
from pykittens.analysis.timeline.recorder import Recorder
from pykittens.analysis.timeline.spans import Activity, Span, Timeline, TrackKind
from pykittens.checker.runs import run_schedules
from pykittens.emulate.watch import Watchers
from pykittens.runtime.arguments import check
from pykittens.targets.emit import emit
from tests.clocked import (
    EmulatedReads,
    check_groups,
    check_order,
    emitted,
    place,
    records,
    ring,
    ring_arrays,
    ring_reads,
)
from tests.launches import launches
from tests.mega.programs import Cell, added, cells

SOURCE = emitted(ring, *ring_arrays())


def timed(blocks: int = 1, **given: Any) -> Any:
    return profile_of("ring", "a GPU", SOURCE, records([ring_reads(SOURCE)] * blocks, **given))


def rows(timeline: Timeline, track: str, process: str = "block 0") -> list[tuple[Any, ...]]:
    """The spans of a track in words."""
    return [
        (s.name, s.start, s.end, s.activity.name)
        for s in timeline.spans
        if (s.track.name, s.track.process) == (track, process)
    ]


def test_the_rows_of_a_ring():
    timeline = timed().timeline
    assert rows(timeline, "producer") == [
        ("works", 0, 5, "WORK"),
        ("until parts[0] is free", 5, 10, "WAIT"),
        ("fills parts[0]", 10, 30, "WORK"),
        ("until parts[1] is free", 30, 40, "WAIT"),
        ("fills parts[1]", 40, 60, "WORK"),
        ("works", 60, 65, "WORK"),
        ("until parts[0] is free", 65, 1200, "WAIT"),
        ("fills parts[0]", 1200, 1220, "WORK"),
        ("works", 1220, 1225, "WORK"),
    ]
    assert rows(timeline, "warps") == [
        ("works", 3, 10, "WORK"),
        ("until parts[0] is full", 10, 1010, "WAIT"),
        ("drains parts[0]", 1010, 1190, "WORK"),
        ("works", 1190, 1200, "WORK"),
        ("until parts[1] is full", 1200, 1210, "WAIT"),
        ("drains parts[1]", 1210, 1400, "WORK"),
        ("works", 1400, 1410, "WORK"),
        ("until parts[0] is full", 1410, 2000, "WAIT"),
        ("drains parts[0]", 2000, 2200, "WORK"),
        ("works", 2200, 2250, "WORK"),
    ]


def test_the_rows_of_the_stages():
    """A turn is filled until the wait for it ends, or if nobody waits, until its copy is issued."""
    timeline = timed().timeline
    assert rows(timeline, "parts[0]") == [
        ("turn 0", 10, 1010, "FILLING"),
        ("turn 0", 1010, 1190, "DRAINING"),
        ("turn 2", 1200, 2000, "FILLING"),
        ("turn 2", 2000, 2200, "DRAINING"),
    ]
    assert rows(timeline, "parts[1]") == [
        ("turn 1", 40, 60, "FILLING"),
        ("turn 1", 60, 1210, "FULL"),
        ("turn 1", 1210, 1400, "DRAINING"),
    ]


def test_the_tracks_are_those_of_the_emulator_without_engines():
    x, y = ring_arrays()
    arguments, recorder = check(ring.parameters, (x, y), {}), Recorder("ring")
    run_schedules(ring, arguments, (0,), undefined=(), kept=(), watch=recorder)
    emulated = [t for t in recorder.timeline().tracks if t.kind is not TrackKind.ENGINE]
    assert list(timed(2).timeline.tracks) == emulated


def test_blocks_are_aligned_by_nanoseconds_whatever_their_cycles():
    timeline = timed(2).timeline
    assert rows(timeline, "warps") == rows(timeline, "warps", "block 1")
    late = records([ring_reads(SOURCE)], ns=1_000_500)
    words = np.concatenate([records([ring_reads(SOURCE)]), late])
    timeline = profile_of("ring", "a GPU", SOURCE, words).timeline
    moved = [(n, a + 500, b + 500, x) for n, a, b, x in rows(timeline, "producer")]
    assert rows(timeline, "producer", "block 1") == moved


def test_cycles_of_48_bits_may_run_over():
    over = records([ring_reads(SOURCE)], cycles=(1 << 48) - 1000)
    mask = np.uint64((1 << 48) - 1)
    reads = ring_reads(SOURCE)
    for group, of_group in enumerate(reads):
        for i, (where, after) in enumerate(of_group):
            low = (np.uint64((1 << 48) - 1000 + after)) & mask
            over[0, group, 5 + i] = np.uint64(where << 48) | low
    found = profile_of("ring", "a GPU", SOURCE, over).timeline
    assert rows(found, "warps") == rows(timed().timeline, "warps")


def test_reads_without_room_are_counted():
    whole, cut = timed(), timed(most=5)
    assert "no room" not in whole.timeline.note
    assert "12 later reads had no room" in cut.timeline.note
    assert rows(cut.timeline, "producer") == rows(whole.timeline, "producer")[:3]


def test_spans_of_a_track_do_not_overlap():
    by_track: dict[Any, list[Span]] = {}
    for span in timed(2).timeline.spans:
        by_track.setdefault(span.track, []).append(span)
    for spans in by_track.values():
        for one, other in itertools.pairwise(spans):
            assert one.end <= other.start


def test_the_table_of_a_kernel():
    assert timed(2).table().splitlines() == [
        "group     times     ns   wait  fetch  compute  store  signal",
        "producer      2  1,225  1,150     75        0      0       0",
        "warps         2  2,247  1,600      0      647      0       0",
        "",
        "group     waits                times   ns",
        "producer  until parts is free      6  383",
        "warps     until parts is full      6  533",
        "",
        "ring   turns  filling  full  draining",
        "parts      6      607   383       190",
    ]


def test_instructions_have_their_kind_and_their_fields():
    program = added(cells(1), [Cell("add", 2, 0, 1), Cell("double", 3, 2)])
    x = np.zeros((4, 64), np.float32)
    given = program.arguments(program.scheduled(x=x), x=x)
    source = emitted(program.kernel(), *given)
    assert [g.name for g in source.groups] == ["producer", "storer", "warps 0", "warps 1"]
    end, work = place(source, "end"), place(source, "compute")
    begin_add, end_add = (place(source, "compute", s, subject="add") for s in ("begins", "ends"))
    begin, ends = (place(source, "compute", s, subject="double") for s in ("begins", "ends"))
    waits = place(source, "wait", text="counters is set")
    warps = [(work, 0), (begin_add, 20), (end_add, 60), (begin, 70), (waits, 80), (work, 180),
             (ends, 200), (end, 210)]  # fmt: skip
    idle = [(end, 210)]
    words = records([[idle, idle, warps, idle]], rate=1)
    names = {(0, "add"): ["add(a=0, b=1, out=2)"], (0, "double"): ["double(a=2, out=3)"]}
    profile = profile_of("program", "a GPU", source, words, names)
    found = [
        (s.kind, s.args.get("instruction"), s.name, s.start, s.end)
        for s in profile.timeline.spans
        if s.track.name == "warps 0"
    ]
    assert found == [
        ("", None, "works", 0, 20),
        ("add", "add(a=0, b=1, out=2)", "works", 20, 60),
        ("", None, "works", 60, 70),
        ("double", "double(a=2, out=3)", "works", 70, 80),
        ("double", "double(a=2, out=3)", "until counters is set", 80, 180),
        ("double", "double(a=2, out=3)", "works", 180, 200),
        ("", None, "works", 200, 210),
    ]
    assert profile.table().splitlines()[:3] == [
        "instruction           group     times   ns  wait  fetch  compute  store  signal",
        "add                   warps 0       1   40     0      0       40      0       0",
        "double                warps 0       1  130   100      0       30      0       0",
    ]
    assert Activity.WAIT in {s.activity for s in profile.timeline.spans}


def test_instructions_that_blocks_take_have_the_fields_of_their_ticket():
    steps = [Cell("add", 2, 0, 1), Cell("double", 3, 2), Cell("double", 4, 3)]
    program, x = added(cells(1, dynamic=True), steps), np.zeros((5, 64), np.float32)
    source = emitted(program.kernel(), *program.arguments(program.scheduled(x=x), x=x))
    end, ticket = place(source, "end"), place(source, "compute", "ticket")
    begin, ends = (place(source, "compute", s, subject="double") for s in ("begins", "ends"))
    warps = [(ticket, 0), (begin, 20), (ends, 60), (end, 70)]
    words = records([[[(end, 70)], [(end, 70)], warps, [(end, 70)]]], rate=1)
    words[0, 2, HEAD] = ticket << 48 | 2  # a number, not a time
    names = {(1, "double"): ["double(a=2, out=3)"], (2, "double"): ["double(a=3, out=4)"]}
    profile = profile_of("program", "a GPU", source, words, names)
    found = [
        (s.args.get("instruction"), s.start, s.end)
        for s in profile.timeline.spans
        if s.track.name == "warps 0"
    ]
    assert found == [("double(a=3, out=4)", 20, 60), (None, 60, 70)]


def test_arrows_lead_from_what_ended_a_long_wait_for_a_stage():
    found = [(a.source.track.name, a.source.name, a.target.name) for a in timed().timeline.arrows]
    assert found == [
        ("producer", "fills parts[0]", "until parts[0] is full"),
        ("warps", "drains parts[0]", "until parts[0] is free"),
        ("producer", "fills parts[0]", "until parts[0] is full"),
    ]


LAUNCHES = launches(1)


@pytest.mark.parametrize("name", LAUNCHES)
def test_reads_of_an_emulated_run_become_its_turns(name):
    """Every group reads its clock as in a program on a GPU, in the order of the emulator."""
    launch = LAUNCHES[name]
    arguments, recorder = launch.arguments(), Recorder(name)
    kernel = launch.kernel.record(arguments)
    if kernel.cluster > 1 or not kernel.pipelines:
        pytest.skip("it has no rings, or those of several blocks")
    source = emit(kernel, "sm_90a", clocks=True)
    reads = EmulatedReads(source)
    found = run_schedules(launch.kernel, arguments, (3,), watch=Watchers([reads, recorder]))
    assert not launch.faults(found)
    profile, emulated = profile_of(name, "a GPU", source, reads.words()), recorder.timeline()
    check_order(profile)
    check_groups(profile, {g.name for g in source.groups})
    assert turns(profile.timeline, emulated) == turns(emulated, profile.timeline)


def turns(timeline: Timeline, other: Timeline) -> set[tuple[Any, ...]]:
    """The turns of stages, in the blocks of both timelines."""
    of_stages = (s for s in timeline.spans if s.track.kind is TrackKind.STAGE)
    return {(s.track, s.name) for s in of_stages if s.track.process in other.processes}
