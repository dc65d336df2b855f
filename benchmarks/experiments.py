"""Three experiments with one product on this machine's GPU: stages, persistent blocks, and the order of blocks.

Each changes one thing and keeps all else: 1 to 4 stages of a ring; blocks that stay or a block a tile, for short sums;
and the order of the tiles at 16384, with what is read from memory: counted by ncu where that is there and allowed, else
simulated. Launches are measured in CUDA graphs, since the shortest take less than the host needs for one. Writes a
table and the figures to benchmarks/results/, and draws them where matplotlib is installed. What was predicted is in
docs/tuning/experiments-h200.md.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import protocol  # noqa: E402
import torch  # noqa: E402
from experiments_report import Row, save, table  # noqa: E402
from experiments_traffic import Bytes, counted, simulated  # noqa: E402
from gemm_problems import ROUNDING, Data, Expected, Problem, made  # noqa: E402

import pykittens as pk  # noqa: E402
from pykittens import bf16, f32  # noqa: E402
from pykittens.kernels.gemm import gemm  # noqa: E402
from pykittens.kernels.gemm.config import Config  # noqa: E402

try:
    from experiments_plot import plot
except ModuleNotFoundError:  # matplotlib is optional
    plot = None  # type: ignore[assignment]

Product = Callable[[Data], Any]
LIBRARY = "cuBLAS"
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
    """C = A @ B.T in bf16, 128x256 tiles; persistent blocks that take them in an order, or a block a tile."""
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


class Bench:
    """How figures are taken: rounds of launches in graphs, on a device, with sets of tensors that take turns."""

    def __init__(
        self,
        measure: Callable[[dict[str, Callable[[int], Any]], int], list[protocol.Figure]],
        device: str = "cuda",
        count: Callable[[Sequence[torch.Tensor]], int] = protocol.buffer_count,
    ) -> None:
        self.measure, self.device, self.count = measure, device, count

    def rows(self, kind: str, at: int, problem: Problem, ways: dict[str, Product]) -> list[Row]:
        """A row a way, checked, all taken in turn with cuBLAS; one that is wrong is told and left out."""
        empty = made(problem, "meta").tensors
        sets = [made(problem, self.device) for _ in range(self.count(empty))]
        expected = Expected(problem, sets[0])
        contenders: dict[str, Callable[[int], Any]] = {}
        for name, way in ways.items():
            fault = _fault(way, sets[0], expected)
            if fault:
                print(f"experiments: {kind}, {name} at {at}: {fault}", file=sys.stderr, flush=True)
            else:
                contenders[name] = lambda i, way=way: way(sets[i])
        contenders[LIBRARY] = lambda i: torch.mm(sets[i].a, sets[i].b.T, out=sets[i].out)
        *figures, library = self.measure(contenders, len(sets))
        return [
            {
                "experiment": kind,
                "name": f.name,
                "at": at,
                "tflops": problem.work / f.median * 1e-9,  # ms to TFLOP/s
                "ratio": library.median / f.median,
                "rounds": f.rounds,
            }
            for f in (*figures, library)
        ]


def _fault(way: Product, data: Data, expected: Expected) -> str:
    data.out.fill_(torch.nan)
    try:
        way(data)
        error = expected.error(data.out)
    except (pk.KernelError, RuntimeError) as fault:
        return f"{type(fault).__name__}: {fault}"
    return "" if error <= ROUNDING else f"error {error:.2e} where {ROUNDING:.2e} is allowed"


def square(n: int, k: int | None = None) -> Problem:
    """A product of n x n results."""
    return Problem("bf16", "", "", "", n, n, k or n)


def stages(bench: Bench, sizes: Sequence[int] = STAGE_SIZES) -> list[Row]:
    """One to four stages of the same ring, 128x256 tiles."""
    configs = {f"{s}": Config(128, 256, stages=s, out_cols=64) for s in (1, 2, 3, 4)}
    ways = {n: functools.partial(_by_config, config=c) for n, c in configs.items()}
    return [row for n in sizes for row in bench.rows("stages", n, square(n), ways)]


def _by_config(data: Data, config: Config) -> None:
    gemm(data.a, data.b, data.out, config=config)


def _in_order(data: Data, persistent: bool, order: Any) -> None:
    tiles_in_order(data.a, data.b, data.out, persistent=persistent, order=order)


def persistence(
    bench: Bench, depths: Sequence[int] = DEPTHS, size: int = STAGE_SIZES[0]
) -> list[Row]:
    """Blocks that stay beside a block a tile, row after row, for sums of few steps."""
    named = {"persistent": True, "a block a tile": False}
    ways = {
        n: functools.partial(_in_order, persistent=p, order=pk.row_major) for n, p in named.items()
    }
    return [row for k in depths for row in bench.rows("persistent", k, square(size, k), ways)]


def orders(
    bench: Bench, size: int = ORDER_SIZE, traffic: Callable[[int], dict[str, Bytes]] | None = None
) -> list[Row]:
    """The orders of tiles, and what each moves from and to memory."""
    ways = {
        n: functools.partial(_in_order, persistent=True, order=order) for n, order in ORDERS.items()
    }
    rows = bench.rows("orders", size, square(size), ways)
    moved = (traffic or moved_bytes)(size)
    return [{**row, **(vars(moved[row["name"]]) if row["name"] in moved else {})} for row in rows]


EXPERIMENTS: dict[str, Callable[[Bench], list[Row]]] = {
    "stages": stages,
    "persistent": persistence,
    "orders": orders,
}


# -- bytes of memory -------------------------------------------------------------------------------


def moved_bytes(size: int) -> dict[str, Bytes]:
    """What each order moves: counted by the hardware where that can be, else simulated."""
    command = [sys.executable, str(Path(__file__).resolve()), "--launch-orders", f"{size}"]
    found = counted(command, KERNEL, list(ORDERS))
    if isinstance(found, str):
        print(f"experiments: bytes are simulated, as {found}", flush=True)
        card = torch.cuda.get_device_properties(0).name if torch.cuda.is_available() else ""
        return simulated_orders(size, card)
    return found


def simulated_orders(size: int, card: str = "") -> dict[str, Bytes]:
    """What each order should move by the project's simulation of the cache."""
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


