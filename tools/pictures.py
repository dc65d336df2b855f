"""Draw the pictures of docs/layouts.md, docs/linear.md, the race of docs/checking.md and the program of docs/mega.md.

`make pictures` calls it.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import tempfile
from pathlib import Path
from typing import Any

import pykittens as pk
from pykittens.emulate import machine
from pykittens.emulate.finding import Moment
from pykittens.emulate.races.moments import Moments
from pykittens.pictures.picture import picture
from pykittens.pictures.steps import draw_beside
from pykittens.pictures.svg import BLANK, MARGIN, MUTED, Drawing, hue, mixed_with_white
from pykittens.runtime.arguments import check, scalars
from pykittens.types.text import parse
from tests.test_checking_page import PROGRAMS

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"

# The file, the type it shows and the warps of its group.
PICTURES = {
    "register_tile.svg": ("rt<bf16, 64x64>", 4),
    "register_tile_wide.svg": ("rt<f32, 128x256>", 4),
    "vector_per_row.svg": ("rv<f32, 64, per row>", 4),
    "vector_per_column.svg": ("rv<f32, 64, per column>", 4),
    "vector_plain.svg": ("rv<bf16, 2000, plain>", 4),
    "vector_lane_order.svg": ("rv<f32, 4096, lane order>", 4),
    "shared_128.svg": ("st<bf16, 64x64>", 4),
    "shared_64.svg": ("st<bf16, 64x32>", 4),
    "shared_32.svg": ("st<bf16, 64x80>", 4),
}
RACE = "race_steps.svg"
TWO_LAYERS = "two_layers.svg"
CHUNKS, INVERSE = "linear_chunks.svg", "delta_inverse.svg"
SIDE = 48  # pixels of a chunk


def main() -> None:
    """Write every picture."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (text, warps) in PICTURES.items():
        (FOLDER / name).write_text(picture(parse(text), warps), encoding="utf-8", newline="\n")
    (FOLDER / RACE).write_text(race(), encoding="utf-8", newline="\n")
    drawn = {TWO_LAYERS: two_layers()["svg"], CHUNKS: chunks().svg(), INVERSE: inverse().svg()}
    for name, text in drawn.items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="\n")


def two_layers() -> dict[str, Any]:
    """The names of the code of docs/mega.md after it has run; `svg` is the picture."""
    return of_page("mega")


def of_page(name: str) -> dict[str, Any]:
    """The names of the code of a page of docs/ after all of it has run."""
    page = (FOLDER.parent / f"{name}.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"{name}.py")
        file.write_text("\n".join(re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)), "utf-8")
        return runpy.run_path(str(file))


def chunks(count: int = 6, segments: int = 2) -> Drawing:
    """The weights of all pairs of positions by chunks, and the way of the state through them."""
    drawing = Drawing(
        "Linear attention in chunks",
        "Weights of pairs inside of a chunk are found; all earlier positions are in one matrix, the state.",
    )
    x, y, inside, before = MARGIN + 56, drawing.top + 16, hue(5), mixed_with_white(hue(2), 0.4)
    drawing.text(x, y - 12, "query (down) by key", "head")
    for i in range(count):
        drawing.text(x - 10, y + i * SIDE + SIDE // 2 + 4, f"chunk {i + 1}", "side")
        if i:
            drawing.rect(x, y + i * SIDE, i * SIDE, SIDE - 1, before)
            drawing.text(x + i * SIDE // 2, y + i * SIDE + SIDE // 2 + 4, f"q S{i}", "cell")
        drawing.rect(x + i * SIDE, y + i * SIDE, SIDE - 1, SIDE - 1, BLANK)
        for row in range(4):  # the triangle of a chunk
            step = SIDE // 4
            drawing.rect(
                x + i * SIDE, y + i * SIDE + row * step, (row + 1) * step - 1, step - 1, inside
            )
    right = x + count * SIDE + 90
    drawing.text(right, y - 12, "the state", "head")
    wide, per, down = SIDE + 16, count // segments, (96, 160, 60)
    for i in range(count):
        at = right + i * wide
        drawing.cell(at, y + 40, SIDE, 30, inside, f"{i + 1}")
        drawing.cell(at + wide - 24, y + 40 + down[0], 32, 30, before, f"S{i + 1}")
        drawing.arrow(at + SIDE // 2, y + 72, at + wide - 14, y + 40 + down[0] - 2)
        if i:
            drawing.arrow(at - 6, y + 40 + down[0] - 2, at + SIDE // 2, y + 72)
    for segment in range(segments):
        at = right + segment * per * wide
        end = at + (per - 1) * wide + SIDE
        drawing.line(at, y + 26, end, y + 26, MUTED)
        drawing.text((at + end) // 2, y + 18, f"segment {segment + 1}", "axis")
    drawing.notes(
        right,
        y + 210,
        [
            "A chunk takes the state before it for its queries, and adds its keys and values.",
            "Segments run at once when heads are few: a launch finds what each adds to the",
            "state, a second the states at their starts, a third the outputs.",
        ],
    )
    return drawing


def inverse(blocks: int = 4) -> Drawing:
    """How the inverse of a chunk of the delta rule is found."""
    drawing = Drawing(
        "The inverse of a chunk of the delta rule",
        "X = (I + A)^-1 of 64 x 64, 16 rows at a time, from the first to the last.",
    )
    x, y = MARGIN, drawing.top
    for i in range(blocks):
        for j in range(blocks):
            fill = hue(5) if i == j else mixed_with_white(hue(2), 0.4) if j < i else BLANK
            text = "forward" if i == j else "A X" if j < i else "0"
            drawing.cell(x + j * 76, y + i * SIDE, 76, SIDE, fill, text)
    drawing.notes(
        x + blocks * 76 + 36,
        y + 20,
        [
            "What the rows above are to 16 rows is a product with A on tensor cores,",
            "of operands in two parts of bf16, which keep 16 bits. Then the 16 rows",
            "are substituted forward in f32, one after another. A product of powers",
            "of A would overflow where keys are alike; X itself stays small.",
        ],
    )
    return drawing


def race() -> str:
    """The race of gram.py step by step, as a check finds it, beside the same steps of the repaired program."""
    with tempfile.TemporaryDirectory() as folder:
        faulty, repaired = (
            _gram(Path(folder, str(number), "gram.py"), PROGRAMS[number]) for number in range(2)
        )
        (finding,) = pk.check(*faulty, schedules=1, costs=False, compile=False).findings
        return draw_beside("gram, step by step", finding, _same_steps(*repaired)).svg()


def _gram(path: Path, program: str) -> tuple[Any, ...]:
    """The kernel of a program, and its arguments."""
    path.parent.mkdir()
    path.write_text(program, encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()):
        names = runpy.run_path(str(path))
    return names["gram"], names["X"], names["G"]


def _same_steps(kernel: Any, *arrays: Any) -> tuple[Moment, ...]:
    """What happens from the first product that reads x[0] to the next copy into it."""
    call, moments = check(kernel.parameters, arrays, {}), Moments()
    tensors = {name: array.numpy() for name, array in call.tensors.items()}
    machine.run(kernel.record(call), tensors, scalars(call), 0, moments)
    (events,) = moments.events.values()
    product = next(e for e in events if e.what.startswith("starts a product"))
    tile = product.memory[0]
    later = (e for e in events if e.number > product.number and tile in e.memory)
    copy = next(e for e in later if e.what.startswith("starts a copy"))
    return moments.between(tile, product, copy)


if __name__ == "__main__":
    main()
