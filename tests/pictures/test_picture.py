"""Pictures are well-formed, legible, and those of the pages are as the layouts are now."""

from __future__ import annotations

import functools
import itertools
import re
from pathlib import Path

import pytest

from pykittens.cli.arguments import load
from pykittens.errors import ArgumentError
from pykittens.pictures.picture import picture
from pykittens.types.dtypes import DTYPES
from pykittens.types.text import parse
from pykittens.types.tiles import RT, shared_tile
from tests.pictures.reading import Picture, read

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "layouts.md"
DRAWN = load(ROOT / "tools" / "pictures.py")

SHAPES = [
    ("rt<f32, 16x16>", 1),
    ("rt<bf16, 64x64>", 4),
    ("rt<bf16, 64x256>", 4),
    ("rt<f32, 192x16>", 4),
    ("rt<f32, 512x512>", 8),
    ("rt<bool, 64x32>", 2),
    ("rv<f32, 16, per row>", 1),
    ("rv<bf16, 512, per row>", 8),
    ("rv<f32, 16, per column>", 1),
    ("rv<bf16, 1024, per column>", 16),
    ("rv<f32, 1, plain>", 1),
    ("rv<bf16, 2000, plain>", 4),
    ("rv<f32, 4096, lane order>", 4),
    ("rv<f32, 100000, plain>", 32),
    ("st<bf16, 64x16>", 4),
    ("st<bf16, 64x32>", 4),
    ("st<bf16, 128x80>", 4),
    ("st<f32, 64x256>", 4),
    ("st<bf16, 256x256>", 4),
]


@functools.cache
def shown_of(text: str, warps: int) -> Picture:
    return read(picture(parse(text), warps))


@pytest.mark.parametrize(("text", "warps"), SHAPES, ids=lambda x: str(x))
def test_all_of_a_picture_lies_inside_it_and_no_text_on_another(text: str, warps: int) -> None:
    shown = shown_of(text, warps)
    for box in shown.texts + shown.cells:
        assert shown.whole.holds(box), box
    for one, other in itertools.combinations(shown.texts, 2):
        assert not one.overlaps(other), (one, other)


@pytest.mark.parametrize(("text", "warps"), SHAPES, ids=lambda x: str(x))
def test_the_text_of_a_cell_fits_the_cell(text: str, warps: int) -> None:
    shown = shown_of(text, warps)
    inside = [t for t in shown.texts if t.style == "cell"]
    assert len(inside) > 16
    for word in inside:
        assert any(cell.holds(word) for cell in shown.cells), word


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_dtype_has_its_pictures(dtype) -> None:
    for type in (RT(dtype, 64, 64), shared_tile(dtype, 64, 64), shared_tile(dtype, 64, 16)):
        assert read(picture(type, 4)).words("title") == [
            f"{type} over 4 warps" if isinstance(type, RT) else str(type)
        ]


def test_a_large_tile_makes_no_large_picture() -> None:
    assert len(picture(parse("rt<f32, 512x512>"), 4)) < 80_000
    assert len(picture(parse("st<bf16, 256x256>"))) < 80_000


def test_a_picture_has_a_title_and_a_description_for_who_cannot_see_it() -> None:
    svg = picture(parse("rt<bf16, 64x64>"))
    assert "<title>rt&lt;bf16, 64x64&gt; over 4 warps</title>" in svg
    assert "<desc>A register tile: 64 rows, 64 columns, 32 values a lane</desc>" in svg


@pytest.mark.parametrize(
    ("text", "warps", "message"),
    [
        ("gl<bf16, 2>", 4, "has no layout to show"),
        ("bf16", 4, "has no layout to show"),
        ("rt<bf16, 16x64>", 4, "its rows must be a multiple of 64, not 16"),
        ("rt<bf16, 64x8>", 4, "its columns must be a multiple of 16, not 8"),
        ("rv<f32, 16, per row>", 4, "its length must be a multiple of 64, not 16"),
        ("rt<bf16, 64x64>", 0, "a group has 1 to 32 warps, not 0"),
        ("rv<f32, 64, plain>", 33, "a group has 1 to 32 warps, not 33"),
        ("st<bf16, 12x64>", 4, "is not a shared tile"),
    ],
)
def test_what_has_no_picture_is_refused(text: str, warps: int, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        picture(parse(text), warps)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", DRAWN.PICTURES)
def test_a_picture_of_the_pages_is_as_the_layout_is_now(name: str) -> None:
    text, warps = DRAWN.PICTURES[name]
    kept = (DRAWN.FOLDER / name).read_text(encoding="utf-8")
    assert kept == picture(parse(text), warps), "if it should be another, `make pictures`"


def shown_on(page: Path) -> list[str]:
    """The pictures of docs/ that a page shows."""
    return re.findall(r"\]\((?:docs/)?pictures/(\S+)\)", page.read_text(encoding="utf-8"))


def test_the_page_shows_every_picture_of_a_layout() -> None:
    assert sorted(shown_on(PAGE)) == sorted(DRAWN.PICTURES)


def test_no_picture_is_kept_that_no_page_shows() -> None:
    pages = [ROOT / "README.md", *PAGE.parent.glob("*.md")]
    shown = {name for page in pages for name in shown_on(page)}
    assert {p.name for p in DRAWN.FOLDER.iterdir()} == shown


def test_the_ratios_in_the_readme_are_drawn_from_the_committed_results() -> None:
    measured = load(ROOT / "tools" / "measured.py")
    assert measured.FILE.read_text(encoding="utf-8") == measured.picture(), "`make pictures`"
    assert f"]({measured.FILE.relative_to(ROOT).as_posix()})" in (ROOT / "README.md").read_text(
        encoding="utf-8"
    )
