"""benchmarks/ladder.py: it leaves out wrong steps, and its table and files show the figures."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from examples.catalog import LADDER, ROUNDING
from pykittens.cli.arguments import load
from pykittens.runtime import nvrtc

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
ABOUT = {"card": "A Card", "driver": "1.2", "date": "2026-01-31"}
SIZES = (96, 100)
MILLISECONDS = {"cuBLAS": 2.0, "01_warp": 8.0, "08_neighbours": 1.0}


@pytest.fixture
def ladder(monkeypatch):
    """The program as a module, with the import path as it was afterwards."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return load(BENCHMARKS / "ladder.py")


def timed(contenders, buffers, rounds=3):
    """Calls each contender once with each set of buffers, and returns the times of MILLISECONDS."""
    from protocol import Figure

    for call in contenders.values():
        for i in range(buffers):
            call(i)
    return [Figure(name, (MILLISECONDS[name],) * rounds) for name in contenders]


def bench(ladder, measure=timed):
    """Figures without a GPU."""
    return ladder.Bench(measure=measure, device="cpu", count=lambda tensors: 2)


def on_the_host(ladder, steps, n):
    torch.manual_seed(0)
    return ladder.measured(steps, n, bench(ladder))


def invented(ladder, *sizes):
    """The rows of two steps with the times of MILLISECONDS."""
    from protocol import Figure

    figures = {name: Figure(name, (took,) * 3) for name, took in MILLISECONDS.items()}
    library = figures.pop("cuBLAS")
    return [
        ladder.row(f.name, f"{n}", "burst", f, library, 2.0 * n**3, 0.001)
        for n in sizes
        for f in figures.values()
    ]


def some(ladder):
    return {name: k for name, k in ladder.kernels().items() if name in MILLISECONDS}


def taken(names):
    takes = SimpleNamespace(threads=384, registers=168, shared_bytes=2048)
    return dict.fromkeys(names, takes)


def test_it_knows_the_kernel_of_every_step(ladder):
    files = [Path(step.file).stem for step in LADDER]
    assert list(ladder.kernels()) == files
    assert {k.parameters.name for k in ladder.kernels().values()} == {"matmul"}


def test_a_row_has_the_rates_and_their_ratio(ladder):
    rows, faults = on_the_host(ladder, some(ladder), 96)
    assert faults == {}
    assert [(r["kernel"], r["shape"], r["ratio"]) for r in rows] == [
        ("01_warp", "96", 0.25),
        ("08_neighbours", "96", 2.0),
    ]
    assert rows[0]["ours"] == pytest.approx(2 * 96**3 / 8e-3 / 1e12)
    assert rows[0]["library"] == pytest.approx(2 * 96**3 / 2e-3 / 1e12)
    assert all(0 < r["error"] <= ROUNDING for r in rows)


def last_row_unwritten(a, b, c):
    c[:-1] = (a.double() @ b.double().T)[:-1]


def one_element_off(a, b, c):
    c[:] = a.double() @ b.double().T
    c[50, 70] += 1.0


def refuses(a, b, c):
    raise RuntimeError("no such instruction")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [(last_row_unwritten, "error inf"), (one_element_off, "error "), (refuses, "no such")],
)
def test_a_step_that_is_wrong_is_told_and_not_measured(ladder, capsys, wrong, told):
    rows, faults = on_the_host(ladder, {"wrong": wrong, **some(ladder)}, 96)
    assert [r["kernel"] for r in rows] == ["01_warp", "08_neighbours"]
    assert list(faults) == ["wrong"]
    assert told in faults["wrong"]
    assert "ladder: 96, wrong: " in capsys.readouterr().err


def test_the_table_has_a_line_a_step_and_dashes_for_what_was_not_measured(ladder):
    rows = invented(ladder, 96)
    rows[0]["ours"] = 54.4
    text = ladder.table(rows, taken(["01_warp", "02_tile"]), SIZES)
    assert text.splitlines() == [
        "| Step | threads | registers | shared | TFLOP/s at 96 | of cuBLAS | TFLOP/s at 100 | of cuBLAS |",
        "|---|---|---|---|---|---|---|---|",
        "| [01_warp](01_warp.py) | 384 | 168 | 2 KiB | 54 | 0.25 | - | - |",
        "| [02_tile](02_tile.py) | 384 | 168 | 2 KiB | - | - | - | - |",
    ]


