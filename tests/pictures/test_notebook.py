"""What a notebook shows for types, kernels, timelines and resources."""

from __future__ import annotations

import pytest

import pykittens as pk
from pykittens.analysis.timeline.spans import Timeline
from pykittens.pictures.notebook import html
from pykittens.pictures.picture import picture
from pykittens.runtime.compiled import Resources, RoleResources
from pykittens.types.text import parse
from tests.parsed import Parsed
from tests.timelines import two_blocks


@pk.kernel
def shift(x, y, *, by=1.0):
    """y = x + by, in tiles of 64x64; <no> markup.

    A second part.
    """
    row, col = pk.grid(*x.tiles(64, 64))
    pk.store(y[row, col], pk.load(x[row, col], rows=64, cols=64) + by)


@pytest.mark.parametrize(
    ("text", "warps"),
    [
        ("st<bf16, 64x64>", 4),
        ("rt<f32, 64x256>", 4),
        ("rt<f32, 32x64>", 2),
        ("rt<f32, 16x64>", 1),
        ("rv<f32, 16, per row>", 1),
        ("rv<f32, 100, plain>", 4),
    ],
)
def test_a_type_is_its_picture_over_as_many_warps_as_it_has_rows_for(text: str, warps: int) -> None:
    shown = parse(text)
    svg = shown._repr_html_()  # type: ignore[union-attr]
    head, body = svg.split(">", 1)
    assert body == picture(shown, warps).split(">", 1)[1]
    assert 'style="max-width: 100%; height: auto"' in head


@pytest.mark.parametrize("text", ["rt<f32, 8x64>", "rt<f32, 64x8>", "rv<f32, 24, per row>"])
def test_a_type_without_a_picture_is_shown_as_text(text: str) -> None:
    assert html(parse(text)) is None
    assert html(pk.sv(pk.f32, 64)) is None


def test_a_kernel_is_its_name_its_parameters_its_place_its_docstring_and_its_source() -> None:
    shown = shift._repr_html_()
    text = Parsed(shown).text
    for part in (
        "shift(x, y, by=)",
        str(shift.parameters.loc),
        "y = x + by, in tiles of 64x64; <no> markup.",
        "A second part.",
        "    row, col = pk.grid(*x.tiles(64, 64))\n",
        "@pk.kernel",
    ):
        assert part in text
    assert "<no>" not in shown
    assert "<details open>" in shown


def test_a_kernel_without_source_is_shown_without_it() -> None:
    names: dict[str, object] = {"pk": pk}
    exec("@pk.kernel\ndef unread(x): pk.grid(1)", names)
    shown = html(names["unread"])
    assert shown is not None
    assert "unread" in Parsed(shown).text
    assert "<details" not in shown


def test_a_timeline_is_its_picture_with_texts_under_the_mouse() -> None:
    timeline = two_blocks()
    shown = timeline._repr_html_()
    assert "<svg" in shown
    assert shown.count("<title>") > len(timeline.spans)
    assert len(repr(timeline)) < 200
    assert timeline.title in repr(timeline)


def test_a_timeline_without_spans_is_shown_as_text() -> None:
    assert html(Timeline("nothing", "", "ns", (), ())) is None


def test_resources_are_a_table() -> None:
    roles = RoleResources("producer", 24, 40), RoleResources("consumers", 200, None)
    shown = html(Resources(168, 0, 16448, 384, ("spills <8> bytes",), roles))
    assert shown is not None
    parsed = Parsed(shown)
    assert sum(tag == "table" for tag, _ in parsed.found) == 1
    for part in ("168", "16,448", "384", "registers of producer24 of 40", "spills <8> bytes"):
        assert part in parsed.text
