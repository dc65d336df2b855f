"""The steps of examples/matmul_ladder/ beside cuBLAS, in one run on this machine's GPU.

Checks every step against float64, writes the figures to benchmarks/results/, draws them where matplotlib is installed,
and writes the table of examples/matmul_ladder/README.md anew.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch  # noqa: E402
from protocol import Figure, buffer_count, burst, driver_version  # noqa: E402

import pykittens as pk  # noqa: E402
from examples.catalog import LADDER, ROUNDING, load  # noqa: E402

try:
    from plot import plot
except ModuleNotFoundError:  # matplotlib is optional
    plot = None  # type: ignore[assignment]

README = ROOT / "examples" / "matmul_ladder" / "README.md"
SIZES = (4096, 16384)
CHECKED_ROWS = 256
BEGIN, END = "<!-- written by benchmarks/ladder.py -->\n", "<!-- end of what is written -->\n"

Row = dict[str, Any]
Measure = Callable[[dict[str, Callable[[int], Any]], int, int], list[Figure]]


def kernels() -> dict[str, Any]:
    """The kernel of every step, by the name of its file without the ending."""
    return {Path(step.file).stem: load(step).kernel for step in LADDER}


# -- measuring ---------------------------------------------------------------------------------


def error_of(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> float:
    """The largest error of rows all over c = a @ b.T over its element's size plus the root mean square of its row.

    Infinite where any element of c is NaN, as those are that were not written.
    """
    if bool(c.isnan().any()):
        return float("inf")
    rows = torch.linspace(0, len(a) - 1, min(CHECKED_ROWS, len(a)), device=a.device).long()
    expected = a[rows].double() @ b.double().T
    scale = expected.abs() + expected.square().mean(-1, keepdim=True).sqrt()
    return float(((c[rows].double() - expected).abs() / scale).max())


def checked(
    steps: dict[str, Any], sets: Sequence[Sequence[torch.Tensor]]
) -> tuple[dict[str, float], dict[str, str]]:
    """The errors of the steps that are right, and what is wrong with the others."""
    a, b, c = sets[0]
    errors, faults = {}, {}
    for name, kernel in steps.items():
        try:
            c.fill_(torch.nan)
            kernel(a, b, c)
            error = error_of(a, b, c)
        except (pk.KernelError, RuntimeError) as fault:
            faults[name] = f"{type(fault).__name__}: {fault}"
        else:
            if error <= ROUNDING:
                errors[name] = error
            else:
                faults[name] = f"error {error:.2e} where {ROUNDING:.2e} is allowed"
        if name in faults:  # at once: a fault on a GPU may leave nothing to go on with
            print(f"ladder: {name} at {len(a)}: {faults[name]}", file=sys.stderr, flush=True)
    return errors, faults


def measured(
    steps: dict[str, Any],
    n: int,
    rounds: int,
    measure: Measure = burst,
    device: str = "cuda",
    count: Callable[[Sequence[torch.Tensor]], int] = buffer_count,
) -> tuple[list[Row], dict[str, str]]:
    """A row a step that is right, all taken in turn with cuBLAS for n x n matrices; what is wrong with the others."""
    empty = [torch.empty(n, n, dtype=torch.bfloat16, device="meta")] * 3
    buffers = count(empty)

    def normal() -> torch.Tensor:
        return torch.randn(n, n, device=device, dtype=torch.float32).bfloat16()

    sets = [(normal(), normal(), torch.empty_like(normal())) for _ in range(buffers)]
    errors, faults = checked(steps, sets)

    def library(i: int) -> None:
        torch.mm(sets[i][0], sets[i][1].T, out=sets[i][2])

    def call(kernel: Any, i: int) -> None:
        kernel(*sets[i])

    contenders: dict[str, Callable[[int], Any]] = {
        name: functools.partial(call, steps[name]) for name in errors
    }
    *figures, cublas = measure({**contenders, "cuBLAS": library}, buffers, rounds)
    return [row(f, cublas, n, errors[f.name]) for f in figures], faults


def row(figure: Figure, library: Figure, n: int, error: float) -> Row:
    """One step at one size, in the form of benchmarks/run.py; TFLOP/s."""
    work = 2.0 * n**3 * 1e-9  # ms to TFLOP/s
    return {
        "kernel": figure.name,
        "shape": f"{n}",
        "protocol": "burst",
        "ours": work / figure.median,
        "library": work / library.median,
        "against": library.name,
        "unit": "TFLOP/s",
        "ratio": library.median / figure.median,
        "error": error,
        "rounds": {f.name: f.rounds for f in (figure, library)},
    }


# -- writing -----------------------------------------------------------------------------------


def resources(steps: dict[str, Any]) -> dict[str, Any]:
    """What each step takes on a GPU, from its machine code."""
    tensors = [torch.zeros(256, 256, dtype=torch.bfloat16) for _ in range(3)]
    return {name: kernel.resources(*tensors) for name, kernel in steps.items()}


def table(rows: Sequence[Row], taken: dict[str, Any], sizes: Sequence[int] = SIZES) -> str:
    """A line a step: what it takes, and how fast it is at each size; a dash where that was not measured."""
    heads = ["Step", "threads", "registers", "shared"]
    for n in sizes:
        heads += [f"TFLOP/s at {n}", "of cuBLAS"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    found = {(r["kernel"], r["shape"]): r for r in rows}
    for name, takes in taken.items():
        cells = [f"[{name}]({name}.py)", f"{takes.threads}", f"{takes.registers}"]
        cells.append(f"{takes.shared_bytes / 1024:.0f} KiB")
        for n in sizes:
            r = found.get((name, f"{n}"))
            cells += [f"{r['ours']:.0f}", f"{r['ratio']:.2f}"] if r else ["-", "-"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def legend(rows: Sequence[Row], about: dict[str, str]) -> str:
    """The line below the table: what cuBLAS reached, and on what and how it was measured."""
    if not rows:
        return "Not measured.\n"
    library = {r["shape"]: r["library"] for r in rows}
    rounds = min(len(times) for r in rows for times in r["rounds"].values())
    reached = ", ".join(f"{speed:.0f} at {n}" for n, speed in library.items())
    return (
        f"cuBLAS: {reached}. {', '.join(f'{k} {v}' for k, v in about.items())}.\n"
        f"Burst, random normal data, all in turn in one run, medians of {rounds} rounds.\n"
    )


def rewritten(text: str, written: str) -> str:
    """A page with what stands between the marks replaced."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        sys.exit("ladder: the page has lost a mark of what this program writes")
    return f"{before}{begin}\n{written}\n{end}{after}"


