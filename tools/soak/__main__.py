"""Search for faults with random programs, products, attention, calls, threads and kills of writers to the cache.

`python -m tools.soak` compares the emulator with references in float64 and with Python, and compiles each program.
With --gpu the programs run on a GPU as well. Every case follows from a seed; one that fails is made smaller and
written to a file that runs it again. Writes soak-<card>-<date>.json to --out.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from tools.soak import part
from tools.watched import CONTEXT

MOST_FAILURES = 10  # of a part, after which it ends
SAY = 20.0  # seconds between lines


def soak(name: str, seeds: range, pool: ProcessPoolExecutor, options: Any) -> dict[str, Any]:
    """The outcome of a part."""
    start = said = time.perf_counter()
    cases, refused, texts, failed, done = 0, 0, set[bytes](), list[dict[str, Any]](), 0
    rest, running = iter(seeds), set[Future[part.Found]]()
    while True:
        over = time.perf_counter() - options.start > options.minutes * 60
        while len(running) < options.workers and len(failed) < MOST_FAILURES and not over:
            seed = next(rest, None)
            if seed is None:
                break
            running.add(pool.submit(part.search, name, seed, options.gpu))
        if not running:
            break
        ended, running = wait(running, return_when=FIRST_COMPLETED)
        for found in (future.result() for future in ended):
            done += 1
            cases += found.cases
            refused += found.refused
            texts |= found.texts
            if found.fault:
                path = part.written(name, found, options.gpu, options.out)
                failed.append({"seed": found.seed, "file": path.name, "fault": found.fault})
                print(f"{name}, seed {found.seed}: {found.fault[:300]}\n  {path}", flush=True)
        if time.perf_counter() - said > SAY:
            said = time.perf_counter()
            print(_line(name, cases, refused, failed, said - start), flush=True)
    seconds = round(time.perf_counter() - start, 1)
    print(_line(name, cases, refused, failed, seconds), flush=True)
    return {
        "part": name,
        "first_seed": seeds.start,
        "seeds": done,
        "of_seeds": len(seeds),
        "cases": cases,
        "refused": refused,
        "different": len(texts),
        "seconds": seconds,
        "failed": failed,
    }


def _line(name: str, cases: int, refused: int, failed: list[Any], seconds: float) -> str:
    return f"{name}: {cases:,} cases, {refused} refused, {len(failed)} wrong, {seconds:.0f} s"


def main() -> int:
    """Exit code 1 if a case fails, 2 if the time ended before the cases."""
    parser = argparse.ArgumentParser("python -m tools.soak", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", default=part.NAMES, metavar="PART[:CASES]", help=", ".join(part.NAMES)
    )
    parser.add_argument("--gpu", action="store_true", help="run the programs on a GPU")
    parser.add_argument("--seed", type=int, help="the first; of the clock if it is not given")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no more after these")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--out", type=Path, default=Path("build/soak"))
    options = parser.parse_args()
    asked = dict(word.partition(":")[::2] for word in options.parts)
    if unknown := [
        n for n, count in asked.items() if n not in part.NAMES or count.strip("0123456789")
    ]:
        parser.error(f"{', '.join(unknown)}: the parts are {', '.join(part.NAMES)}")
    options.start = time.perf_counter()
    first = int(time.time()) % 10**9 if options.seed is None else options.seed
    # There is one process per processor: more threads would only compete.
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    print(f"seed {first}", flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("PYKITTENS_CACHE_DIR", cache)
        with ProcessPoolExecutor(options.workers, mp_context=CONTEXT) as pool:
            for name, count in asked.items():
                made = part.part(name)
                count = int(count or (made.on_gpu if options.gpu else made.emulated))
                seeds = range(first, first + -(-count // made.each))
                rows.append(soak(name, seeds, pool, options))
    card = _card() if options.gpu else "emulator"
    about = {"card": card, "date": datetime.date.today().isoformat(), "seed": first}
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"soak-{card.lower().replace(' ', '-')}-{about['date']}.json"
    path.write_text(json.dumps({"about": about, "parts": rows}, indent=1) + "\n")
    print(path)
    if any(row["failed"] for row in rows):
        return 1
    return 2 * int(any(row["seeds"] < row["of_seeds"] for row in rows))


def _card() -> str:
    from pykittens.runtime import driver

    return driver.device(0).name


if __name__ == "__main__":
    sys.exit(main())