def test_the_legend_names_the_library_the_card_and_the_rounds(ladder):
    rows = invented(ladder, *SIZES)
    for row in rows:
        row["library"] = 800.4 if row["shape"] == "96" else 700.0
    said = ladder.legend(rows, ABOUT)
    assert said.startswith(
        "cuBLAS: 800 at 96, 700 at 100. card A Card, driver 1.2, date 2026-01-31.\n"
    )
    assert said.endswith("medians of 3 rounds.\n")
    assert ladder.legend([], ABOUT) == "Not measured.\n"


def test_what_stands_between_the_marks_is_replaced(ladder):
    page = f"above\n{ladder.BEGIN}old\n{ladder.END}below\n"
    written = ladder.rewritten(page, "new\n")
    assert written == f"above\n{ladder.BEGIN}\nnew\n\n{ladder.END}below\n"
    assert ladder.rewritten(written, "new\n") == written
    with pytest.raises(SystemExit, match="lost a mark"):
        ladder.rewritten("no marks", "new\n")


def test_the_readme_has_the_marks(ladder):
    page = ladder.README.read_text(encoding="utf-8")
    assert ladder.rewritten(page, "new\n") != page


def test_the_figures_are_kept_and_drawn_where_that_is_possible(ladder, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(ladder, "plot", drawn.append)
    rows = invented(ladder, 96)
    path = ladder.save(rows, ABOUT, tmp_path / "results", "-again")
    assert path.name == "a-card-2026-01-31-ladder-again.json"
    assert drawn == [path]
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert kept["about"] == ABOUT
    assert [r["kernel"] for r in kept["rows"]] == ["01_warp", "08_neighbours"]
    monkeypatch.setattr(ladder, "plot", None)
    assert ladder.save(rows, ABOUT, tmp_path) == tmp_path / "a-card-2026-01-31-ladder.json"


@pytest.fixture
def machine(ladder, tmp_path, monkeypatch):
    """`machine(sizes)` runs the program as if there were a GPU, on which the last size it knows ends all."""
    readme, measured, known = tmp_path / "README.md", ladder.measured, some(ladder)

    def on_a_gpu(steps, n, on_gpu):
        if n > 96:
            raise RuntimeError("the card has gone")
        rounds = on_gpu.measure.keywords["rounds"]
        return measured(steps, n, bench(ladder, partial(timed, rounds=rounds)))

    def run(*sizes):
        readme.write_text(f"{ladder.BEGIN}{ladder.END}", encoding="utf-8")
        words = ["--readme", str(readme), "--out", str(tmp_path), "--sizes", *map(str, sizes)]
        monkeypatch.setattr("sys.argv", ["ladder.py", *words])
        ladder.main()

    monkeypatch.setattr(ladder, "measured", on_a_gpu)
    monkeypatch.setattr(ladder, "kernels", lambda: {**known, "wrong": refuses})
    monkeypatch.setattr(ladder, "about", lambda: ABOUT)
    monkeypatch.setattr(ladder, "plot", None)
    monkeypatch.setattr(ladder, "resources", taken)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return run


def test_a_run_writes_the_table_and_names_the_steps_that_are_left_out(machine, tmp_path):
    with pytest.raises(SystemExit, match="left out, as reported above: wrong at 96"):
        machine(96)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert re.search(r"^\| \[08_neighbours\].* \| 2\.00 \|$", page, re.MULTILINE)
    assert re.search(r"^\| \[wrong\].* \| - \| - \|$", page, re.MULTILINE)
    assert "medians of 5 rounds" in page


def test_what_was_measured_stays_where_a_later_size_fails(machine, tmp_path):
    with pytest.raises(RuntimeError, match="the card has gone"):
        machine(96, 100)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert re.search(r"^\| \[08_neighbours\].* \| 2\.00 \| - \| - \|$", page, re.MULTILINE)
    assert (tmp_path / "a-card-2026-01-31-ladder.json").exists()


def test_without_a_gpu_it_says_so_and_writes_nothing(ladder, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["ladder.py"])
    before = ladder.README.read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match="no CUDA device"):
        ladder.main()
    assert ladder.README.read_text(encoding="utf-8") == before


@pytest.mark.units
@pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
def test_what_a_step_takes_is_read_from_its_machine_code(ladder):
    taken = ladder.resources(some(ladder))
    assert [(r.threads, r.shared_bytes // 1024) for r in taken.values()] == [(32, 8), (384, 208)]
