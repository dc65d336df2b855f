"""The steps of examples/matmul_ladder/ beside cuBLAS, in one run on this machine's GPU.

Checks every step against float64, writes the figures to benchmarks/results/, draws them if matplotlib is installed, and
updates the table of examples/matmul_ladder/README.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import record  # noqa: E402
import torch  # noqa: E402
from gemm_measure import compared  # noqa: E402
from gemm_problems import square  # noqa: E402
from protocol import Bench, bench_of  # noqa: E402
from record import Row, about, row  # noqa: E402

from examples.catalog import LADDER, load  # noqa: E402

try:
    from plot import plot
except ModuleNotFoundError:  # matplotlib is optional
    plot = None  # type: ignore[assignment]

README = ROOT / "examples" / "matmul_ladder" / "README.md"
SIZES = (4096, 16384)
BEGIN, END = "<!-- written by benchmarks/ladder.py -->\n", "<!-- end of what is written -->\n"


def kernels() -> dict[str, Any]:
    """The kernel of every step, by the name of its file without the ending."""
    return {Path(step.file).stem: load(step).kernel for step in LADDER}


# -- measuring ---------------------------------------------------------------------------------


def measured(steps: dict[str, Any], n: int, bench: Bench) -> tuple[list[Row], dict[str, str]]:
    """A row per right step, measured in turn with cuBLAS for n x n matrices, and the faults of the others."""
    problem = square(n)
    ways = {name: lambda d, step=step: step(d.a, d.b, d.out) for name, step in steps.items()}
    (*figures, library), errors, faults = compared(bench, problem, ways, f"ladder: {n}")
    rows = [
        row(f.name, f"{n}", bench.protocol, f, library, problem.work, errors[f.name])
        for f in figures
    ]
    return rows, faults


# -- writing -----------------------------------------------------------------------------------


def resources(steps: dict[str, Any]) -> dict[str, Any]:
    """The resources of each step on a GPU, from its machine code."""
    tensors = [torch.zeros(256, 256, dtype=torch.bfloat16) for _ in range(3)]
    return {name: kernel.resources(*tensors) for name, kernel in steps.items()}


def table(rows: Sequence[Row], taken: dict[str, Any], sizes: Sequence[int] = SIZES) -> str:
    """A line per step: its resources, and its speed at each size; a dash if it was not measured."""
    heads = ["Step", "threads", "registers", "shared"]
    for n in sizes:
        heads += [f"TFLOP/s at {n}", "of cuBLAS"]
    found = {(r["kernel"], r["shape"]): r for r in rows}
    lines = []
    for name, used in taken.items():
        cells = [f"[{name}]({name}.py)", f"{used.threads}", f"{used.registers}"]
        cells.append(f"{used.shared_bytes / 1024:.0f} KiB")
        for n in sizes:
            r = found.get((name, f"{n}"))
            cells += [f"{r['ours']:.0f}", f"{r['ratio']:.2f}"] if r else ["-", "-"]
        lines.append(cells)
    return record.markdown(heads, lines) + "\n"


def legend(rows: Sequence[Row], about: dict[str, str]) -> str:
    """The text below the table: the speed of cuBLAS, the machine and the protocol."""
    if not rows:
        return "Not measured.\n"
    library = {r["shape"]: r["library"] for r in rows}
    rounds = min(len(times) for r in rows for times in r["rounds"].values())
    reached = ", ".join(f"{speed:.0f} at {n}" for n, speed in library.items())
    return (
        f"cuBLAS: {reached}. {record.heading(about)}.\n"
        f"Burst, random normal data, all in turn in one run, medians of {rounds} rounds.\n"
    )


def rewritten(text: str, written: str) -> str:
    """A page with the text between the marks replaced."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        sys.exit("ladder: the page has lost a mark of the text that this program writes")
    return f"{before}{begin}\n{written}\n{end}{after}"


def save(rows: Sequence[Row], about: dict[str, str], folder: Path, label: str = "") -> Path:
    """Write the figures, and draw them if matplotlib is installed; returns the path of the figures."""
    path = record.save({"about": about, "rows": rows}, folder, f"ladder{label}")
    if rows:
        record.draw(plot, path, "benchmarks/plot.py")
    return path


def main() -> None:
    """Check, measure and write; exits 1 if a step is wrong."""
    parser = record.parser(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--readme", type=Path, default=README)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("ladder: no CUDA device; `pykittens check` shows the costs of a step without one")
    torch.manual_seed(0)
    steps, where = kernels(), about()
    taken = resources(steps)
    rows: list[Row] = []
    wrong: list[str] = []
    for n in options.sizes:
        made, faults = measured(steps, n, bench_of("burst", options.rounds))
        rows += made
        wrong += [f"{name} at {n}" for name in faults]
        torch.cuda.empty_cache()
        # After each size, so that the figures are kept if a later one fails.
        save(rows, where, options.out, options.label)
        written = f"{table(rows, taken, options.sizes)}\n{legend(rows, where)}"
        page = options.readme.read_text(encoding="utf-8")
        options.readme.write_text(rewritten(page, written), encoding="utf-8")
        print(written)
    if wrong:
        sys.exit(f"ladder: left out, as reported above: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
