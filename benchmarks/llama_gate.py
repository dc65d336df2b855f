"""How far the logits of a model are from float32's, beside those of PyTorch in bf16: the gate of all its figures.

On texts of random tokens, and on texts that the program has drawn from its own logits, each position has the KL
divergence from the distribution of float32, and the error of the negative log-likelihood of the token that follows. The
gate: the mean of both, less those of PyTorch's operations in bf16 on the same weights, has an upper bound of at most 0
in a bootstrap over texts. As these operations round the hidden state, too, a second gate asks for an eighth of their KL
divergence, but not of prompts, as the kernels of the library take and give bf16. A planted fault must not pass both.
The weights are random, and so scaled that logits have a deviation of 2 to 4; flat ones would hide errors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
import record  # noqa: E402
import torch  # noqa: E402
from eager import Eager  # noqa: E402
from record import about, markdown  # noqa: E402

from pykittens.models.checkpoint import random_weights  # noqa: E402
from pykittens.models.config import NAMED, Config  # noqa: E402
from pykittens.models.llama import Llama  # noqa: E402

TEXTS, LENGTH = 16, 64
LOGITS = (2.0, 4.0)  # bounds of their deviation
SHARE = 1 / 8  # of the divergence of PyTorch in bf16 that the second gate allows
PROMPTED = "prompt, then one launch"
MEASURES = ("KL divergence", "error of the NLL")

Tensor = torch.Tensor
Model = Callable[[list[int]], Tensor]  # the logits after each token of a text


def in_bf16(h: Tensor, x: Tensor) -> Tensor:
    """The planted fault: a hidden state that is rounded to bf16 after each addition."""
    return (h + x).bfloat16().to(h.dtype)


def in_parts(h: Tensor, x: Tensor) -> Tensor:
    """The same with each addition in four parts, as blocks add their shares of a product to a hidden state in bf16."""
    for _ in range(4):
        h = in_bf16(h, x / 4)
    return h


def by_steps(model: Llama) -> Model:
    """The program, token after token."""

    def logits(text: list[int]) -> Tensor:
        found = []
        for position, token in enumerate(text):
            model.step(token, position)
            found.append(torch.from_numpy(model.logits()))
        return torch.stack(found)

    return logits


def by_prompt(model: Llama) -> Model:
    """The first half as a prompt by the kernels of the library, the rest by the program; no logits before."""

    def logits(text: list[int]) -> Tensor:
        half = len(text) // 2
        found = [torch.from_numpy(model.prefill(text[:half]))]
        for position in range(half, len(text)):
            model.step(text[position], position)
            found.append(torch.from_numpy(model.logits()))
        return torch.stack([found[0] * np.nan] * (half - 1) + found)

    return logits


def by_eager(eager: Eager) -> Model:
    return lambda text: eager.logits(torch.tensor(text, device=eager.device)).cpu()


def drawn(model: Llama, rng: np.random.Generator, length: int) -> list[int]:
    """A text that a model has drawn from its own logits, behind a random token."""
    text = [int(rng.integers(model.config.vocabulary))]
    while len(text) < length:
        model.step(text[-1], len(text) - 1)
        scores = model.logits().astype(np.float64)
        weights = np.exp(scores - scores.max())
        text.append(int(rng.choice(len(weights), p=weights / weights.sum())))
    return text


def errors(found: Tensor, exact: Tensor, text: Sequence[int]) -> np.ndarray[Any, Any]:
    """The KL divergence from the exact logits, and the error of the next token's NLL: means of a text, (2,)."""
    ours, wanted = (x[:-1].double().log_softmax(-1) for x in (found, exact))
    divergence = (wanted.exp() * (wanted - ours)).sum(-1)
    following = torch.tensor(list(text[1:]))[:, None]
    away = (ours - wanted).gather(1, following).abs()
    return np.array([divergence.nanmean(), away.nanmean()])


