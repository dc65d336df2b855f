"""Many steps of a model in one launch each: none hangs, and none chooses another token than the first time.

A CUDA graph of steps is replayed from the same token and position, and the tokens that it chooses are compared with
those of the first replay, on the GPU. `--rounds` are seconds. Its results are in docs/tuning/llama.md.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
import record  # noqa: E402
import torch  # noqa: E402
from llama import PROMPT, STEPS, graph_of  # noqa: E402
from record import about  # noqa: E402

from pykittens.models.checkpoint import random_weights  # noqa: E402
from pykittens.models.config import NAMED, Config  # noqa: E402
from pykittens.models.llama import Llama  # noqa: E402


def soaked(
    config: Config,
    seconds: float,
    steps: int = STEPS,
    graph: Any = graph_of,
    device: str = "cuda",
) -> dict[str, int]:
    """Steps for so many seconds: how many there were, and in how many replays a token was another."""
    model = Llama(config, random_weights(config, 0, device), PROMPT + steps + 1)
    prompt = np.random.default_rng(0).integers(config.vocabulary, size=PROMPT + 1).tolist()
    model.prefill(prompt[:PROMPT])
    run, tensors = model.repeater(prompt[-1], PROMPT)
    chosen, number = torch.zeros(steps, dtype=torch.int32, device=device), 0

    def step() -> None:
        nonlocal number
        run()
        chosen[number % steps].copy_(
            torch.as_tensor(tensors["token" if number % 2 else "chosen"])[0]
        )
        number += 1

    for _ in range(2):  # compilation cannot be captured; two runs leave each tensor where it was
        run()
    replay = graph(step, steps)
    changed, wanted = torch.zeros((), dtype=torch.int64, device=device), None
    began, replays = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        tensors["token"][:] = prompt[-1]
        tensors["position"][:] = PROMPT
        replay()
        wanted = chosen.clone() if wanted is None else wanted
        changed += (chosen != wanted).any()
        replays += 1
        if replays % 16 == 0:  # so that a hang stops the count
            int(changed)
    return {"steps": replays * steps, "changed": int(changed)}


def main() -> None:
    """Run and write; exits 1 if a token has changed."""
    parser = record.parser(__doc__, rounds=60)
    parser.add_argument("--models", nargs="+", default=["llama-1b"], choices=[*NAMED])
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("llama_soak: no CUDA device")
    rows = [{"model": name, **soaked(NAMED[name], options.rounds)} for name in options.models]
    lines = [
        f"{r['model']}: {r['steps']:,} steps, {r['changed']} replays with other tokens"
        for r in rows
    ]
    where = about()
    text = "\n\n".join([record.heading(where), *lines]) + "\n"
    print(text)
    record.save({"about": where, "rows": rows}, options.out, f"llama-soak{options.label}", text)
    if any(r["changed"] for r in rows):
        sys.exit("llama_soak: a token has changed")


if __name__ == "__main__":
    main()
