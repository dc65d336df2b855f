"""`make bench`: every kernel beside the vendor's library, in one run on this machine's GPU.

Prints a table and writes it with card, date and versions to benchmarks/results/.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
import record  # noqa: E402
import torch  # noqa: E402
from protocol import Bench, bench_of, call_cost, normal  # noqa: E402
from record import Row, row, table  # noqa: E402

from pykittens.cli.arguments import load  # noqa: E402
from pykittens.kernels import gemm  # noqa: E402
from pykittens.kernels.attention import attention  # noqa: E402
from pykittens.kernels.attention.config import CONFIGS  # noqa: E402
from pykittens.kernels.gemm import choose, config  # noqa: E402
from pykittens.kernels.library import Entry, load_all  # noqa: E402
from pykittens.kernels.limits import limits_of  # noqa: E402
from pykittens.runtime.arrays import describe, torch_dtype  # noqa: E402
from tests.templates import by_hand, kernels  # noqa: E402

# The least work of a measured case; smaller cases are for tests.
LEAST = {"FLOP": 1e11, "bytes": 1e8}


def load_example(stem: str) -> Any:
    """The module of an example, by its file name without the ending."""
    return load(ROOT / "examples" / f"{stem}.py")


def check(name: str, out: torch.Tensor, expected: torch.Tensor, bound: float) -> float:
    """The relative error of the part of `out` with a float64 reference; a NaN anywhere is wrong."""
    part = out[tuple(slice(n) for n in expected.shape)]
    error = float((part.double() - expected).norm() / expected.norm())
    if not error <= bound or bool(out.isnan().any()):
        raise AssertionError(
            f"{name}: relative error {error}, allowed {bound}, or unwritten elements"
        )
    return error


def unwritten(shape: Sequence[int]) -> torch.Tensor:
    """An output full of NaN, in bf16."""
    return torch.full(tuple(shape), torch.nan, device="cuda", dtype=torch.bfloat16)


def bf16_sets(
    bench: Bench, *shapes: tuple[int, ...], count: int | None = None
) -> list[list[torch.Tensor]]:
    """Sets of random inputs and an unwritten output, whose shape is the last."""
    *inputs, output = shapes
    count = count or bench.count(
        [torch.empty(s, dtype=torch.bfloat16, device="meta") for s in shapes]
    )
    return [[*(normal(*s) for s in inputs), unwritten(output)] for _ in range(count)]


def compared(
    bench: Bench,
    name: str,
    shape: str,
    sets: Sequence[Sequence[Any]],
    ways: dict[str, Callable[..., Any]],
    exact: Callable[..., torch.Tensor],
    bound: float,
    work: float,
    unit: str = "TFLOP/s",
) -> Row:
    """A row that compares two ways; the first is checked. All functions take a set, whose last tensor is the output."""
    first, *_ = ways.values()
    first(*sets[0])
    error = check(name, sets[0][-1], exact(*sets[0]), bound)
    contenders = {n: lambda i, way=way: way(*sets[i]) for n, way in ways.items()}
    ours, theirs = bench.measure(contenders, len(sets))
    torch.cuda.empty_cache()
    return row(name, shape, bench.protocol, ours, theirs, work, error, unit)


def matmul_rows(bench: Bench, name: str, product: Any, sizes: tuple[int, ...]) -> list[Row]:
    """`product(a, b, c)` beside cuBLAS: square, c = a @ b.T."""
    ways = {"pykittens": product, "cuBLAS": lambda a, b, c: torch.mm(a, b.T, out=c)}
    return [
        compared(
            *(bench, name, f"{n}", bf16_sets(bench, *[(n, n)] * 3), ways),
            *(lambda a, b, c: a[:512].double() @ b.double().T, 4e-3, 2.0 * n**3),
        )
        for n in sizes
    ]


def attention_rows(
    bench: Bench, name: str, attend: Any, shapes: list[tuple[int, int, int, int]]
) -> list[Row]:
    """`attend(q, k, v, o, causal=...)` beside cuDNN, or PyTorch's FlashAttention if d > 128; full and causal."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    def library(backend: Any, causal: bool, *tensors: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(backend):
            return sdpa(*tensors[:3], is_causal=causal)

    def exact(causal: bool, *tensors: torch.Tensor) -> torch.Tensor:
        return library(SDPBackend.MATH, causal, *(t[:1, :4].double() for t in tensors))

    rows = []
    for shape in shapes:
        b, h, n, d = shape
        rival, backend = (
            ("FlashAttention", SDPBackend.FLASH_ATTENTION)
            if d > 128
            else ("cuDNN", SDPBackend.CUDNN_ATTENTION)
        )
        for causal in (False, True):
            ways = {
                "pykittens": partial(attend, causal=causal),
                rival: partial(library, backend, causal),
            }
            title = f"{name} {'causal' if causal else 'full'}"
            flops = 4.0 * b * h * n * n * d * (0.5 if causal else 1.0)
            sets = bf16_sets(bench, *[shape] * 4, count=3)
            rows.append(
                compared(bench, title, str(shape), sets, ways, partial(exact, causal), 8e-3, flops)
            )
    return rows


