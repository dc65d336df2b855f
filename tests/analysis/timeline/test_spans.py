"""Windows of a timeline."""

from __future__ import annotations

from pykittens.analysis.timeline.spans import Arrow, Span, Timeline, Track, TrackKind

LEFT = Track("block 0", "left", TrackKind.GROUP)
RIGHT = Track("block 1", "right", TrackKind.GROUP)


def made() -> Timeline:
    spans = (
        Span(LEFT, "a", 10, 20),
        Span(LEFT, "b", 20, 40),
        Span(RIGHT, "c", 5, 20),
        Span(RIGHT, "d", 30, 50),
    )
    arrows = (Arrow(spans[0], spans[2]), Arrow(spans[1], spans[3]))
    return Timeline("made", "by hand", "ns", (LEFT, RIGHT), spans, arrows)


def test_a_timeline_goes_from_its_first_start_to_its_last_end():
    assert (made().start, made().end) == (5, 50)
    nothing = Timeline("nothing", "", "ns", (LEFT,), ())
    assert (nothing.start, nothing.end) == (0, 0)


def test_blocks_stand_in_the_order_of_their_tracks():
    assert made().processes == ("block 0", "block 1")


def test_a_window_has_the_parts_of_the_spans_that_lie_in_it():
    window = made().between(15, 30)
    assert [(s.name, s.start, s.end) for s in window.spans] == [
        ("a", 15, 20),
        ("b", 20, 30),
        ("c", 15, 20),
    ]
    assert window.tracks == made().tracks


def test_a_span_that_ends_where_a_window_starts_is_not_in_it():
    assert [s.name for s in made().between(20, 30).spans] == ["b"]


def test_a_window_has_the_arrows_whose_ends_lie_in_it():
    window = made().between(0, 45)
    assert [(a.source.name, a.target.name) for a in window.arrows] == [("a", "c")]
    assert all(a.source in window.spans and a.target in window.spans for a in window.arrows)
