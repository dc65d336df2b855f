"""Times follow from what waits for what: not from the order in which it is told."""

from __future__ import annotations

import itertools

import pytest

from pykittens.analysis.timeline.spans import Activity, Timeline, Track, TrackKind
from pykittens.analysis.timeline.timekeeper import Timekeeper
from tests.timelines import COPY, PRODUCT, of, ring, times, two_blocks


def one_group() -> tuple[Timekeeper, Track, Track]:
    time = Timekeeper("one")
    group = time.track("block 0", "block", TrackKind.GROUP)
    return time, group, time.track("block 0", "engine", TrackKind.ENGINE)


def copied(time: Timekeeper, group: Track, engine: Track, cycles: int):
    return time.start(engine, "copy", cycles, [time.now(group)], Activity.COPY)


def test_a_group_does_one_thing_after_another():
    time, group, _ = one_group()
    for cycles in (3, 0, 4):
        time.work(group, "work", cycles)
    assert times(of(time.timeline(), "block")) == [(0, 3), (3, 7)]


def test_what_an_engine_carries_on_overlaps_what_its_group_does_next():
    time, group, engine = one_group()
    time.work(group, "issues", 2)
    copied(time, group, engine, 10)
    time.work(group, "works", 5)
    shown = time.timeline()
    assert times(of(shown, "engine")) == [(2, 12)]
    assert times(of(shown, "block")) == [(0, 2), (2, 7)]


def test_a_wait_ends_with_the_last_of_what_it_waits_for_and_is_shown_with_an_arrow_from_it():
    time, group, engine = one_group()
    both = [copied(time, group, engine, 10), copied(time, group, engine, 5)]
    time.work(group, "works", 4)
    time.wait(group, both, "waits")
    time.work(group, "goes on", 1)
    shown = time.timeline()
    assert [(s.name, s.start, s.end) for s in of(shown, "block")] == [
        ("works", 0, 4),
        ("waits", 4, 15),
        ("goes on", 15, 16),
    ]
    (arrow,) = shown.arrows
    assert (arrow.source.start, arrow.source.end) == (10, 15)
    assert arrow.target.activity is Activity.WAIT


def test_a_wait_for_what_is_done_already_is_not_shown():
    time, group, engine = one_group()
    copy = copied(time, group, engine, 3)
    time.work(group, "works", 4)
    time.wait(group, [copy], "waits")
    shown = time.timeline()
    assert [s.name for s in of(shown, "block")] == ["works"]
    assert not shown.arrows


def test_an_arrival_is_shown_as_the_end_of_what_its_group_did_last():
    time = Timekeeper("two")
    first, second = (time.track("block 0", n, TrackKind.GROUP) for n in ("first", "second"))
    time.work(first, "works", 7)
    time.wait(first, [], "waits for nothing")
    time.wait(second, [time.now(first)], "waits")
    (arrow,) = time.timeline().arrows
    assert (arrow.source.name, arrow.target.name) == ("works", "waits")
    assert arrow.target.end == 7


def test_who_is_ready_first_is_served_first_whoever_was_told_first():
    def shown(order: list[str]) -> Timeline:
        time = Timekeeper("two")
        groups = {n: time.track("block 0", n, TrackKind.GROUP) for n in ("early", "late")}
        engine = time.track("block 0", "engine", TrackKind.ENGINE)
        for name in order:
            time.work(groups[name], "works", 1 if name == "early" else 3)
            for _ in range(2):
                product = time.start(engine, name, 5, [time.now(groups[name])], Activity.PRODUCT)
                time.wait(groups[name], [product], "waits")
        return time.timeline()

    runs = [
        [(s.name, s.start) for s in of(shown(o), "engine")]
        for o in (["early", "late"], ["late", "early"])
    ]
    assert runs[0] == runs[1] == [("early", 1), ("late", 6), ("early", 11), ("late", 16)]


