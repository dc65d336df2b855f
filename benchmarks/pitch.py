"""Rows at any pitch: kernels along rows beside themselves at an aligned pitch, gemm and a transposition beside PyTorch.

Widths are drawn at random. Checks every result, prints a table and writes it to benchmarks/results/.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import record  # noqa: E402
import torch  # noqa: E402
from protocol import Bench, Figure, bench_of, normal  # noqa: E402
from record import Row, about, row, table  # noqa: E402
from run import check, load_example  # noqa: E402

import pykittens as pk  # noqa: E402
from pykittens.kernels.gemm import gemm  # noqa: E402
from pykittens.kernels.rms_norm import rms_norm_rows  # noqa: E402

BYTES = 2**27  # of a matrix whose rows are normalised
TILE = 64
# Elements of a row beyond the width rounded up to 16 bytes, and before its first element.
PITCHES = {"aligned": (0, 0), "odd": (1, 1), "even": (2, 0)}


@pk.kernel(warps=4)
def transposed(x, y):  # type: ignore[no-untyped-def]
    """y = x.T, a tile a block, through shared memory both ways."""
    pk.require(y.shape == (x.cols, x.rows), "y must have the shape of x.T")
    source, target = (pk.shared(pk.st(x.dtype, TILE, TILE)) for _ in range(2))
    landed = pk.semaphore(1)
    j, i = pk.grid(pk.cdiv(x.cols, TILE), pk.cdiv(x.rows, TILE))
    landed.expect(source)
    pk.load_async(source, x[i, j], signal=landed)
    landed.wait(0)
    pk.store(target, pk.load(source, transposed=True))
    pk.fence_async()
    pk.sync()
    pk.store_async(y[j, i], target)
    pk.store_wait()


def widths(count: int, seed: int) -> list[int]:
    """Widths of rows that a warp holds, evenly spread over the powers of two."""
    draw = random.Random(seed)
    return sorted(int(2 ** draw.uniform(8, 12)) for _ in range(count))


def view(rows: int, width: int, pitch: str, device: str, fill: bool = False) -> torch.Tensor:
    """A matrix whose rows lie at a pitch; random normal numbers, or NaN."""
    extra, first = PITCHES[pitch]
    shape = rows, -(-width // 8) * 8 + extra + (8 if first else 0)
    whole = torch.full(shape, torch.nan) if fill else normal(*shape, device=device)
    return whole.to(device, torch.bfloat16)[:, first : first + width]


def pairs(bench: Bench, rows: int, width: int, pitch: str) -> list[list[torch.Tensor]]:
    """Sets of a matrix and one that is not written yet, at a pitch."""
    size = [torch.empty(rows, width, dtype=torch.bfloat16, device="meta")] * 2
    return [
        [view(rows, width, pitch, bench.device, fill) for fill in (False, True)]
        for _ in range(bench.count(size))
    ]


def pitch_rows(
    bench: Bench,
    name: str,
    launch: Callable[..., Any],
    exact: Callable[[torch.Tensor], torch.Tensor],
    width: int,
    total: int = BYTES,
) -> list[Row]:
    """A kernel along rows at each pitch beside itself at an aligned one; `launch` takes x and y."""
    rows = max(total // (2 * width), 1)
    sets, errors = {p: pairs(bench, rows, width, p) for p in PITCHES}, {}
    for pitch, ((x, y), *_) in sets.items():
        launch(x, y)
        errors[pitch] = check(f"{name} {width} {pitch}", y, exact(x[:256].double()), 8e-3)
    contenders = {p: lambda i, s=s: launch(*s[i]) for p, s in sets.items()}
    figures = {f.name: f for f in bench.measure(contenders, len(sets["aligned"]))}
    work = 4.0 * rows * width
    return [
        _row(bench, name, f"{rows} x {width} {p}", figures[p], figures["aligned"], work, errors[p])
        for p in PITCHES
        if p != "aligned"
    ]


def _row(
    bench: Bench, name: str, shape: str, ours: Figure, other: Figure, work: float, error: float
) -> Row:
    return row(name, shape, bench.protocol, ours, other, work, error, "GB/s")


def softmax_rows(bench: Bench, width: int, total: int = BYTES) -> list[Row]:
    """The softmax of the examples."""
    softmax = load_example("03_softmax").softmax
    return pitch_rows(bench, "softmax", softmax, lambda x: x.softmax(-1), width, total)


def rms_norm_rows_of(bench: Bench, width: int, total: int = BYTES) -> list[Row]:
    """The kernel of the library's rms_norm."""
    weight = normal(width, device=bench.device)

    def exact(x: torch.Tensor) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()

    def launch(x: torch.Tensor, y: torch.Tensor) -> None:
        rms_norm_rows(x, weight, y, 1e-6)

    return pitch_rows(bench, "rms_norm", launch, exact, width, total)


