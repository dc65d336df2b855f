"""The picture of a timeline is well-formed, legible, and shows every span where it lies."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET

import pytest

from pykittens.analysis.timeline.spans import Activity, Span, Timeline, Track, TrackKind
from pykittens.errors import ArgumentError
from pykittens.pictures.timeline import COLOURS, draw
from tests.pictures.reading import Box, Picture, read
from tests.timelines import LOAD, MULTIPLY, ring, two_blocks

GROUP, TITLE, RECT, PATH = (
    "{http://www.w3.org/2000/svg}" + name for name in ("g", "title", "rect", "path")
)
LARGE = ring(steps=18, stages=5, consumers=4)  # 12 tracks, about 300 spans


def bars(svg: str) -> list[tuple[Box, str]]:
    """The bars of spans, each with what is told of it."""
    found = []
    for element in ET.fromstring(svg).iter(GROUP):
        told, bar = element.find(TITLE), element.find(RECT)
        assert told is not None
        assert told.text
        assert bar is not None
        x, y, width, height = (float(bar.attrib[n]) for n in ("x", "y", "width", "height"))
        found.append((Box(x, y, x + width, y + height), told.text))
    return found


def legible(shown: Picture) -> None:
    """Fail where something lies outside the picture, or a text on another."""
    for box in shown.texts + shown.cells:
        assert shown.whole.holds(box), box
    for one, other in itertools.combinations(shown.texts, 2):
        assert not one.overlaps(other), (one, other)


def test_the_picture_of_a_small_run(golden):
    golden("pictures/timeline.svg", draw(ring(3, 2, 1).timeline()).svg())


@pytest.mark.parametrize(
    "timeline",
    [ring().timeline(), two_blocks(), LARGE.timeline()],
    ids=["ring", "two blocks", "large"],
)
def test_all_of_a_picture_lies_inside_it_and_no_text_on_another(timeline):
    shown = read(draw(timeline).svg())
    legible(shown)
    assert [w for w in shown.words("side")] == [t.name for t in timeline.tracks]
    for word in (t for t in shown.texts if t.style == "cell"):
        assert any(cell.holds(word) for cell in shown.cells), word


def test_a_run_of_twelve_tracks_and_three_hundred_spans_shows_all_that_is_wider_than_a_pixel():
    timeline = LARGE.timeline()
    assert len(timeline.tracks) == 12
    assert len(timeline.spans) >= 300
    shown = {tuple(text.splitlines()[:2]) for _, text in bars(draw(timeline).svg())}
    for span in timeline.spans:
        length = span.end - span.start
        unit = "cycle" if length == 1 else "cycles"
        lines = (
            f"{span.track.name}: {span.name}",
            f"{span.start:,} to {span.end:,}, {length:,} {unit}; {span.activity.value}",
        )
        assert lines in shown or length * 1080 < timeline.end, lines


@pytest.mark.parametrize("timeline", [ring().timeline(), LARGE.timeline()], ids=["ring", "large"])
def test_bars_of_a_track_do_not_overlap(timeline):
    by_line: dict[float, list[Box]] = {}
    for box, _ in bars(draw(timeline).svg()):
        by_line.setdefault(box.top, []).append(box)
    assert len(by_line) == len(timeline.tracks)
    for boxes in by_line.values():
        for one, other in itertools.pairwise(sorted(boxes, key=lambda b: b.left)):
            assert one.right <= other.left


def test_a_bar_tells_its_times_its_line_and_its_arguments():
    told = [text for _, text in bars(draw(ring(3, 2, 1).timeline()).svg())]
    copy = next(t for t in told if t.startswith("copies in: load_async"))
    assert copy.splitlines() == [
        "copies in: load_async",
        "1 to 61, 60 cycles; a copy is under way",
        "bytes: 64",
        str(LOAD),
        LOAD.text.strip(),
    ]
    product = next(t for t in told if t.startswith("tensor cores: mma_ABt"))
    assert product.splitlines() == [
        "tensor cores: mma_ABt",
        "61 to 101, 40 cycles; a product runs",
        str(MULTIPLY),
        MULTIPLY.text.strip(),
    ]


def brightness(colour: str) -> int:
    return sum(int(colour[i : i + 2], 16) for i in (1, 3, 5))


def test_waiting_is_paler_than_anything_else():
    pale = {Activity.WAIT, Activity.FULL}
    assert min(brightness(COLOURS[a]) for a in pale) > max(
        brightness(c) for a, c in COLOURS.items() if a not in pale
    )
    assert len(set(COLOURS.values())) == len(COLOURS) == len(Activity)


def test_the_legend_names_what_is_shown_and_nothing_else():
    notes = read(draw(ring(consumers=1).timeline()).svg()).words("note")
    assert Activity.PRODUCT.value in notes
    idle = read(draw(ring(2, 2, 1).timeline(), 0, 10).svg()).words("note")
    assert Activity.PRODUCT.value not in idle
    assert Activity.FILLING.value in idle


def test_a_window_shows_its_part_of_the_time_only():
    timeline = ring().timeline()
    svg = draw(timeline, 100, 200).svg()
    shown = read(svg)
    legible(shown)
    assert shown.words("axis") == [f"{t}" for t in range(100, 201, 10)]
    inside = [s for s in timeline.spans if s.start < 200 and s.end > 100]
    assert len(bars(svg)) == len(inside) < len(timeline.spans)


def test_a_bar_is_as_long_as_its_span():
    timeline = ring().timeline()
    length = timeline.end - timeline.start
    found = {text: box for box, text in bars(draw(timeline).svg())}
    for text, box in found.items():
        start, end = (int(n) for n in text.splitlines()[1].split(",")[0].split(" to "))
        assert box.right - box.left == pytest.approx((end - start) * 1080 / length, abs=2.1)


def test_an_arrow_leads_to_the_end_of_every_wait_that_another_track_ended():
    timeline = ring().timeline()
    drawn = [
        p for p in ET.fromstring(draw(timeline).svg()).iter(PATH) if "pointer-events" in p.attrib
    ]
    assert len(drawn) == len([a for a in timeline.arrows if a.source.track != a.target.track]) > 0


def test_the_blocks_that_are_asked_for_are_shown():
    shown = read(draw(two_blocks(), blocks=("block 1",)).svg())
    assert shown.words("head") == ["block 1"]
    assert shown.words("note")[0].startswith("block 1 of 2 blocks, 0 to ")


def test_spans_too_thin_to_see_are_counted():
    track = Track("block 0", "block", TrackKind.GROUP)
    spans = [Span(track, "tick", n, n + 1) for n in range(0, 10_000, 2)]
    timeline = Timeline("ticks", "by hand", "ns", (track,), tuple(spans))
    svg = draw(timeline).svg()
    hidden = len(spans) - len(bars(svg))
    assert hidden > 0
    assert f"{hidden} spans are thinner than a pixel and not drawn." in svg


def test_one_span_and_one_cycle_are_told_as_one():
    track = Track("block 0", "block", TrackKind.GROUP)
    spans = Span(track, "first", 0, 1), Span(track, "second", 1, 2), Span(track, "last", 2, 100_000)
    svg = draw(Timeline("ticks", "by hand", "cycles", (track,), spans)).svg()
    assert "1 span is thinner than a pixel and not drawn." in svg
    assert "0 to 1, 1 cycle; " in svg
    assert "2 to 100,000, 99,998 cycles; " in svg


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"start": 200, "end": 100}, "ring has nothing to show from 200 to 100 cycles"),
        ({"start": 10_000, "end": 20_000}, "ring has nothing to show from 10,000 to 20,000 cycles"),
        ({"blocks": ("block 7",)}, "ring has no block 7"),
    ],
    ids=str,
)
def test_what_is_not_there_is_not_drawn(how, message):
    with pytest.raises(ArgumentError) as caught:
        draw(ring().timeline(), **how)
    assert caught.value.message == message
    assert caught.value.help


def test_a_timeline_of_nothing_is_not_drawn():
    with pytest.raises(ArgumentError, match="nothing to show"):
        draw(Timeline("empty", "", "cycles", (), ()))
