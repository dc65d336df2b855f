"""Three experiments with one product on this machine's GPU: stages, persistent blocks, and the order of blocks.

Each changes one thing: 1 to 4 stages of a ring; persistent blocks or a block per tile, for short sums; and the order of
the tiles at 16384, with the bytes read from memory, counted by ncu if it is available, otherwise simulated. Launches
are measured in CUDA graphs, since the shortest take less time than a launch on the host. Writes a table and the figures
to benchmarks/results/, and draws them if matplotlib is installed. docs/tuning/experiments-h200.md has the predictions.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import protocol  # noqa: E402
import record  # noqa: E402
import torch  # noqa: E402
from experiments_report import table  # noqa: E402
from experiments_traffic import Bytes, counted, simulated  # noqa: E402
from gemm_measure import compared  # noqa: E402
from gemm_problems import Data, Problem, made, square  # noqa: E402
from protocol import Bench  # noqa: E402
from record import Row, about  # noqa: E402

import pykittens as pk  # noqa: E402
from pykittens import bf16, f32  # noqa: E402
from pykittens.kernels.gemm import gemm  # noqa: E402
from pykittens.kernels.gemm.config import Config  # noqa: E402

try:
    from experiments_plot import plot
except ModuleNotFoundError:  # matplotlib is optional
    plot = None  # type: ignore[assignment]

Product = Callable[[Data], Any]
STAGE_SIZES = (4096, 8192)
DEPTHS = (64, 128, 256, 512, 1024)  # k, where m = n = 4096
ORDER_SIZE = 16384
ORDERS = {
    "row after row": pk.row_major,
    "column after column": pk.column_major,
    "groups of 4 rows": pk.supergroup(4),
    "groups of 8 rows": pk.supergroup(8),
    "groups of 16 rows": pk.supergroup(16),
}
KERNEL = "tiles_in_order"  # how ncu finds the launches


@pk.kernel
def tiles_in_order(A, B, C, *, persistent, order):  # type: ignore[no-untyped-def]
    """C = A @ B.T in bf16, 128x256 tiles; persistent blocks that take them in an order, or a block per tile."""
    pk.require(A.cols == B.cols and C.shape == (A.rows, B.rows), "A is m x k, B n x k, C m x n")
    inputs = pk.pipeline(3, a=pk.st(bf16, 128, 64), b=pk.st(bf16, 256, 64))
    outputs = pk.pipeline(1, c=pk.st(bf16, 128, 256))
    tiles = C.tiles(128, 256)
    tasks = pk.persistent(tiles, order=order) if persistent else [pk.grid(*tiles)]
    steps = pk.cdiv(A.cols, 64)

    with pk.producer():
        for row, col in tasks:
            for k in pk.range(steps):
                with inputs.fill() as s:
                    pk.load_async(s.a, A[row, k])
                    pk.load_async(s.b, B[col, k])

    with pk.consumers(2) as w:
        for _row, _col in tasks:
            acc = pk.zeros(f32, 64, 256)
            for _ in pk.range(steps):
                with inputs.drain() as s:
                    acc = pk.mma_ABt(s.a.tiles(64, 64)[w], s.b, acc)
            with outputs.fill() as s:
                pk.store(s.c.tiles(64, 256)[w], acc.to(bf16))

    with pk.storer():
        for row, col in tasks:
            with outputs.drain() as s:
                pk.store_async(C[row, col], s.c)


# -- the experiments -------------------------------------------------------------------------------


def measured(
    bench: Bench, kind: str, at: int, problem: Problem, ways: dict[str, Product]
) -> list[Row]:
    """A row per right variant and one for cuBLAS, measured in turn."""
    figures, _, _ = compared(bench, problem, ways, f"experiments: {kind} at {at}")
    return [
        {
            "experiment": kind,
            "name": f.name,
            "at": at,
            "tflops": problem.work / f.median * record.SCALES["TFLOP/s"],
            "ratio": figures[-1].median / f.median,
            "rounds": f.rounds,
        }
        for f in figures
    ]


def stages(bench: Bench, sizes: Sequence[int] = STAGE_SIZES) -> list[Row]:
    """One to four stages of the same ring, 128x256 tiles."""
    configs = {f"{s}": Config(128, 256, stages=s, out_cols=64) for s in (1, 2, 3, 4)}
    ways = {n: functools.partial(_by_config, config=c) for n, c in configs.items()}
    return [row for n in sizes for row in measured(bench, "stages", n, square(n), ways)]


def _by_config(data: Data, config: Config) -> None:
    gemm(data.a, data.b, data.out, config=config)


def _in_order(data: Data, persistent: bool, order: Any) -> None:
    tiles_in_order(data.a, data.b, data.out, persistent=persistent, order=order)


def persistence(
    bench: Bench, depths: Sequence[int] = DEPTHS, size: int = STAGE_SIZES[0]
) -> list[Row]:
    """Persistent blocks and a block per tile, row after row, for sums of few steps."""
    named = {"persistent": True, "a block a tile": False}
    ways = {
        n: functools.partial(_in_order, persistent=p, order=pk.row_major) for n, p in named.items()
    }
    return [row for k in depths for row in measured(bench, "persistent", k, square(size, k), ways)]


def orders(
    bench: Bench, size: int = ORDER_SIZE, traffic: Callable[[int], dict[str, Bytes]] | None = None
) -> list[Row]:
    """The orders of tiles, and the bytes that each moves."""
    ways = {
        n: functools.partial(_in_order, persistent=True, order=order) for n, order in ORDERS.items()
    }
    rows = measured(bench, "orders", size, square(size), ways)
    moved = (traffic or moved_bytes)(size)
    return [{**row, **(vars(moved[row["name"]]) if row["name"] in moved else {})} for row in rows]


EXPERIMENTS: dict[str, Callable[[Bench], list[Row]]] = {
    "stages": stages,
    "persistent": persistence,
    "orders": orders,
}


# -- bytes of memory -------------------------------------------------------------------------------


def moved_bytes(size: int) -> dict[str, Bytes]:
    """The bytes that each order moves: counted by the hardware if possible, otherwise simulated."""
    command = [sys.executable, str(Path(__file__).resolve()), "--launch-orders", f"{size}"]
    found = counted(command, KERNEL, list(ORDERS))
    if isinstance(found, str):
        print(f"experiments: bytes are simulated: {found}", flush=True)
        card = torch.cuda.get_device_properties(0).name if torch.cuda.is_available() else ""
        return simulated_orders(size, card)
    return found


def simulated_orders(size: int, card: str = "") -> dict[str, Bytes]:
    """The bytes that each order moves in the simulation of the cache."""
    found = {}
    for name, order in ORDERS.items():
        constants = {"persistent": True, "order": order}
        found[name] = simulated(tiles_in_order, size, card, **constants)
    return found


def launch_orders(size: int) -> None:
    """One launch of each order, for ncu to count."""
    data = made(square(size), "cuda")
    for order in ORDERS.values():
        _in_order(data, True, order)
    torch.cuda.synchronize()


# -- the program ------------------------------------------------------------------------------------


def save(rows: Sequence[Row], where: dict[str, Any], folder: Path, label: str) -> Path:
    """Write the tables and the figures; returns the path of the figures."""
    note = "TFLOP/s, and the ratio to cuBLAS in the same run; launches in CUDA graphs."
    text = f"# {record.heading(where)}\n\n{note}\n\n{table(rows)}\n"
    return record.save({"about": where, "rows": rows}, folder, f"experiments{label}", text)


def draw(path: Path) -> None:
    """Draw a file of figures beside it, or say how to draw it later."""
    record.draw(plot, path, "benchmarks/experiments.py --plot")


def main() -> None:
    """Check, measure and write."""
    parser = record.parser(__doc__)
    parser.add_argument("--only", default=",".join(EXPERIMENTS))
    parser.add_argument("--rest", type=float, default=protocol.REST, help="seconds")
    parser.add_argument("--simulate", action="store_true", help="only the bytes; needs no GPU")
    parser.add_argument("--plot", type=Path, help="figures to draw")
    parser.add_argument("--launch-orders", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plot:
        draw(options.plot)
        return
    if options.simulate:
        for name, moved in simulated_orders(ORDER_SIZE).items():
            print(f"{name}: {moved.read / 1e9:.1f} GB read, {moved.written / 1e9:.1f} written")
        return
    if not torch.cuda.is_available():
        sys.exit("experiments: no CUDA device; --simulate prints what the orders should read")
    torch.manual_seed(0)
    if options.launch_orders:
        launch_orders(options.launch_orders)
        return
    bench = protocol.bench_of("graphs", options.rounds, options.rest)
    where, wanted = about(), options.only.split(",")
    if unknown := set(wanted) - set(EXPERIMENTS):
        sys.exit(f"experiments: there is no experiment {', '.join(unknown)}")
    rows: list[Row] = []
    for kind in wanted:
        rows += EXPERIMENTS[kind](bench)
        path = save(rows, where, options.out, options.label)  # kept if a later one fails
        print(table([row for row in rows if row["experiment"] == kind]), flush=True)
        torch.cuda.empty_cache()
    draw(path)


if __name__ == "__main__":
    main()