@pytest.mark.parametrize("told", [(0, 1), (1, 0)])
def test_of_two_groups_that_are_ready_at_once_the_one_named_first_is_served_first(told):
    time = Timekeeper("two")
    groups = [time.track("block 0", name, TrackKind.GROUP) for name in ("first", "second")]
    engine = time.track("block 0", "engine", TrackKind.ENGINE)
    for n in told:
        time.start(engine, groups[n].name, 5, [time.now(groups[n])], Activity.PRODUCT)
    assert [s.name for s in of(time.timeline(), "engine")] == ["first", "second"]


def test_a_ring_copies_the_next_stage_while_the_product_of_this_one_runs():
    shown = ring(consumers=1).timeline()
    copies, products = of(shown, "copies in"), of(shown, "tensor cores")
    assert copies[1].start < products[0].end
    assert products[0].start < copies[1].end
    assert products[0].start >= copies[0].end
    # The copies are what takes longest, and nothing but the first lap's issue keeps them from one another.
    assert shown.end < 6 * (COPY + PRODUCT)


def test_a_stage_is_filled_full_and_drained_in_turn():
    shown = ring(steps=4, consumers=1).timeline()
    for stage in ("ring[0]", "ring[1]"):
        spans = of(shown, stage)
        assert [s.activity for s in spans if s.activity is not Activity.FULL] == 2 * [
            Activity.FILLING,
            Activity.DRAINING,
        ]
        assert [s.name for s in spans][0] == f"turn {stage[-2]}"
        full = {s.name: s for s in spans if s.activity is Activity.FILLING}
        for drained in (s for s in spans if s.activity is Activity.DRAINING):
            assert drained.start >= full[drained.name].end


def test_a_stage_that_nobody_has_taken_yet_is_full():
    time, group, engine = one_group()
    stage = time.track("block 0", "stage", TrackKind.STAGE)
    turn = time.use(stage, "turn 0")
    turn.taken.append(time.now(group))
    turn.landed.append(copied(time, group, engine, 5))
    time.work(group, "works", 20)
    turn.drained.append(time.now(group))
    turn.returned.append(time.work(group, "reads", 2))
    assert [(s.activity, s.start, s.end) for s in of(time.timeline(), "stage")] == [
        (Activity.FILLING, 0, 5),
        (Activity.FULL, 5, 20),
        (Activity.DRAINING, 20, 22),
    ]


def test_a_turn_that_was_never_drained_ends_with_its_filling():
    time, group, engine = one_group()
    turn = time.use(time.track("block 0", "stage", TrackKind.STAGE), "turn 0")
    time.use(turn.track, "turn 1")
    turn.taken.append(time.now(group))
    turn.landed.append(copied(time, group, engine, 5))
    assert times(of(time.timeline(), "stage")) == [(0, 5)]


@pytest.mark.parametrize("consumers", [1, 2, 3])
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_spans_of_a_track_do_not_overlap(stages, consumers):
    shown = ring(12, stages, consumers).timeline()
    assert {s.track for s in shown.spans} == set(shown.tracks)
    for track in shown.tracks:
        spans = [s for s in shown.spans if s.track == track]
        assert all(s.start < s.end for s in spans)
        assert all(a.end <= b.start for a, b in itertools.pairwise(spans))


def test_blocks_have_engines_of_their_own():
    shown = two_blocks()
    by_block = [
        [(s.name, s.start, s.end) for s in shown.spans if s.track.process == b]
        for b in shown.processes
    ]
    assert by_block[0] == by_block[1] != []


def test_tracks_stand_by_block_groups_before_stages_before_engines():
    assert [(t.process, t.name) for t in two_blocks().tracks] == [
        (block, name)
        for block in ("block 0", "block 1")
        for name in ("producer", "consumers 0", "ring[0]", "ring[1]", "copies in", "tensor cores")
    ]


def test_a_track_on_which_nothing_happens_is_there():
    time, _, engine = one_group()
    shown = time.timeline()
    assert engine in shown.tracks
    assert not shown.spans


def test_a_group_is_no_engine_and_an_engine_no_group():
    time, group, engine = one_group()
    with pytest.raises(AssertionError, match="no engine"):
        time.start(group, "copy", 1, [], Activity.COPY)
    with pytest.raises(AssertionError, match="no group"):
        time.work(engine, "work", 1)
