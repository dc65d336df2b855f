"""A program of two phases a layer on this machine's GPU, beside the same layers as PyTorch's kernels in a CUDA graph.

h[l + 1] = h[l] + silu(g) * u, where g and u are the halves of W[l] (rms_norm(h[l]) * gain[l]). The first phase is a
product of a matrix with a vector, 16 rows an instruction's step; the second gates its sums. Rings of different length,
and of different numbers of pages on their way, are measured one beside the other. Figures are bytes of the matrices.
docs/tuning/mega.md has the predictions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import record  # noqa: E402
import torch  # noqa: E402
from protocol import Bench, bench_of, normal  # noqa: E402
from record import Row, about  # noqa: E402

import pykittens as pk  # noqa: E402
from pykittens import bf16, f32  # noqa: E402
from pykittens.mega import Program  # noqa: E402

WIDTH = CHUNK = 512  # columns of a page, and elements that an instruction gates
EPS = 1e-5
BLOCKS, LAYERS, N = 132, 64, 2048
# Pages of 16 KiB in the ring, pages on their way at a time, warps that multiply, and what differs from `two_phases`.
VARIANTS = [
    (11, None, 8, ""),
    (11, 3, 8, ""),
    (11, 2, 8, ""),
    (6, 3, 8, ""),
    (11, None, 8, "tags"),
    (11, 4, 8, "tags"),
    (11, 3, 8, "tags"),
    (11, 2, 8, "tags"),
    (6, 3, 8, "tags"),
    (11, 3, 8, "tags, tensor cores"),
    (11, 2, 8, "tags, tensor cores"),
]


@pk.function
def fetch_pages(page: Any, W: Any, layer: Any, first: Any, last: Any, parts: int) -> None:
    """Fill pages with 16 rows after another."""
    for row in pk.range(first, last):
        for k in pk.range(parts):
            with page.fill() as p:
                pk.load_async(p, W[layer, row, k])


@pk.function
def multiply(page: Any, sums: Any, own: Any, w: Any, first: Any, last: Any) -> None:
    """Leave the sums of 16 rows after another over the columns of a warp; own: its elements of the vector, by page.

    They are vectors, or tiles made by `split`, which tensor cores multiply.
    """
    by_tile, cols = isinstance(own[0], pk.RegTile), own[0].type.shape[-1]
    for _ in pk.range(first, last):
        acc = pk.zeros(f32, 16, 16 if by_tile else cols)
        for x in own:
            with page.drain() as p:
                part = p.tiles(16, cols)[0, w]
                acc = pk.mma_ABt(x, part, acc) if by_tile else pk.fma(pk.load(part).to(f32), x, acc)
        with sums.fill() as s:
            pk.store(s.parts(16)[w], pk.col_sum(acc) if by_tile else pk.row_sum(acc))


@pk.function
def split(x: Any) -> Any:
    """A vector in f32 as two rows of a tile in bf16: rounded, and the rest; the other 14 are 0."""
    row, high, zero = pk.row_index(16), x.to(bf16), pk.zeros(bf16, 16, x.length)
    low = (x - high.to(f32)).to(bf16)
    return pk.where(row == 0, high + zero, pk.where(row == 1, low + zero, zero))


@pk.function
def added_up(sums: Any, warps: int) -> Any:
    """The sums of 16 rows, of which each warp has left a part."""
    with sums.drain() as s:
        total = pk.load(s.parts(16)[0])
        for part in range(1, warps):
            total = total + pk.load(s.parts(16)[part])
    return total


def two_phases(blocks: int, layers: int, n: int, pages: int, flight: int | None, warps: int) -> Program:  # fmt: skip
    """The program; each block has neighbouring rows of every layer."""
    program = Program(blocks)
    parts, sub = n // WIDTH, WIDTH // warps

    @program.instruction
    def matvec(h, gain, W, pre, *, layer, first, last):  # type: ignore[no-untyped-def]
        """pre[layer] = W[layer] (rms_norm(h[layer]) * gain[layer]), rows 16 * first to 16 * last."""
        page = pk.pipeline(pages, pk.st(bf16, 16, WIDTH), flight=flight)
        vectors = pk.pipeline(1, x=pk.sv(bf16, n), gain=pk.sv(bf16, n))
        sums = pk.pipeline(3, pk.sv(f32, 16 * warps))
        # The engine stores them: a signal after stores of lanes waits for these for 1.5 microseconds.
        totals = pk.pipeline(4, pk.sv(f32, 16))
        with pk.producer():
            fetch_pages(page, W, layer, first, last, parts)
        with pk.warps(1), vectors.fill() as v:
            pk.load_async(v.gain, gain[layer])
            pk.load_async(v.x, h[layer])
        with pk.warps(warps) as w:
            with vectors.drain() as v:
                x = pk.load(v.x).to(f32)
                scale = pk.rsqrt(pk.sum(x * x) / n + EPS)
                own = [
                    pk.load(v.x.parts(sub)[k * warps + w], spread=pk.per_column).to(f32)
                    * pk.load(v.gain.parts(sub)[k * warps + w], spread=pk.per_column).to(f32)
                    * scale
                    for k in range(parts)
                ]
            multiply(page, sums, own, w, first, last)
        with pk.storer():
            for row in pk.range(first, last):
                total = added_up(sums, warps)
                with totals.fill() as t:
                    pk.store(t, total)
                with totals.drain() as t:
                    pk.store_async(pre[layer, row], t)

    @program.instruction
    def gate(h, pre, *, layer, chunk):  # type: ignore[no-untyped-def]
        """h[layer + 1] = h[layer] + silu(pre[layer, :n]) * pre[layer, n:], a chunk of it."""
        inputs = pk.pipeline(1, g=pk.sv(f32, CHUNK), u=pk.sv(f32, CHUNK), x=pk.sv(bf16, CHUNK))
        outputs = pk.pipeline(1, pk.sv(bf16, CHUNK))
        with pk.warps(1), inputs.fill() as s:
            pk.load_async(s.g, pre[layer, chunk])
            pk.load_async(s.u, pre[layer, n // CHUNK + chunk])
            pk.load_async(s.x, h[layer, chunk])
        with pk.warps(warps) as w:
            with inputs.drain() as s:
                g, u = pk.load(s.g.parts(sub)[w]), pk.load(s.u.parts(sub)[w])
                y = pk.load(s.x.parts(sub)[w]).to(f32) + pk.silu(g) * u
            with outputs.fill() as s:
                pk.store(s.parts(sub)[w], y.to(bf16))
        with pk.storer(), outputs.drain() as s:
            pk.store_async(h[layer + 1, chunk], s)

    for layer in range(layers):
        program.add_runs(matvec, 2 * n // 16, layer=layer)
        for chunk in range(n // CHUNK):
            program.add(gate, block=chunk * blocks // (n // CHUNK), layer=layer, chunk=chunk)
    return program


def tagged_phases(
    blocks: int,
    layers: int,
    n: int,
    pages: int,
    flight: int | None,
    warps: int,
    by_tile: bool = False,
) -> Program:
    """The same layers with vectors in f32, whose elements have tags: no counter is signalled, none waited for.

    by_tile: tensor cores multiply.
    """
    program = Program(blocks)
    parts, sub = n // WIDTH, WIDTH // warps

    @program.instruction
    def start(given, x, *, chunk, tag):  # type: ignore[no-untyped-def]
        """x[0] = given, a chunk of it."""
        with pk.warps(2) as half:
            own = chunk * 2 + half
            pk.store_tagged(x[0, own], pk.load(given[own], cols=CHUNK // 2).to(f32), tag)

    @program.instruction
    def matvec(x, gain, W, pre, *, layer, first, last, tag):  # type: ignore[no-untyped-def]
        """pre[layer] = W[layer] (rms_norm(x[layer]) * gain[layer]), rows 16 * first to 16 * last."""
        page = pk.pipeline(pages, pk.st(bf16, 16, WIDTH), flight=flight)
        gains, vectors = pk.pipeline(2, pk.sv(bf16, n)), pk.pipeline(1, pk.sv(f32, n))
        sums = pk.pipeline(3, pk.sv(f32, 16 * warps))
        with pk.producer():
            with gains.fill() as v:
                pk.load_async(v, gain[layer])
            fetch_pages(page, W, layer, first, last, parts)
        with pk.warps(2) as half, vectors.fill() as v:
            pk.store(v.parts(n // 2)[half], pk.load_tagged(x[layer, half], tag, cols=n // 2))
        with pk.warps(warps) as w:
            with gains.drain() as v:
                own = [
                    pk.load(v.parts(sub)[k * warps + w], spread=pk.per_column).to(f32)
                    for k in range(parts)
                ]
            with vectors.drain() as v:
                y = pk.load(v)
                scale = pk.rsqrt(pk.sum(y * y) / n + EPS)
                own = [
                    pk.load(v.parts(sub)[k * warps + w], spread=pk.per_column) * own[k] * scale
                    for k in range(parts)
                ]
                own = [split(x) for x in own] if by_tile else own
            multiply(page, sums, own, w, first, last)
        with pk.storer():
            for row in pk.range(first, last):
                total = added_up(sums, warps)
                pk.store_tagged(pre[layer, row], total, tag)

    @program.instruction
    def gate(x, pre, *, layer, chunk, tag):  # type: ignore[no-untyped-def]
        """x[layer + 1] = x[layer] + silu(pre[layer, :n]) * pre[layer, n:], a chunk of it."""
        inputs = pk.pipeline(1, pre=pk.sv(f32, 2 * CHUNK), x=pk.sv(f32, CHUNK))
        with pk.warps(2) as half, inputs.fill() as s:
            own = chunk * 2 + half
            pk.store(s.x.parts(CHUNK // 2)[half], pk.load_tagged(x[layer, own], tag, cols=CHUNK // 2))  # fmt: skip
            mine = pk.load_tagged(pre[layer, half * (n // CHUNK) + chunk], tag, cols=CHUNK)
            pk.store(s.pre.parts(CHUNK)[half], mine)
        with pk.warps(warps) as w:
            with inputs.drain() as s:
                g, u = (pk.load(s.pre.parts(sub)[k * warps + w]) for k in range(2))
                y = pk.load(s.x.parts(sub)[w]) + pk.silu(g) * u
            pk.store_tagged(x[layer + 1, chunk * warps + w], y, tag)

    for chunk in range(n // CHUNK):
        program.add(start, chunk=chunk)
    for layer in range(layers):
        program.add_runs(matvec, 2 * n // 16, layer=layer)
        for chunk in range(n // CHUNK):
            program.add(gate, block=chunk * blocks // (n // CHUNK), layer=layer, chunk=chunk)
    return program


def problem(layers: int, n: int, device: str) -> dict[str, torch.Tensor]:
    """Random tensors; h[0] is given."""
    h = torch.full((layers + 1, n), torch.nan, dtype=torch.bfloat16, device=device)
    h[0] = normal(n, device=device)
    return {
        "h": h,
        "gain": 1 + 0.1 * normal(layers, n, device=device),
        "W": (normal(layers, 2 * n, n, device=device) / n**0.5).to(torch.bfloat16),
        "pre": torch.full((layers, 2 * n), torch.nan, device=device),
    }


def tagged(x: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors of a program with tags for the same problem."""
    vectors, pre = (torch.full_like(x[of], torch.nan, dtype=torch.float32) for of in ("h", "pre"))
    given = {"given": x["h"][0].clone(), "gain": x["gain"], "W": x["W"]}
    return {"x": vectors, "pre": pre, **given}