def about() -> dict[str, str]:
    """The card, the driver, the date and the versions."""
    return {
        "card": torch.cuda.get_device_properties(0).name,
        "driver": driver_version(),
        "date": datetime.date.today().isoformat(),
        "pykittens": pk.__version__,
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
    }


def save(rows: Sequence[Row], about: dict[str, str], folder: Path, label: str = "") -> Path:
    """Write the figures, and draw them where matplotlib is installed; returns the file of the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    card = about["card"].replace(" ", "-").lower()
    path = folder / f"{card}-{about['date']}-ladder{label}.json"
    path.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")
    if plot is None:
        print("ladder: no picture, as matplotlib is not installed; later: benchmarks/plot.py", path)
    elif rows:
        print(plot(path))
    return path


def main() -> None:
    """Check, measure and write; exits 1 where a step is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--readme", type=Path, default=README)
    parser.add_argument("--label", default="")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("ladder: no CUDA device; `pykittens check` says what a step costs without one")
    torch.manual_seed(0)
    steps, where = kernels(), about()
    taken = resources(steps)
    rows: list[Row] = []
    wrong: list[str] = []
    for n in options.sizes:
        made, faults = measured(steps, n, options.rounds)
        rows += made
        wrong += [f"{name} at {n}" for name in faults]
        torch.cuda.empty_cache()
        # After each size: what was measured stays where a later one fails.
        save(rows, where, options.out, options.label)
        written = f"{table(rows, taken, options.sizes)}\n{legend(rows, where)}"
        page = options.readme.read_text(encoding="utf-8")
        options.readme.write_text(rewritten(page, written), encoding="utf-8")
        print(written)
    if wrong:
        sys.exit(f"ladder: left out, as told above: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
