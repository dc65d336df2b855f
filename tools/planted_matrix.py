"""Run planted bugs, and their repaired kernels, on the GPU and count the launches with wrong results.

Each bug has a separate process, so that one that hangs or faults does not affect the others. `python
tools/planted_matrix.py --out FOLDER [--only a,b] [--launches N]` writes planted-<card>.json there.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

SECONDS = 60  # for one bug, its compilation and its launches
AT_ONCE = 8
# Bugs of these kinds are refused before a launch.
REFUSED = ("resources", "aliasing")


def counted(name: str, launches: int) -> dict[str, Any]:
    """Of how many launches of the broken and of the mended kernel an output is wrong."""
    from tests.planted.core import every

    (case,) = (p for p in every() if p.name == name)
    broken = wrong_launches(case, case.kernel, case.arguments, case.constants, launches)
    assert case.repaired is not None
    made = case.repaired_arguments or case.arguments
    mended = wrong_launches(case, case.repaired, made, case.repaired_constants, launches)
    return {"launches": launches, "broken_wrong": broken, "mended_wrong": mended}


def wrong_launches(
    case: Any, kernel: Any, made: Any, constants: Mapping[str, Any], launches: int
) -> int:
    """The number of launches whose outputs differ from those of a correct kernel."""
    import torch

    from tests.gpu.test_cases import on_gpu, on_host

    given = made(np.random.default_rng(0))
    exact = {n: np.asarray(a) for n, a in case.expected(*[_copy(a) for a in given]).items()}
    names = kernel.parameters.positional
    wrong = 0
    for _ in range(launches):
        values = [on_gpu(a) if isinstance(a, np.ndarray) else a for a in given]
        kernel(*values, **constants)
        torch.cuda.synchronize()
        found = {
            n: on_host(v, a) for n, v, a in zip(names, values, given, strict=True) if n in exact
        }
        wrong += any(_differs(case, found[n], exact[n], given) for n in exact)
    return wrong


def _differs(case: Any, found: Any, exact: Any, given: Any) -> bool:
    wide, wanted = found.astype(np.float64), exact.astype(np.float64)
    bound = case.bound(exact, *given) if case.bound is not None else 0.0
    if case.bound is None:
        wanted = exact.astype(found.dtype).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return not bool((np.abs(wide - wanted) <= bound).all())


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def in_a_process(name: str, launches: int) -> dict[str, Any]:
    """The counts of one bug, or the reason why its process ended."""
    words = [sys.executable, __file__, "--one", name, "--launches", str(launches)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"ended": "hangs"}
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        found: dict[str, Any] = json.loads(lines[-1])
        return found
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    return {"ended": last[:200]}


def main() -> None:
    """Run the bugs and write the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--one")
    parser.add_argument("--launches", type=int, default=50)
    parsed = parser.parse_args()
    if parsed.one:
        print(json.dumps(counted(parsed.one, parsed.launches)))
        return
    from pykittens import __version__
    from pykittens.runtime import driver
    from tests.planted.core import every

    chosen = parsed.only.split(",") if parsed.only else None
    bugs = [
        p
        for p in every()
        if p.repaired is not None
        and p.kind.value not in REFUSED
        and (chosen is None or p.name in chosen)
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda p: in_a_process(p.name, parsed.launches), bugs))
    device = driver.device(0)
    result = {
        "card": device.name,
        "date": datetime.date.today().isoformat(),
        "pykittens": __version__,
        "bugs": {p.name: {"kind": p.kind.value, **f} for p, f in zip(bugs, found, strict=True)},
    }
    card = device.name.lower().replace(" ", "-")
    path = parsed.out / f"planted-{card}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    for name, f in result["bugs"].items():
        print(
            f"{name:40} {f['kind']:20} {f.get('ended') or (f['broken_wrong'], f['mended_wrong'])}"
        )


if __name__ == "__main__":
    main()
