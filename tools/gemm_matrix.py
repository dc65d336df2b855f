"""Run random matrix products on the GPU, or with --cpu in the emulator, and hold each against float64.

As many processes as there are processors compile and run them, each those of its own programs; where a product kills
or hangs its process, that is noted and another one goes on behind it. A product is known by its number:
`python tools/gemm_matrix.py --first 1234 --count 1` runs that one again, with the same --forms and --small. Writes
gemm-matrix-<card>.json to --out.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import multiprocessing
import os
import queue
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 120  # for one product and its compilation
CONTEXT = multiprocessing.get_context("spawn")
EVERY = 10  # of how many products one may have extents up to 2000


@dataclass(frozen=True)
class Drawing:
    """How numbers become products."""

    forms: int
    large: bool
    on_gpu: bool

    def problem(self, number: int) -> Any:
        """The product of a number."""
        from tests.gemm_random import drawn

        large = self.large and number % EVERY == 0
        return drawn(number, self.forms, large=large, numpy=not self.on_gpu)


# -- running ---------------------------------------------------------------------------------------


def of_workers(drawing: Drawing, numbers: Sequence[int]) -> list[list[int]]:
    """The products of each process: those of one program go to one."""
    parts: dict[int, list[int]] = collections.defaultdict(list)
    workers = os.cpu_count() or 2
    for number in numbers:
        parts[number % (drawing.forms or len(numbers)) % workers].append(number)
    return list(parts.values())


def run_some(drawing: Drawing, numbers: Sequence[int], told: Any) -> None:
    """Run products in order and tell (number, fault) of each, the fault empty where it is right."""
    from tests.gemm_random import fault_of
    from tests.gpu.test_cases import on_gpu, on_host

    for number in numbers:
        told.put((number, None))
        told.put((number, fault_of(drawing.problem(number), (on_gpu, on_host))))


def run_all(drawing: Drawing, numbers: Sequence[int]) -> dict[int, str]:
    """The faults of products, empty for those that are right, run by many processes on one GPU."""
    parts = of_workers(drawing, numbers)
    with ThreadPoolExecutor(len(parts)) as pool:
        return dict(
            pair for pairs in pool.map(lambda p: list(watched(drawing, p)), parts) for pair in pairs
        )


def watched(drawing: Drawing, numbers: Sequence[int]) -> Iterator[tuple[int, str]]:
    """The faults of products that run one after another in a process, and in another one where that ends."""
    left = list(numbers)
    while left:
        told = CONTEXT.Queue()
        process = CONTEXT.Process(target=run_some, args=(drawing, left, told))
        process.start()
        done, current = 0, left[0]
        while done < len(left):
            said = next_of(told, process)
            if said is None:
                done += 1
                yield current, "hangs" if process.is_alive() else "killed the process"
                break
            current, fault = said
            if fault is not None:
                done += 1
                yield current, fault
                if "CUDA" in fault or "launching" in fault:  # the context is gone with it
                    break
        process.kill()
        process.join()
        left = left[done:]


def next_of(told: Any, process: Any) -> Any:
    """What a process tells next; None where it has ended, or is silent for too long."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            return told.get(timeout=1)
        except queue.Empty:
            if not process.is_alive():
                break
    return None


def on_cpu(drawing: Drawing, numbers: Sequence[int]) -> dict[int, str]:
    """The faults of products in the emulator, by as many processes as there are processors."""
    parts = of_workers(drawing, numbers)
    with ProcessPoolExecutor(len(parts), mp_context=CONTEXT) as pool:
        found = pool.map(run_here, [drawing] * len(parts), parts)
        return {number: fault for part in found for number, fault in part.items()}


def run_here(drawing: Drawing, numbers: Sequence[int]) -> dict[int, str]:
    """The faults of products in this process."""
    from tests.gemm_random import fault_of

    return {number: fault_of(drawing.problem(number)) for number in numbers}


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
    # A process for each processor: threads of their own would only wait for one another.
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
