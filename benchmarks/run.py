"""`make bench`: every kernel beside the vendor's library, in one run on this machine's GPU.

Prints a table and writes it with card, date and versions to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch  # noqa: E402
from protocol import buffer_count, burst, call_cost, isolated  # noqa: E402

import pykittens as pk  # noqa: E402
from pykittens.cli.examples import module  # noqa: E402
from pykittens.kernels.rms_norm import rms_norm_rows  # noqa: E402

Row = dict[str, Any]


def load_example(stem: str) -> Any:
    """The module of an example, by its file name without the ending."""
    return module(ROOT / "examples", stem)


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


def matmul_rows(protocol: str, rounds: int) -> list[Row]:
    matmul = load_example("03_matmul").matmul
    rows = []
    for n in (4096, 8192, 16384):
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
        matmul(a, b, c)
        error = check("matmul", c, a[:512].double() @ b.double().T, 4e-3)
        contenders = {
            "pykittens": lambda i, s=sets: matmul(*s[i]),
            "cuBLAS": lambda i, s=sets: torch.mm(s[i][0], s[i][1].T, out=s[i][2]),
        }
        measure = burst if protocol == "burst" else isolated
        rows.append(
            row(
                "matmul A @ B.T bf16",
                f"{n}",
                measure(contenders, count, rounds),
                2.0 * n**3,
                "TFLOP/s",
                error,
                protocol,
            )
        )
        del sets, a, b, c
        torch.cuda.empty_cache()
    return rows


def attention_rows(
    protocol: str, rounds: int, shapes: list[tuple[int, int, int, int]]
) -> list[Row]:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    attention = load_example("04_attention").attention
    rows = []
    for shape in shapes:
        for causal in (False, True):
            sets = [
                [normal(*shape) for _ in range(3)]
                + [torch.full(shape, torch.nan, device="cuda", dtype=torch.bfloat16)]
                for _ in range(3)
            ]
            q, k, v, o = sets[0]
            attention(q, k, v, o, causal=causal)
            with sdpa_kernel(SDPBackend.MATH):
                expected = sdpa(
                    q[:1, :4].double(), k[:1, :4].double(), v[:1, :4].double(), is_causal=causal
                )
            error = check("attention", o, expected, 8e-3)

            def library(i: int, s: Any = sets, c: bool = causal) -> None:
                with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                    sdpa(s[i][0], s[i][1], s[i][2], is_causal=c)

            contenders = {
                "pykittens": lambda i, s=sets, c=causal: attention(*s[i], causal=c),
                "cuDNN": library,
            }
            b, h, n, d = shape
            flops = 4.0 * b * h * n * n * d * (0.5 if causal else 1.0)
            measure = burst if protocol == "burst" else isolated
            name = f"attention {'causal' if causal else 'full'}"
            rows.append(
                row(
                    name,
                    str(shape),
                    measure(contenders, 3, rounds),
                    flops,
                    "TFLOP/s",
                    error,
                    protocol,
                )
            )
    return rows


def row_rows(protocol: str, rounds: int) -> list[Row]:
    softmax = load_example("02_softmax").softmax
    rows = []
    for shape in ((16384, 2048), (65536, 4096)):
        count = buffer_count([torch.empty(shape, dtype=torch.bfloat16, device="meta")] * 2)
        sets = [
            (normal(*shape), torch.full(shape, torch.nan, device="cuda", dtype=torch.bfloat16))
            for _ in range(count)
        ]
        x, y = sets[0]
        gain = normal(shape[1])
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
        rms_norm_rows(x, gain, y, eps=1e-6)
        expected = torch.nn.functional.rms_norm(x.double(), (shape[1],), gain.double(), 1e-6)
        error = check("rms_norm", y, expected, 4e-3)
        contenders = {
            "pykittens": lambda i, s=sets, g=gain: rms_norm_rows(s[i][0], g, s[i][1], eps=1e-6),
            "PyTorch": lambda i, s=sets, g=gain: torch.nn.functional.rms_norm(
                s[i][0], (g.numel(),), g, 1e-6
            ),
        }
        rows.append(
            row(
                "rms_norm bf16",
                str(shape),
                measure(contenders, count, rounds),
                moved,
                "GB/s",
                error,
                protocol,
            )
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

    add = load_example("01_add").add
    a, b, c = (normal(64, 64, dtype=torch.float32) for _ in range(3))
    ours = call_cost(lambda: add(a, b, c))
    theirs = call_cost(lambda: nothing[(1,)](a, b, c, 4096, BLOCK=4096))
    matmul = load_example("03_matmul").matmul
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


def driver_version() -> str:
    """The version of the GPU's driver, as its own tool tells it."""
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split()[0]


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
    parser.add_argument("--only", default="matmul,attention,rows,calls")
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
        rows += row_rows(options.protocol, options.rounds)
    if "matmul" in wanted:
        rows += matmul_rows(options.protocol, options.rounds)
    if "attention" in wanted:
        rows += attention_rows(options.protocol, options.rounds, [(16, 16, 3072, 128)])
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