def layers_by_pytorch(x: dict[str, torch.Tensor]) -> torch.Tensor:
    """The last h, by a few kernels a layer."""
    h = x["h"][0]
    n = len(h)
    for gain, W in zip(x["gain"], x["W"], strict=True):
        p = W @ torch.nn.functional.rms_norm(h, (n,), gain, EPS)
        h = h + torch.nn.functional.silu(p[:n]) * p[n:]
    return h


def error(x: dict[str, torch.Tensor], vectors: torch.Tensor) -> float:
    """The largest relative error of a layer, in float64 from the vector that the layer before it gave."""
    errors = []
    for h, found, gain, W in zip(vectors, vectors[1:], x["gain"], x["W"], strict=False):
        n, wide = len(h), h.double()
        p = W.double() @ (wide / (wide.square().mean() + EPS).sqrt() * gain.double())
        wanted = wide + torch.nn.functional.silu(p[:n]) * p[n:]
        errors.append((found.double() - wanted).norm() / wanted.norm())
    return float(torch.stack(errors).max())


def launch_of(program: Program, x: dict[str, torch.Tensor]) -> Callable[[int], None]:
    """A launch of the program."""
    kernel, arguments = program.kernel(), program.arguments(program.scheduled(**x), **x)
    return lambda _: kernel(*arguments)


