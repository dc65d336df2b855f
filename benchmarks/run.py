"""`make bench`: every kernel beside the vendor's library, in one run on this machine's GPU.

Prints a table and writes it with card, date and versions to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from protocol import buffer_count, burst, call_cost, driver_version, isolated  # noqa: E402

import pykittens as pk  # noqa: E402
from pykittens.cli.arguments import load  # noqa: E402
from pykittens.kernels import attention, gemm  # noqa: E402
from pykittens.kernels.gemm import choose, config  # noqa: E402
from pykittens.kernels.library import Entry, load_all  # noqa: E402
from pykittens.kernels.limits import limits_of  # noqa: E402
from pykittens.runtime.arrays import describe, torch_dtype  # noqa: E402
from tests.templates import by_hand, kernels  # noqa: E402

Row = dict[str, Any]
# The least work of a case that is measured; smaller ones are for tests.
LEAST = {"FLOP": 1e11, "bytes": 1e8}


def load_example(stem: str) -> Any:
    """The module of an example, by its file name without the ending."""
    return load(ROOT / "examples" / f"{stem}.py")


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Random normal numbers on the GPU."""
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def check(name: str, out: torch.Tensor, expected: torch.Tensor, bound: float) -> float:
    """The relative error of the part of `out` that a float64 reference is given for; NaN anywhere is wrong."""
    part = out[tuple(slice(n) for n in expected.shape)]
    error = float((part.double() - expected).norm() / expected.norm())
    if not error <= bound or bool(out.isnan().any()):
        raise AssertionError(
            f"{name}: relative error {error}, allowed {bound}, or unwritten elements"
        )
    return error


def row(
    name: str, shape: str, figures: list[Any], work: float, unit: str, error: float, protocol: str
) -> Row:
    """One line of the table: ours first, then the library; `work` is FLOP or bytes."""
    ours, library = figures
    scale = 1e-9  # ms to TFLOP/s
    if unit == "GB/s":
        scale = 1e-6
    return {
        "kernel": name,
        "shape": shape,
        "protocol": protocol,
        "ours": work / ours.median * scale,
        "library": work / library.median * scale,
        "against": library.name,
        "unit": unit,
        "ratio": library.median / ours.median,
        "error": error,
        "rounds": {f.name: f.rounds for f in figures},
    }


def matmul_rows(
    protocol: str, rounds: int, name: str, product: Any, sizes: tuple[int, ...], bt: bool = True
) -> list[Row]:
    """`product(a, b, c)` beside cuBLAS: square, c = a @ b.T, or a @ b unless `bt`."""
    rows = []
    for n in sizes:
        count = buffer_count([torch.empty(n, n, dtype=torch.bfloat16, device="meta")] * 3)
        sets = [
            (
                normal(n, n),
                normal(n, n),
                torch.full((n, n), torch.nan, device="cuda", dtype=torch.bfloat16),
            )
            for _ in range(count)
        ]
        a, b, c = sets[0]
        product(a, b, c)
        error = check(name, c, a[:512].double() @ (b.double().T if bt else b.double()), 4e-3)
        contenders = {
            "pykittens": lambda i, s=sets: product(*s[i]),
            "cuBLAS": lambda i, s=sets: torch.mm(
                s[i][0], s[i][1].T if bt else s[i][1], out=s[i][2]
            ),
        }
        measure = burst if protocol == "burst" else isolated
        figures = measure(contenders, count, rounds)
        rows.append(row(name, f"{n}", figures, 2.0 * n**3, "TFLOP/s", error, protocol))
        del sets, a, b, c
        torch.cuda.empty_cache()
    return rows


