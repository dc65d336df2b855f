"""Check correct kernels in many schedules: every finding is a false alarm.

The launches are those of tests/test_false_alarms.py and larger ones; `python -m tools.soak.schedules` writes
checker-soak-<date>.json with the findings and the times.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import multiprocessing
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
PROCESSES = 2


def begin() -> None:
    """Set the number of blocks of each process to that of the launches."""
    from pykittens.emulate import machine
    from tests.launches import BLOCKS

    machine.BLOCKS = BLOCKS


def soak(job: tuple[str, int]) -> dict[str, Any]:
    """The findings in one launch under a number of schedules; notes are only counted."""
    from pykittens.checker.runs import run_schedules
    from pykittens.emulate.finding import Level
    from tests.launches import larger, launches

    name, schedules = job
    launch = (launches() | larger())[name]
    start = time.process_time()
    found = run_schedules(launch.kernel, launch.arguments(), range(schedules))
    faults = launch.faults(found)
    levels = collections.Counter(f.level for f in faults)
    return {
        "kernel": name,
        "schedules": schedules,
        "seconds": round(time.process_time() - start, 1),
        "errors": levels[Level.ERROR],
        "warnings": levels[Level.WARNING],
        "notes": sum(f.level is Level.NOTE for f in found),
        "findings": [
            {"kind": f.kind.value, "level": f.level.value, "message": f.message, "seed": f.seed}
            for f in faults
        ],
    }


def main() -> int:
    """Exit code 1 if anything but notes is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--only", default="", help="launches whose name contains this")
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args()
    # The products are small: more threads would only compete.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import numpy

    import pykittens as pk
    from tests.launches import larger, launches

    names = [n for n in launches() | larger() if options.only in n]
    context = multiprocessing.get_context("spawn")
    rows = []
    with context.Pool(PROCESSES, begin) as pool:
        jobs = [(n, options.schedules) for n in names]
        for row in pool.imap(soak, jobs):
            rows.append(row)
            said = f"{row['errors']} errors, {row['warnings']} warnings"
            print(
                f"{len(rows)}/{len(names)} {row['kernel']}: {said}, {row['seconds']} s", flush=True
            )
    about = {
        "date": datetime.date.today().isoformat(),
        "pykittens": pk.__version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "processes": PROCESSES,
        "schedules": sum(r["schedules"] for r in rows),
        "seconds": round(sum(r["seconds"] for r in rows), 1),
        "errors": sum(r["errors"] for r in rows),
        "warnings": sum(r["warnings"] for r in rows),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"checker-soak-{about['date']}.json"
    path.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")
    print(about)
    return int(bool(about["errors"] or about["warnings"]))


if __name__ == "__main__":
    sys.exit(main())