def upper(differences: np.ndarray[Any, Any]) -> float:
    """The upper end of a one-sided interval of 95% of the mean, by a bootstrap over texts."""
    rng = np.random.default_rng(0)
    picks = rng.integers(len(differences), size=(10_000, len(differences)))
    return float(np.quantile(differences[picks].mean(axis=1), 0.95))


def compared(
    models: Mapping[str, Model], base: Model, exact: Model, texts: Sequence[list[int]]
) -> Iterator[dict[str, Any]]:
    """Each model's errors beside those of a base."""
    found: dict[str, list[Any]] = {name: [] for name in (*models, "base")}
    for text in texts:
        wanted = exact(text)
        deviation = float(wanted.std())
        assert LOGITS[0] <= deviation <= LOGITS[1], f"logits have a deviation of {deviation}"
        for name, model in (*models.items(), ("base", base)):
            found[name].append(errors(model(text), wanted, text))
    rest = {name: np.array(x) for name, x in found.items()}
    for name in models:
        for i, measure in enumerate(MEASURES):
            mine, other = (rest[n][:, i] for n in (name, "base"))
            bounds = [upper(mine - other), upper(mine - SHARE * other)]
            yield {
                "model": name,
                "measure": measure,
                "mean": float(mine.mean()),
                "base": float(other.mean()),
                "upper": bounds[0],
                "upper_of_share": bounds[1],
                "passes": bounds[0] <= 0 and (i > 0 or name == PROMPTED or bounds[1] <= 0),
            }


def gate(
    config: Config, weights: Mapping[str, Any], texts: int = TEXTS, length: int = LENGTH
) -> list[dict[str, Any]]:
    """All comparisons of a model, on given texts and on its own."""
    model, rng = Llama(config, weights, length), np.random.default_rng(0)
    exact = by_eager(Eager(config, weights, torch.float32))
    base = by_eager(Eager(config, weights, torch.bfloat16))
    models = {
        "one launch": by_steps(model),
        PROMPTED: by_prompt(model),
        "planted: hidden state in bf16": by_eager(Eager(config, weights, torch.float32, in_bf16)),
        "planted: the same, added to in parts": by_eager(
            Eager(config, weights, torch.float32, in_parts)
        ),
    }
    given = [rng.integers(config.vocabulary, size=length).tolist() for _ in range(texts)]
    own = [drawn(model, rng, length) for _ in range(texts)]
    return [
        {"texts": kind, **row}
        for kind, some in (("given", given), ("own", own))
        for row in compared(models, base, exact, some)
    ]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    heads = (
        "Texts",
        "Model",
        "Measure",
        "Mean",
        "PyTorch in bf16",
        "Upper bound",
        "Less 1/8",
        "Passes",
    )
    return markdown(
        heads,
        (
            (
                *(r["texts"], r["model"], r["measure"], f"{r['mean']:.2e}", f"{r['base']:.2e}"),
                *(f"{r['upper']:+.2e}", f"{r['upper_of_share']:+.2e}"),
                "yes" if r["passes"] else "no",
            )
            for r in rows
        ),
    )


def main() -> None:
    """Compare and write; exits 1 if the program does not pass."""
    parser = record.parser(__doc__, rounds=TEXTS)
    parser.add_argument("--models", nargs="+", default=["llama-1b"], choices=[*NAMED])
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("llama_gate: no CUDA device")
    where, rows = about(), []
    for name in options.models:
        config = NAMED[name]
        weights = random_weights(config, 0, "cuda")
        rows += [{"of": name, **row} for row in gate(config, weights, options.rounds)]
    text = f"{record.heading(where)}\n\n{table(rows)}\n"
    print(text)
    record.save({"about": where, "rows": rows}, options.out, f"llama-gate{options.label}", text)
    failed = [r for r in rows if not r["passes"] and "planted" not in r["model"]]
    caught = {r["model"] for r in rows if not r["passes"]}
    missed = {r["model"] for r in rows if "planted" in r["model"]} - caught
    if failed or missed:
        sys.exit(f"llama_gate: {len(failed)} comparisons do not pass; missed: {missed or 'none'}")


if __name__ == "__main__":
    main()