def library_rows(bench: Bench) -> list[Row]:
    """Every kernel of the library with a rival, in the configurations that it picks for this GPU."""
    return [
        entry_row(bench, entry, case)
        for entry in load_all().values()
        if entry.rival is not None and entry.work is not None
        for case in entry.cases
        if entry.work(**case)[0] >= LEAST[entry.work(**case)[1]]
    ]


def entry_row(bench: Bench, entry: Entry, case: dict[str, Any]) -> Row:
    """A kernel of the library beside its rival, whose result is the reference."""
    assert entry.rival is not None
    assert entry.work is not None
    given = entry.inputs(np.random.default_rng(0), **case)
    arrays = {name: on_gpu(x) for name, x in given.items() if isinstance(x, np.ndarray)}
    constants = {name: x for name, x in given.items() if name not in arrays}
    expected = entry.rival(torch, **arrays, **constants)
    sets = [
        ({name: x.clone() for name, x in arrays.items()}, torch.full_like(expected, torch.nan))
        for _ in range(bench.count([*arrays.values(), expected]))
    ]
    ways = {
        "pykittens": lambda x, out: entry.function(**x, **constants, out=out),
        "PyTorch": lambda x, _: entry.rival(torch, **x, **constants),
    }
    work, unit = entry.work(**case)
    shape = ", ".join(f"{name} {value}" for name, value in case.items())
    per_second = {"FLOP": "TFLOP/s", "bytes": "GB/s"}[unit]
    # Both results are rounded to bf16.
    return compared(
        bench, entry.name, shape, sets, ways, lambda *_: expected.double(), 8e-3, work, per_second
    )


def on_gpu(x: Any) -> torch.Tensor:
    """A NumPy array, also one of ml_dtypes, as a tensor on the GPU."""
    bits = torch.from_numpy(x.view(f"i{x.itemsize}")).cuda()
    return bits.view(torch_dtype(describe(x).dtype))


def older_rows(bench: Bench) -> list[Row]:
    """Every configuration that fits the target named by PYKITTENS_TARGET, by the lowerings of that target."""
    limits = limits_of(torch.empty(0, device="cuda"))
    if limits.warpgroups:
        sys.exit("bench: `older` is for PYKITTENS_TARGET=sm_80 or sm_89")
    rows = []
    for c in choose.candidates(config.GemmShape(4096, 4096, 4096), limits):
        name = f"gemm {c.rows}x{c.cols}x{c.depth}, {c.stages} stages, {limits.target}"
        rows += matmul_rows(bench, name, partial(gemm.gemm, config=c), (4096, 8192))
    for a in CONFIGS:
        if not a.warpgroups and a.shared_bytes(a.widest) <= limits.shared_bytes:
            name = f"attention {a.rows}x{a.keys}, {a.stages} stages, {limits.target}"
            attend = partial(attention, config=a)
            rows += attention_rows(bench, name, attend, [(16, 16, 3072, a.widest)])
    return rows


def softmax_rows(bench: Bench) -> list[Row]:
    """The softmax of the examples beside PyTorch's."""
    softmax = load_example("03_softmax").softmax
    ways = {"pykittens": softmax, "PyTorch": lambda x, y: torch.softmax(x, -1)}
    rows = []
    for shape in ((16384, 2048), (65536, 4096)):
        sets, moved = bf16_sets(bench, shape, shape), 4.0 * shape[0] * shape[1]
        rows.append(
            compared(
                *(bench, "softmax bf16", str(shape), sets, ways),
                *(lambda x, y: torch.softmax(x.double(), -1), 4e-3, moved, "GB/s"),
            )
        )
    return rows


