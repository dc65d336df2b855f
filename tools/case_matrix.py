"""Run every case on the GPU, by the card's own lowerings and by those of an older target, and count the faults.

A process runs the cases one after another; if a case kills or hangs it, the case is noted and another process runs the
next. `python tools/case_matrix.py --out FOLDER` writes matrix-<card>.json there.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from watched import watched

SECONDS = 20  # for one case, without compilation


def fault_of(name: str) -> str:
    """The fault of a case, empty if it is right."""
    from tests.gpu import test_cases

    return test_cases.fault_of(name)


def matrix(target: str, names: list[str], arch: str) -> dict[str, Any]:
    """The results of the cases by the lowerings of a target; empty is the card's own."""
    os.environ["PYKITTENS_TARGET"] = target
    from tests.gpu.test_cases import compile_all

    start = time.perf_counter()
    compile_all(names, arch)
    compiled = time.perf_counter()
    faults = dict(watched(fault_of, names, SECONDS))
    wrong = {n: f for n, f in faults.items() if f and not f.startswith("skipped")}
    skipped = {n: f for n, f in faults.items() if f.startswith("skipped")}
    return {
        "lowerings": target or arch,
        "cases": len(faults),
        "right": len(faults) - len(wrong) - len(skipped),
        "wrong": wrong,
        "skipped": skipped,
        "seconds_to_compile": round(compiled - start, 1),
        "seconds_to_run": round(time.perf_counter() - compiled, 1),
    }


def main() -> int:
    """Exit code 1 if a case is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build"))
    parser.add_argument("--only", default="", help="cases whose name contains one of these words")
    parser.add_argument(
        "--targets", default=",sm_80,sm_89", help="comma separated; empty is the card's own"
    )
    given = parser.parse_args()
    from pykittens.runtime import driver
    from tests.cases import CASES

    device = driver.device(0)
    names = [n for n in CASES if any(word in n for word in given.only.split(","))]
    runs = [matrix(t, names, device.arch) for t in given.targets.split(",")]
    given.out.mkdir(parents=True, exist_ok=True)
    report = {"card": device.name, "date": datetime.date.today().isoformat(), "runs": runs}
    slug = device.name.lower().replace(" ", "-")
    (given.out / f"matrix-{slug}.json").write_text(json.dumps(report, indent=1) + "\n")
    for run in runs:
        print(
            {k: v for k, v in run.items() if k not in ("wrong", "skipped")},
            len(run["skipped"]),
            "skipped",
        )
        for name, fault in run["wrong"].items():
            print("  ", name, fault.replace("\n", " ")[:300])
    return int(any(run["wrong"] for run in runs))


if __name__ == "__main__":
    sys.exit(main())