def attention_rows(
    protocol: str, rounds: int, name: str, attend: Any, shapes: list[tuple[int, int, int, int]]
) -> list[Row]:
    """`attend(q, k, v, o, causal=...)` beside cuDNN, or PyTorch's FlashAttention where d > 128; full and causal."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    rows = []
    for shape in shapes:
        for causal in (False, True):
            sets = [
                [normal(*shape) for _ in range(3)]
                + [torch.full(shape, torch.nan, device="cuda", dtype=torch.bfloat16)]
                for _ in range(3)
            ]
            q, k, v, o = sets[0]
            attend(q, k, v, o, causal=causal)
            with sdpa_kernel(SDPBackend.MATH):
                expected = sdpa(
                    q[:1, :4].double(), k[:1, :4].double(), v[:1, :4].double(), is_causal=causal
                )
            error = check(name, o, expected, 8e-3)

            wide = shape[3] > 128
            backend = SDPBackend.FLASH_ATTENTION if wide else SDPBackend.CUDNN_ATTENTION

            def library(i: int, s: Any = sets, c: bool = causal, backend: Any = backend) -> None:
                with sdpa_kernel(backend):
                    sdpa(s[i][0], s[i][1], s[i][2], is_causal=c)

            contenders = {
                "pykittens": lambda i, s=sets, c=causal: attend(*s[i], causal=c),
                "FlashAttention" if wide else "cuDNN": library,
            }
            b, h, n, d = shape
            flops = 4.0 * b * h * n * n * d * (0.5 if causal else 1.0)
            measure = burst if protocol == "burst" else isolated
            rows.append(
                row(
                    f"{name} {'causal' if causal else 'full'}",
                    str(shape),
                    measure(contenders, 3, rounds),
                    flops,
                    "TFLOP/s",
                    error,
                    protocol,
                )
            )
    return rows


def library_rows(protocol: str, rounds: int) -> list[Row]:
    """Every kernel of the library that has a rival, in the configurations it picks for this GPU."""
    found = [
        entry_row(protocol, rounds, entry, case)
        for entry in load_all().values()
        if entry.rival is not None and entry.work is not None
        for case in entry.cases
        if entry.work(**case)[0] >= LEAST[entry.work(**case)[1]]
    ]
    torch.cuda.empty_cache()
    return found


def entry_row(protocol: str, rounds: int, entry: Entry, case: dict[str, Any]) -> Row:
    """A kernel of the library beside its rival, whose result is what it is checked against."""
    assert entry.rival is not None
    assert entry.work is not None
    given = entry.inputs(np.random.default_rng(0), **case)
    arrays = {name: on_gpu(x) for name, x in given.items() if isinstance(x, np.ndarray)}
    constants = {name: x for name, x in given.items() if name not in arrays}
    expected = entry.rival(torch, **arrays, **constants)
    count = buffer_count([*arrays.values(), expected])
    sets = [{name: x.clone() for name, x in arrays.items()} for _ in range(count)]
    outs = [torch.full_like(expected, torch.nan) for _ in sets]
    entry.function(**sets[0], **constants, out=outs[0])
    # Both are rounded to bf16.
    error = check(entry.name, outs[0], expected.double(), 8e-3)
    contenders = {
        "pykittens": lambda i: entry.function(**sets[i], **constants, out=outs[i]),
        "PyTorch": lambda i: entry.rival(torch, **sets[i], **constants),
    }
    figures = (burst if protocol == "burst" else isolated)(contenders, count, rounds)
    work, unit = entry.work(**case)
    shape = ", ".join(f"{name} {value}" for name, value in case.items())
    per_second = {"FLOP": "TFLOP/s", "bytes": "GB/s"}[unit]
    return row(entry.name, shape, figures, work, per_second, error, protocol)


def on_gpu(x: Any) -> torch.Tensor:
    """A NumPy array, of ml_dtypes, too, as a tensor on the GPU."""
    bits = torch.from_numpy(x.view(f"i{x.itemsize}")).cuda()
    return bits.view(torch_dtype(describe(x).dtype))


def older_rows(protocol: str, rounds: int) -> list[Row]:
    """Every configuration that fits the target named by PYKITTENS_TARGET, by the lowerings of that target."""
    limits = limits_of(torch.empty(0, device="cuda"))
    if limits.warpgroups:
        sys.exit("bench: `older` is for PYKITTENS_TARGET=sm_80 or sm_89")
    rows = []
    for c in choose.candidates(config.GemmShape(4096, 4096, 4096), limits):
        name = f"gemm {c.rows}x{c.cols}x{c.depth}, {c.stages} stages, {limits.target}"
        rows += matmul_rows(protocol, rounds, name, partial(gemm.gemm, config=c), (4096, 8192))
    for a in attention.CONFIGS:
        fits = not a.warpgroups and a.shared_bytes(a.widest) <= limits.shared_bytes
        if fits:
            name = f"attention {a.rows}x{a.keys}, {a.stages} stages, {limits.target}"
            attend = partial(attention.attention, config=a)
            rows += attention_rows(protocol, rounds, name, attend, [(16, 16, 3072, a.widest)])
    return rows


def softmax_rows(protocol: str, rounds: int) -> list[Row]:
    """The softmax of the examples beside PyTorch's."""
    softmax = load_example("03_softmax").softmax
    rows = []
    for shape in ((16384, 2048), (65536, 4096)):
        count = buffer_count([torch.empty(shape, dtype=torch.bfloat16, device="meta")] * 2)
        sets = [
            (normal(*shape), torch.full(shape, torch.nan, device="cuda", dtype=torch.bfloat16))
            for _ in range(count)
        ]
        x, y = sets[0]
        moved = 2.0 * x.numel() * x.element_size()
        measure = burst if protocol == "burst" else isolated
        softmax(x, y)
        error = check("softmax", y, torch.softmax(x.double(), -1), 4e-3)
        contenders = {
            "pykittens": lambda i, s=sets: softmax(*s[i]),
            "PyTorch": lambda i, s=sets: torch.softmax(s[i][0], -1),
        }
        rows.append(
            row(
                "softmax bf16",
                str(shape),
                measure(contenders, count, rounds),
                moved,
                "GB/s",
                error,
                protocol,
            )
        )
    return rows


