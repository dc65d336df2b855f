"""Steps of models on this machine's GPU: a token in one launch, by launches, and by PyTorch, each in a CUDA graph.

Batch 1, random weights in the sizes of the models. A sequence has a prompt of 32 tokens, which is not timed, and a
graph of steps, each of which takes the token that the last one has chosen, at the next position: embedding, choice and
counters are inside. Sequences of all contenders alternate, 5 to warm up and 10 that count; intervals are those of a
bootstrap of the mean. Steps at later positions run on a random cache. Batches of sequences run beside a single one.
docs/tuning/llama.md has the predictions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
import record  # noqa: E402
import torch  # noqa: E402
from eager import Eager  # noqa: E402
from protocol import _timed  # noqa: E402
from record import about, markdown  # noqa: E402

from pykittens.models.checkpoint import random_weights  # noqa: E402
from pykittens.models.config import NAMED, Config  # noqa: E402
from pykittens.models.llama import Llama  # noqa: E402

PROMPT, STEPS, CAPACITY = 32, 127, 16384
WARM_UPS, SEQUENCES = 5, 10
# Models, with the positions of their first steps and how many steps these have.
RUNS = {
    "llama-1b": ((PROMPT, STEPS), (4000, 31), (16000, 31)),
    "qwen-0.6b": ((PROMPT, STEPS), (4000, 31)),
    "llama-8b": ((PROMPT, STEPS),),
}
BATCHES = {"llama-1b": (2, 4, 8)}


@dataclass(frozen=True)
class Contender:
    """A graph of steps. start: sets the first token and its position. chosen: the token that the last step chose.

    step: has the tensors that the graph reads.
    """

    name: str
    start: Callable[[], None]
    replay: Callable[[], None]
    chosen: Callable[[], int]
    step: Callable[[], Any]


@dataclass(frozen=True)
class Times:
    """Milliseconds a step, of each sequence."""

    name: str
    sequences: tuple[float, ...]
    chosen: int

    @property
    def mean(self) -> float:
        return float(np.mean(self.sequences))

    def interval(self, over: Times | None = None) -> tuple[float, float]:
        """95% of a bootstrap of the mean, or of its ratio to that of another."""
        rng = np.random.default_rng(0)
        picks = rng.integers(len(self.sequences), size=(10_000, len(self.sequences)))
        means = np.array(self.sequences)[picks].mean(axis=1)
        if over is not None:
            means = np.array(over.sequences)[picks].mean(axis=1) / means
        low, high = np.quantile(means, [0.025, 0.975])
        return float(low), float(high)


def graph_of(step: Callable[[], Any], count: int) -> Callable[[], None]:
    """A CUDA graph of steps; step has run before."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            step()
    return graph.replay  # type: ignore[no-any-return]


def ours(
    model: Llama, apart: bool, token: Any, position: int, steps: int, graph: Any = graph_of
) -> Contender:
    """Steps of a model, in one launch or by launches; of a batch all sequences are at one position."""
    single = model.batch == 1
    run, tensors = model.repeater(token, position if single else [position] * model.batch, apart)
    first = tensors["token"].clone()

    def start() -> None:
        tensors["token"].copy_(first)
        tensors["position"].fill_(position)

    for _ in range(2):  # compilation cannot be captured; two runs leave each tensor where it was
        run()
    last = tensors["chosen" if steps % 2 else "token"]
    name = ("launches" if apart else "one launch") if single else f"batch of {model.batch}"
    return Contender(name, start, graph(run, steps), lambda: int(last[0]), run)


def by_pytorch(
    config: Config,
    weights: Mapping[str, Any],
    cache: Any,
    token: int,
    position: int,
    steps: int,
    graph: Any = graph_of,
) -> Contender:
    """As many steps by PyTorch, all of them at the position in the middle, as a graph cannot count."""
    eager, middle = Eager(config, weights, torch.bfloat16), position + steps // 2
    eager.prepare(middle + 1)
    at = torch.tensor([token], device=eager.device)

    def step() -> None:
        at.copy_(eager.step(at, middle, cache))

    for _ in range(2):
        step()
    return Contender(
        "PyTorch", lambda: at.fill_(token), graph(step, steps), lambda: int(at[0]), step
    )


def measured(
    contenders: Sequence[Contender],
    steps: int,
    sequences: int = SEQUENCES,
    timed: Callable[[Callable[[], None]], float] = _timed,
) -> list[Times]:
    """The sequences of contenders in turn, in an order that turns round each time."""
    times: dict[str, list[float]] = {c.name: [] for c in contenders}
    chosen = {}
    for number in range(WARM_UPS + sequences):
        for c in contenders if number % 2 else reversed(contenders):
            c.start()
            time = timed(c.replay) / steps
            if number >= WARM_UPS:
                times[c.name].append(time)
            chosen[c.name] = c.chosen()
    return [Times(name, tuple(x), chosen[name]) for name, x in times.items()]


