"""Draw the pictures of docs/layouts.md, the race of docs/checking.md and the program of docs/mega.md.

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


def main() -> None:
    """Write every picture."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (text, warps) in PICTURES.items():
        (FOLDER / name).write_text(picture(parse(text), warps), encoding="utf-8", newline="\n")
    (FOLDER / RACE).write_text(race(), encoding="utf-8", newline="\n")
    (FOLDER / TWO_LAYERS).write_text(two_layers()["svg"], encoding="utf-8", newline="\n")


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