def template_rows(protocol: str, rounds: int) -> list[Row]:
    """Kernels on the template beside the same with their roles written out."""
    measure = burst if protocol == "burst" else isolated
    rows = []

    def add(name: str, kernels: list[Any], shapes: list[Any], work: float, unit: str) -> None:
        *inputs, output = shapes
        count = buffer_count([torch.empty(s, dtype=torch.bfloat16, device="meta") for s in shapes])
        poison = {"device": "cuda", "dtype": torch.bfloat16}
        sets = [
            [*(normal(*s) for s in inputs), torch.full(output, torch.nan, **poison)]
            for _ in range(count)
        ]
        calls = [lambda i, k=k: k(*sets[i]) for k in kernels]
        calls[0](0)
        *given, out = (t.double() for t in sets[0])
        if len(given) == 2:
            exact = given[0][:512] @ given[1].T
        else:
            exact = torch.nn.functional.rms_norm(given[0], (output[1],), eps=1e-6)
        error = check(name, out, exact, 4e-3)
        del given, out, exact
        figures = measure(dict(zip(("pykittens", "by hand"), calls, strict=True)), count, rounds)
        shape = str(output[0]) if len(inputs) == 2 else str(output)
        rows.append(row(name, shape, figures, work, unit, error, protocol))

    matmuls = [load_example("08_lcsf").lcsf_matmul, load_example("06_matmul").matmul]
    for n in (4096, 8192):
        add("matmul on lcsf", matmuls, [(n, n)] * 3, 2.0 * n**3, "TFLOP/s")
        torch.cuda.empty_cache()
    norms = [kernels.rms_norm, by_hand.rms_norm]
    heads = (786432, 128)  # rows of one head each: 16 x 16 x 3072
    add("rms_norm on lcsf", norms, [heads] * 2, 4.0 * heads[0] * heads[1], "GB/s")
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


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    lines = [
        "| Kernel | Shape | Protocol | pykittens | Library | Ratio | Relative error |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        lines.append(
            f"| {r['kernel']} | {r['shape']} | {r['protocol']} | {r['ours']:,.1f} {r['unit']} | "
            f"{r['against']} {r['library']:,.1f} | {r['ratio']:.3f} | {r['error']:.1e} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="matmul,attention,library,rows,templates,calls")
    parser.add_argument("--protocol", default="burst", choices=("burst", "isolated"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--label", default="")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench: no CUDA device; `make demo` shows what runs without one")
    torch.manual_seed(0)
    wanted = options.only.split(",")
    rows: list[Row] = []
    if "calls" in wanted:
        rows += call_costs()
    if "rows" in wanted:
        rows += softmax_rows(options.protocol, options.rounds)
    if "templates" in wanted:
        rows += template_rows(options.protocol, options.rounds)
    if "matmul" in wanted:
        product = load_example("06_matmul").matmul
        sizes = (4096, 8192, 16384)
        rows += matmul_rows(options.protocol, options.rounds, "matmul A @ B.T bf16", product, sizes)
    if "attention" in wanted:
        attend = load_example("07_attention").attention
        shapes = [(16, 16, 3072, 128)]
        rows += attention_rows(options.protocol, options.rounds, "attention", attend, shapes)
    if "library" in wanted:
        rows += library_rows(options.protocol, options.rounds)
    if "older" in wanted:
        rows += older_rows(options.protocol, options.rounds)
    device = torch.cuda.get_device_properties(0)
    about = {
        "card": device.name,
        "driver": driver_version(),
        "date": datetime.date.today().isoformat(),
        "pykittens": pk.__version__,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }
    heading = ", ".join(f"{k} {v}" for k, v in about.items())
    print(heading, "\n", table(rows), sep="\n")
    options.out.mkdir(parents=True, exist_ok=True)
    stem = (
        f"{device.name.replace(' ', '-').lower()}-{about['date']}-{options.protocol}{options.label}"
    )
    (options.out / f"{stem}.md").write_text(f"# {heading}\n\n{table(rows)}\n")
    (options.out / f"{stem}.json").write_text(
        json.dumps({"about": about, "rows": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