def rows_of(
    bench: Bench,
    variants: list[tuple[int, int | None, int, str]],
    blocks: int,
    layers: int,
    n: int,
) -> list[Row]:
    """A row for each variant."""
    x = problem(layers, n, bench.device)
    contenders: dict[str, Any] = {}
    errors = {}
    for pages, flight, warps, more in variants:
        name = f"{pages} pages, {flight or 'all'} on their way, {warps} warps"
        name = f"{name}, {more}" if more else name
        # Tags tell the launches of one program from one another, so each has vectors of its own.
        given = tagged(x) if more else x
        sizes = blocks, layers, n, pages, flight, warps
        program = tagged_phases(*sizes, "tensor" in more) if more else two_phases(*sizes)
        vectors = given["x" if more else "h"]
        contenders[name] = launch_of(program, given)
        vectors[1:] = torch.nan
        contenders[name](0)
        errors[name] = error(x, vectors)
    contenders["PyTorch"] = lambda _: layers_by_pytorch(x)
    *ours, library = bench.measure(contenders, 1)
    work = float(x["W"].numel() * x["W"].element_size())
    shape = f"{layers} layers of {2 * n} x {n}"
    return [
        record.row(f.name, shape, bench.protocol, f, library, work, errors[f.name], "GB/s")
        for f in ours
    ]


def main() -> None:
    """Check, measure and write; exits 1 if a result is wrong."""
    options = record.parser(__doc__).parse_args()
    if not torch.cuda.is_available():
        sys.exit("mega: no CUDA device")
    torch.manual_seed(0)
    bench, where = bench_of("graphs", options.rounds), about()
    rows = rows_of(bench, VARIANTS, BLOCKS, LAYERS, N)
    text = f"{record.heading(where)}\n\n{record.table(rows)}\n"
    print(text)
    record.save({"about": where, "rows": rows}, options.out, f"mega{options.label}", text)
    if wrong := [r["kernel"] for r in rows if not r["error"] < 4e-3]:
        sys.exit(f"mega: wrong results: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