def gemm_row(bench: Bench, m: int, n: int, k: int) -> Row:
    """c = a @ b.T of contiguous matrices beside cuBLAS."""
    sets = [
        (normal(m, k, device=bench.device), normal(n, k, device=bench.device))
        for _ in range(bench.count([torch.empty(m + n, k, dtype=torch.bfloat16, device="meta")]))
    ]
    outs = [torch.full((m, n), torch.nan).to(bench.device, torch.bfloat16) for _ in sets]
    gemm(*sets[0], out=outs[0])
    a, b = sets[0]
    error = check(f"gemm {m} {n} {k}", outs[0], a[:256].double() @ b.double().T, 4e-3)
    ways = {
        "pykittens": lambda i: gemm(*sets[i], out=outs[i]),
        "cuBLAS": lambda i: torch.mm(sets[i][0], sets[i][1].T, out=outs[i]),
    }
    ours, library = bench.measure(ways, len(sets))
    return row("gemm", f"{m} x {n} x {k}", bench.protocol, ours, library, 2.0 * m * n * k, error)


def transposition_row(bench: Bench, n: int, pitch: str) -> Row:
    """y = x.T at a pitch beside PyTorch's contiguous copy of a transposed matrix of the same size."""
    sets = pairs(bench, n, n, pitch)
    x, y = sets[0]
    transposed(x, y)
    error = check(f"transposition {n} {pitch}", y, x.T.double(), 0.0)
    ways = {
        "pykittens": lambda i: transposed(*sets[i]),
        "PyTorch": lambda i: sets[i][0].t().contiguous(),
    }
    ours, library = bench.measure(ways, len(sets))
    return _row(bench, "transposition", f"{n} {pitch}", ours, library, 4.0 * n * n, error)


def main() -> None:
    """Check, measure, print and write."""
    parser = record.parser(__doc__)
    parser.add_argument("--widths", type=int, default=6, help="the number of random widths")
    parser.add_argument("--seed", type=int, default=0)
    parts = ("rows", "gemm", "transposition")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("pitch: no CUDA device; docs/tuning/pitch.md has the predictions")
    torch.manual_seed(0)
    bench, rows = bench_of("burst", options.rounds), []
    if "rows" in options.parts:
        for width in widths(options.widths, options.seed):
            rows += softmax_rows(bench, width) + rms_norm_rows_of(bench, width)
            print(table(rows[-4:]), flush=True)
    if "gemm" in options.parts:
        draw = random.Random(options.seed)
        sizes = [(4095,) * 3, (4096, 4096, 4095)]
        sizes += [tuple(draw.randrange(1025, 8192, 2) for _ in range(3)) for _ in range(3)]
        rows += [gemm_row(bench, *size) for size in sizes]
    if "transposition" in options.parts:
        rows += [transposition_row(bench, 8192, pitch) for pitch in PITCHES]
    text = table(rows)
    print(text)
    print(record.save({"about": about(), "rows": rows}, options.out, f"pitch{options.label}", text))


if __name__ == "__main__":
    main()