def template_rows(bench: Bench) -> list[Row]:
    """Kernels on the template beside the same kernels with their roles written out."""
    lcsf, by_roles = load_example("08_lcsf").lcsf_matmul, load_example("06_matmul").matmul
    ways = {"pykittens": lcsf, "by hand": by_roles}
    rows = [
        compared(
            *(bench, "matmul on lcsf", f"{n}", bf16_sets(bench, *[(n, n)] * 3), ways),
            *(lambda a, b, c: a[:512].double() @ b.double().T, 4e-3, 2.0 * n**3),
        )
        for n in (4096, 8192)
    ]
    ways = {"pykittens": kernels.rms_norm, "by hand": by_hand.rms_norm}
    heads = (786432, 128)  # rows of one head each: 16 x 16 x 3072

    def exact(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x.double(), (heads[1],), eps=1e-6)

    sets, moved = bf16_sets(bench, heads, heads), 4.0 * heads[0] * heads[1]
    rows.append(
        compared(bench, "rms_norm on lcsf", str(heads), sets, ways, exact, 4e-3, moved, "GB/s")
    )
    return rows


def call_costs() -> list[Row]:
    """Host time of a call beside a Triton kernel's with the same arguments."""
    import triton
    import triton.language as tl

    @triton.jit
    def nothing(a, b, c, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(c + i, tl.load(a + i, mask=i < n) + tl.load(b + i, mask=i < n), mask=i < n)

    add = load_example("02_add").add
    a, b, c = (normal(64, 64, dtype=torch.float32) for _ in range(3))
    ours = call_cost(lambda: add(a, b, c))
    theirs = call_cost(lambda: nothing[(1,)](a, b, c, 4096, BLOCK=4096))
    matmul = load_example("06_matmul").matmul
    m = [normal(128, 128) for _ in range(3)]
    maps = call_cost(lambda: matmul(*m))
    about = {
        "protocol": "host time",
        "library": theirs,
        "against": "Triton",
        "unit": "us",
        "error": 0.0,
    }
    return [
        {
            "kernel": f"call cost, {name}",
            "shape": shape,
            "ours": cost,
            "ratio": theirs / cost,
            **about,
        }
        for name, shape, cost in (
            ("three tensors", "add 64", ours),
            ("three tensor maps", "matmul 128", maps),
        )
    ]


def example_matmul_rows(bench: Bench) -> list[Row]:
    """The product of the examples beside cuBLAS."""
    product = load_example("06_matmul").matmul
    return matmul_rows(bench, "matmul A @ B.T bf16", product, (4096, 8192, 16384))


def example_attention_rows(bench: Bench) -> list[Row]:
    """The attention of the examples beside cuDNN."""
    attend = load_example("07_attention").attention
    return attention_rows(bench, "attention", attend, [(16, 16, 3072, 128)])


SECTIONS: dict[str, Callable[[Bench], list[Row]]] = {
    "calls": lambda _: call_costs(),
    "rows": softmax_rows,
    "templates": template_rows,
    "matmul": example_matmul_rows,
    "attention": example_attention_rows,
    "library": library_rows,
    "older": older_rows,
}


def main() -> None:
    parser = record.parser(__doc__)
    parser.add_argument("--only", default=",".join(name for name in SECTIONS if name != "older"))
    parser.add_argument("--protocol", default="burst", choices=("burst", "isolated"))
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench: no CUDA device; `make demo` shows what runs without one")
    torch.manual_seed(0)
    wanted, bench = options.only.split(","), bench_of(options.protocol, options.rounds)
    rows = [r for name, section in SECTIONS.items() if name in wanted for r in section(bench)]
    about = {**record.about(), "cudnn": torch.backends.cudnn.version()}
    text = f"# {record.heading(about)}\n\n{table(rows)}\n"
    print(text)
    record.save({"about": about, "rows": rows}, options.out, options.protocol + options.label, text)


if __name__ == "__main__":
    main()