def about() -> dict[str, str]:
    """The card, the driver, the date and the versions."""
    return {
        "card": torch.cuda.get_device_properties(0).name,
        "driver": protocol.driver_version(),
        "date": datetime.date.today().isoformat(),
        "pykittens": pk.__version__,
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
    }


def draw(path: Path) -> None:
    """Draw a file of figures beside it, or say why not."""
    if plot is None:
        later = f"benchmarks/experiments.py --plot {path}"
        print(f"experiments: no picture, as matplotlib is not installed; later: {later}")
    else:
        print(plot(path))


def main() -> None:
    """Check, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(EXPERIMENTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rest", type=float, default=protocol.REST, help="seconds")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--label", default="")
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
        sys.exit("experiments: no CUDA device; --simulate says what the orders should read")
    torch.manual_seed(0)
    if options.launch_orders:
        launch_orders(options.launch_orders)
        return
    measure = functools.partial(protocol.graphs, rounds=options.rounds, rest=options.rest)
    bench, where, wanted = Bench(measure), about(), options.only.split(",")
    if unknown := set(wanted) - set(EXPERIMENTS):
        sys.exit(f"experiments: there is none called {', '.join(unknown)}")
    rows: list[Row] = []
    for kind in wanted:
        rows += EXPERIMENTS[kind](bench)
        path = save(rows, where, options.out, options.label)  # it stays where a later one fails
        print(table([row for row in rows if row["experiment"] == kind]), flush=True)
        torch.cuda.empty_cache()
    draw(path)


if __name__ == "__main__":
    main()
