"""Run random matrix products on the GPU, or with --cpu in the emulator, and compare each with float64.

One process per processor compiles and runs its programs; if a product kills or hangs its process, the product is noted
and another process runs the next. A number identifies a product: `python tools/gemm_matrix.py --first 1234 --count 1`
runs it again, with the same --forms and --small. Writes gemm-matrix-<card>.json to --out.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import functools
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watched import CONTEXT, watched

SECONDS = 120  # for one product and its compilation
EVERY = 10  # one product in ten may have extents up to 2000


@dataclass(frozen=True)
class Drawing:
    """How products are derived from numbers."""

    forms: int
    large: bool
    on_gpu: bool

    def problem(self, number: int) -> Any:
        """The product of a number."""
        from tests.gemm_random import drawn

        large = self.large and number % EVERY == 0
        return drawn(number, self.forms, large=large, numpy=not self.on_gpu)


# -- running ---------------------------------------------------------------------------------------


def by_worker(drawing: Drawing, numbers: Sequence[int]) -> list[list[int]]:
    """The products of each process; one process has all products of a program."""
    shares: dict[int, list[int]] = collections.defaultdict(list)
    workers = os.cpu_count() or 2
    for number in numbers:
        shares[number % (drawing.forms or len(numbers)) % workers].append(number)
    return list(shares.values())


def fault_of(drawing: Drawing, number: int) -> str:
    """The fault of a product, empty if it is right."""
    from tests.gemm_random import fault_of

    if not drawing.on_gpu:
        return str(fault_of(drawing.problem(number)))
    from tests.gpu.test_cases import on_gpu, on_host

    return str(fault_of(drawing.problem(number), (on_gpu, on_host)))


def run_all(drawing: Drawing, numbers: Sequence[int]) -> dict[int, str]:
    """The faults of products, run by many processes on one GPU."""
    shares = by_worker(drawing, numbers)
    fault = functools.partial(fault_of, drawing)
    with ThreadPoolExecutor(len(shares)) as pool:
        found = pool.map(lambda share: list(watched(fault, share, SECONDS)), shares)
        return {number: fault for some in found for number, fault in some}


def on_cpu(drawing: Drawing, numbers: Sequence[int]) -> dict[int, str]:
    """The faults of products in the emulator, run by one process per processor."""
    shares = by_worker(drawing, numbers)
    with ProcessPoolExecutor(len(shares), mp_context=CONTEXT) as pool:
        found = pool.map(run_here, [drawing] * len(shares), shares)
        return {number: fault for some in found for number, fault in some.items()}


def run_here(drawing: Drawing, numbers: Sequence[int]) -> dict[int, str]:
    """The faults of products in this process."""
    return {number: fault_of(drawing, number) for number in numbers}


def main() -> int:
    """Exit code 1 if a product is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument(
        "--forms", type=int, default=240, help="of which each has one or two; 0: no limit"
    )
    parser.add_argument("--small", action="store_true", help="no extent above 300")
    parser.add_argument("--cpu", action="store_true", help="in the emulator")
    parser.add_argument("--out", type=Path, default=Path("build"))
    given = parser.parse_args()
    # There is one process per processor: more threads would only compete.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    drawing = Drawing(given.forms, not given.small, not given.cpu)
    numbers = range(given.first, given.first + given.count)
    report: dict[str, Any] = {"card": "emulator", "date": datetime.date.today().isoformat()}
    start = time.perf_counter()
    if given.cpu:
        faults = on_cpu(drawing, numbers)
    else:
        from pykittens.runtime import driver

        report["card"] = driver.device(0).name
        faults = run_all(drawing, numbers)
    wrong = {number: fault for number, fault in faults.items() if fault}
    report |= {
        "products": len(faults),
        "right": len(faults) - len(wrong),
        "first": given.first,
        "seconds": round(time.perf_counter() - start, 1),
        "drawing": vars(drawing),
        "wrong": {n: {"fault": f, "problem": str(drawing.problem(n))} for n, f in wrong.items()},
    }
    given.out.mkdir(parents=True, exist_ok=True)
    slug = report["card"].lower().replace(" ", "-")
    (given.out / f"gemm-matrix-{slug}.json").write_text(json.dumps(report, indent=1) + "\n")
    for number, fault in wrong.items():
        print("  ", number, fault.replace("\n", " ")[:300])
    print({k: v for k, v in report.items() if k != "wrong"})
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
