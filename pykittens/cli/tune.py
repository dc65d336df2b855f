"""`pykittens tune`: measures the configurations of a product before a program needs it, and lists the results."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterable
from typing import Any

from rich.text import Text

from pykittens.cli import screen
from pykittens.errors import ArgumentError, BackendError
from pykittens.kernels.gemm import gemm
from pykittens.runtime import driver, tuning_records
from pykittens.runtime.arrays import torch_dtype

DTYPES = ("bf16", "f16", "e4m3", "e5m2")
LAYOUTS = ("ABt", "AB", "AtB", "AtBt")


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "tune",
        help="measure which configuration of a product is the fastest on this GPU",
        description="Measure the configurations of a matrix product on this GPU and keep the fastest, which later "
        "calls of gemm with these shapes use. With --list, print the results that are kept.",
    )
    parser.add_argument("kernel", nargs="?", choices=("gemm",), help="the kernel")
    parser.add_argument("sizes", nargs="*", type=int, metavar="N", help="the extents M N K")
    parser.add_argument(
        "--dtype", choices=DTYPES, default="bf16", help="the dtype of A and B; bf16"
    )
    parser.add_argument(
        "--layout", choices=LAYOUTS, default="ABt", help="whether A or B is transposed; ABt"
    )
    parser.add_argument("--list", action="store_true", help="list the results, and stop")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Tune, and print the results for these extents; with --list, print all results."""
    if parsed.list:
        _print(tuning_records.records())
        return 0
    if parsed.kernel is None or len(parsed.sizes) != 3 or min(parsed.sizes) < 1:
        raise ArgumentError(
            "tune: the kernel and three extents of 1 or more are missing",
            help="pykittens tune gemm 4096 4096 4096, or pykittens tune --list",
        )
    m, n, k = parsed.sizes
    _tune(m, n, k, parsed.dtype, parsed.layout)
    asked = {"m": m, "n": n, "k": k}
    _print(
        r for r in tuning_records.records() if r.kernel == "gemm" and asked.items() <= r.key.items()
    )
    return 0


def _tune(m: int, n: int, k: int, dtype: str, layout: str) -> None:
    if (missing := driver.available()) is not None:
        raise BackendError(f"tune: there is no GPU to measure on: {missing}")
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        raise BackendError("tune: PyTorch, which holds the arrays, is not installed") from None
    a, b = (torch.randn(shape, device="cuda").to(torch_dtype(dtype)) for shape in ((m, k), (n, k)))
    a = a.T.contiguous().T if layout.startswith("At") else a
    b = b if layout.endswith("Bt") else b.T.contiguous().T
    gemm(a, b, tune=True)


def _print(records: Iterable[tuning_records.Record]) -> None:
    """One line per problem."""
    table = screen.table("what tuning found")
    columns = ("kernel", "problem", "GPU", "ms", "configuration", "date")
    screen.add_columns(table, *columns, numbers="ms")
    for record in records:
        best = next(o for o in record.outcomes if o.candidate == record.best)
        problem = ", ".join(f"{name} {value}" for name, value in record.key.items() if value)
        time = "" if best.milliseconds is None else f"{best.milliseconds:.4g}"
        row = (record.kernel, problem, str(record.conditions["device"]), time, record.best)
        table.add_row(*map(Text, (*row, record.date[:10])))
    screen.console().print(table if table.rows else "Nothing was tuned on this machine.")