def bytes_of(config: Config, position: int) -> int:
    """The bytes of weights and of keys and values that a step reads at a position."""
    shapes = config.shapes()
    if not config.tied:
        del shapes["model.embed_tokens.weight"]
    weights = sum(2 * int(np.prod(shape)) for shape in shapes.values() if len(shape) == 2)
    return weights + 4 * config.layers * position * config.key_heads * config.head


def runs(
    name: str, of: Sequence[tuple[int, int]], sequences: int = SEQUENCES
) -> Iterator[dict[str, Any]]:
    """The steps of a model at some positions."""
    config = NAMED[name]
    weights = random_weights(config, 0, "cuda")
    rng = np.random.default_rng(0)
    prompt = rng.integers(config.vocabulary, size=PROMPT + 1).tolist()
    model = Llama(config, weights, min(CAPACITY, config.positions))
    for position, steps in of:
        if position == PROMPT:
            model.prefill(prompt[:PROMPT])
        else:
            model.cache.normal_()
        contenders = [ours(model, apart, prompt[-1], position, steps) for apart in (False, True)]
        cache = model.cache.clone()
        contenders.append(by_pytorch(config, weights, cache, prompt[-1], position, steps))
        found = measured(contenders, steps, sequences)
        yield row_of(name, config, position, steps, found)


def batches(name: str, sizes: Sequence[int], sequences: int = SEQUENCES) -> dict[str, Any]:
    """The first steps of a model, and of batches of so many sequences."""
    config = NAMED[name]
    weights = random_weights(config, 0, "cuda")
    rng = np.random.default_rng(0)
    texts = rng.integers(config.vocabulary, size=(max(sizes), PROMPT + 1)).tolist()
    contenders = []
    for batch in (1, *sizes):
        model = Llama(config, weights, PROMPT + STEPS + 1, batch=batch)
        some = [text[:PROMPT] for text in texts[:batch]]
        model.prefill(some if batch > 1 else some[0])
        tokens = [text[PROMPT] for text in texts[:batch]]
        contenders.append(ours(model, False, tokens if batch > 1 else tokens[0], PROMPT, STEPS))
    return row_of(name, config, PROMPT, STEPS, measured(contenders, STEPS, sequences))


def row_of(
    name: str, config: Config, position: int, steps: int, found: Sequence[Times]
) -> dict[str, Any]:
    """What is written of a run. By launches, it chooses the same last token as in one."""
    size = bytes_of(config, position + steps // 2)
    one, chosen = found[0], {t.name: t.chosen for t in found}
    return {
        "model": name,
        "position": position,
        "steps": steps,
        "bytes": size,
        "same": chosen.get("launches", one.chosen) == one.chosen,
        "times": {
            t.name: {
                "microseconds": 1e3 * t.mean,
                "interval": [1e3 * x for x in t.interval()],
                "ratio": t.mean / one.mean,
                "ratio_interval": [1 / x for x in reversed(t.interval(one))],
                "terabytes_a_second": size / t.mean * 1e-9,
                "sequences": t.sequences,
            }
            for t in found
        },
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    heads = ("Model", "Positions", "Contender", "Microseconds", "95%", "To one launch", "TB/s")
    cells = []
    for row in rows:
        positions = f"{row['position']} to {row['position'] + row['steps'] - 1}"
        for name, t in row["times"].items():
            low, high = t["interval"]
            time, rate = f"{t['microseconds']:,.1f}", f"{t['terabytes_a_second']:.2f}"
            cells.append(
                (row["model"], positions, name, time, f"{low:,.1f} to {high:,.1f}",
                 f"{t['ratio']:.3f}", rate)
            )  # fmt: skip
    return markdown(heads, cells)


def main() -> None:
    """Measure and write; exits 1 if a program by launches chooses another token than in one launch."""
    parser = record.parser(__doc__, rounds=SEQUENCES)
    parser.add_argument("--models", nargs="+", default=[*RUNS], choices=[*RUNS])
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("llama: no CUDA device")
    where, rows = about(), []
    for name in options.models:
        rows += runs(name, RUNS[name], options.rounds)
        if name in BATCHES:
            rows.append(batches(name, BATCHES[name], options.rounds))
        torch.cuda.empty_cache()
    text = f"{record.heading(where)}\n\n{table(rows)}\n"
    print(text)
    record.save({"about": where, "rows": rows}, options.out, f"llama{options.label}", text)
    if wrong := [f"{r['model']} at {r['position']}" for r in rows if not r["same"]]:
        sys.exit(f"llama: other tokens by launches: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
