"""Rows and elements by index on this machine's GPU: gathers beside index_select, histograms beside a copy.

A gather of rows in bf16 and f32, by tiles and a row a warp, at numbers and widths of rows drawn at random; and the
histogram of 64 MiB of bytes with one and two sets of counters a block. All figures are bytes read and written by the
fewest accesses. docs/tuning/by-index-h200.md has the predictions.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import record  # noqa: E402
import torch  # noqa: E402
from protocol import Bench, bench_of, normal  # noqa: E402
from record import Row, about  # noqa: E402

import pykittens as pk  # noqa: E402
from pykittens import int32  # noqa: E402

BYTES = 64 * 2**20
WIDTH = 32768  # bytes that a block of the histogram loads at once
ROWS = 2  # rows of a gather that a warp has in flight
BINS = 256


@pk.kernel
def gather_rows(x, index, out):  # type: ignore[no-untyped-def]
    """out[i] = x[index[i]], a tile of 64 x 64 a block."""
    row, col = pk.grid(*out.tiles(64, 64))
    rows = pk.load(index[row], cols=64, spread=pk.per_row)
    pk.store(out[row, col], pk.gather(x[..., col], rows, cols=64))


@pk.kernel
def gather_by_warps(x, index, out):  # type: ignore[no-untyped-def]
    """out[i] = x[index[i]], some rows a warp."""
    width = pk.static(x.cols)
    (block,) = pk.grid(pk.cdiv(out.rows, 4 * ROWS))
    with pk.warps(4) as w:
        first = (block * 4 + w) * ROWS
        rows = [pk.load(index[first + i]) for i in range(ROWS)]
        found = [pk.load(x[row], cols=width) for row in rows]
        for i in range(ROWS):
            pk.store(out[first + i], found[i])


@pk.kernel(warps=32)
def histogram(x, counts, *, copies):  # type: ignore[no-untyped-def]
    """counts[b] += the number of bytes b of x, whose length is a multiple of WIDTH."""
    pk.require(x.cols % WIDTH == 0, "x has whole parts")
    parts = pk.persistent((x.cols // WIDTH,))
    counters = pk.shared(pk.sv(int32, BINS * copies))
    pk.store(counters, pk.zeros(int32, BINS * copies))
    pk.sync()
    for (part,) in parts:
        bins = pk.load(x[part], cols=WIDTH).to(int32)
        # A lane holds eight neighbours, so neighbouring lanes take different counters.
        pk.scatter(counters, bins * copies + pk.iota(WIDTH) // 8 % copies, 1, op="add")
    pk.sync()
    own = pk.iota(BINS) * copies
    total = pk.gather(counters, own)
    for k in range(1, copies):
        total = total + pk.gather(counters, own + k)
    pk.store(counts, total, op="add")


def gathers(bench: Bench, count: int, seed: int) -> list[Row]:
    """Gathers of random rows beside torch.index_select."""
    draw, rows = random.Random(seed), []
    for number in range(count):
        dtype = (torch.bfloat16, torch.float32)[number % 2]
        height, width = draw.randrange(20_000, 200_000), 8 * draw.randrange(8, 256)
        x = normal(height, width, dtype=dtype)
        index = torch.randint(height, (draw.randrange(20_000, 100_000),), device="cuda")
        picked = [x.new_empty(len(index), width) for _ in range(2)]
        wanted = torch.index_select(x, 0, index)
        contenders: dict[str, Any] = {
            "tiles": lambda _, a=(x, index, picked[0]): gather_rows(*a),
            "warps": lambda _, a=(x, index, picked[1]): gather_by_warps(*a),
            "index_select": lambda _, a=(x, 0, index), out=wanted: torch.index_select(*a, out=out),
        }
        *ours, library = bench.measure(contenders, 1)
        shape = f"{len(index)} of {height} x {width} {str(dtype)[6:]}"
        work = 2.0 * wanted.numel() * wanted.element_size()
        for figure, found in zip(ours, picked, strict=True):
            error, name = float(not torch.equal(found, wanted)), f"gather by {figure.name}"
            protocol = bench.protocol
            rows.append(record.row(name, shape, protocol, figure, library, work, error, "GB/s"))
    return rows


def histograms(bench: Bench) -> list[Row]:
    """Histograms of random bytes, and of bytes that are all equal, beside a copy of the bytes."""
    rows = []
    for what, x in (
        ("random", torch.randint(BINS, (BYTES,), dtype=torch.uint8, device="cuda")),
        ("equal", torch.full((BYTES,), 7, dtype=torch.uint8, device="cuda")),
    ):
        copy = torch.empty_like(x)
        wanted = torch.bincount(x.int(), minlength=BINS)
        for copies in (1, 2):
            counts = torch.zeros(BINS, dtype=torch.int32, device="cuda")
            histogram(x, counts, copies=copies)
            error = float(not torch.equal(counts.long(), wanted))
            contenders: dict[str, Any] = {
                "pykittens": lambda _, a=(x, counts), n=copies: histogram(*a, copies=n),
                "copy": lambda _, a=(copy, x): a[0].copy_(a[1]),
            }
            ours, library = bench.measure(contenders, 1)
            made = record.row(
                "histogram", f"{what}, {copies} copies", bench.protocol, ours, library, BYTES, error
            )
            # A copy reads and writes the bytes, a histogram reads them.
            scale = record.SCALES["GB/s"]
            made |= {
                "unit": "GB/s",
                "ours": BYTES / ours.median * scale,
                "library": 2 * BYTES / library.median * scale,
                "ratio": library.median / ours.median / 2,
            }
            rows.append(made)
    return rows


def main() -> None:
    """Check, measure and write; exits 1 if a result is wrong."""
    parser = record.parser(__doc__)
    parser.add_argument("--shapes", type=int, default=12, help="random gathers")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("by_index: no CUDA device")
    torch.manual_seed(options.seed)
    bench, where = bench_of("burst", options.rounds), about()
    rows = gathers(bench, options.shapes, options.seed) + histograms(bench)
    print(record.table(rows))
    text = f"{record.heading(where)}\n\n{record.table(rows)}\n"
    record.save({"about": where, "rows": rows}, options.out, f"by-index{options.label}", text)
    if wrong := [r["shape"] for r in rows if r["error"]]:
        sys.exit(f"by_index: wrong results: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
